package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// Diagnose builds cages and reports for each layer whether it holds. The first cage has no tool and shows which step
// fails, if one does. If none fails, two small programs look around in cages with a /proc, and their output is compared
// with the promise of each layer. This takes about 50 ms.
func (j *Jail) Diagnose(ctx context.Context) []Layer {
	r, err := j.emptyRun()
	if err != nil {
		return []Layer{{Name: "dev-private", How: "examined the host's devices", Err: err}}
	}
	layers, whole := r.tryLayers(ctx)
	if whole {
		return j.holder.checkLayers(j.checkFromInside(ctx, layers))
	}
	if lesser, err := j.chooseCage(ctx); err == nil && lesser != "" {
		layers = j.diagnoseLesser(ctx, layers)
	}
	return j.holder.checkLayers(layers)
}

// diagnoseLesser reports why calls get the lesser cage, and builds one.
func (j *Jail) diagnoseLesser(ctx context.Context, full []Layer) []Layer {
	i := slices.IndexFunc(full, func(l Layer) bool { return l.Err != nil && !errors.Is(l.Err, errUnreached) })
	why := Layer{Name: "full", How: "built a jail around nothing; calls get the jail landlock",
		Err: full[max(i, 0)].Err}
	l := newLayout()
	if err := l.addDevices(); err != nil {
		return []Layer{why, {Name: "landlock", How: "examined the host's devices", Err: err}}
	}
	r := &run{jail: j, plan: composeLesser(l, j.hostInfo(), bailey.Limits{}, homeDir, true), timeout: probeTime}
	r.plan.bounds = j.holder.boundsFor(bailey.Limits{})
	r.plan.addStep("", inside.Done, nil)
	layers, whole := r.tryLayers(ctx)
	if i := slices.IndexFunc(layers, func(l Layer) bool { return l.Name == "landlock" }); whole && i >= 0 {
		const file = "/proc/self/status"
		layers[i].How = fmt.Sprintf("edition %d kept a tool from reading %s", j.landlock, file)
		if code, err := j.exitCodeOf(ctx, "cat", file); err != nil || code == 0 {
			layers[i].Err = bailey.Unavailable.Wrap(err, "layer landlock was set up, but a tool could read "+file,
				"make no calls on this host and report it: see SECURITY.md")
		}
	}
	return append([]Layer{why}, layers...)
}

// errUnreached marks a layer that was not tried.
var errUnreached = &bailey.Error{Kind: bailey.Unavailable, Message: "not tried: an earlier layer could not be set up",
	Hint: "fix that layer first"}

// tryLayers builds the cage and sorts its layers: those that were set up, the one that failed, and those that were not
// reached.
func (r *run) tryLayers(ctx context.Context) (layers []Layer, whole bool) {
	e, err := r.buildCage(ctx)
	switch {
	case errors.Is(err, errUnheld): // PID 1 existed, in its namespaces
		return r.layerStates(0, r.plan.bounds.layer, err), false
	case err != nil: // PID 1 did not exist
		return r.layerStates(-1, "", err), false
	case e.started:
		return r.layerStates(len(r.plan.steps), "", nil), true
	}
	_, err = r.deriveExit(ctx, e)
	if e.failed && e.step < len(r.plan.steps) {
		return r.layerStates(e.step, r.plan.steps[e.step].layer, err), false
	}
	if r.plan.lesser {
		return r.layerStates(0, "init-guarded", err), false
	}
	return r.layerStates(0, "pidns", err), false
}

// buildCage makes a new PID 1 execute the plan, without the streams or places of a tool.
func (r *run) buildCage(ctx context.Context) (cageResult, error) {
	p, err := openPipes(bailey.Streams{})
	if err != nil {
		return cageResult{}, err
	}
	p.startReading(bailey.Streams{})
	defer p.waitAndClose()
	defer closeAll(p.inner[:])
	return r.sendRequest(nil, p, func(message []byte, files filesFor) (cageResult, error) {
		c, err := r.jail.spawnChild(initName(r.plan.lesser))
		if err != nil {
			return cageResult{}, err
		}
		return r.jail.runChild(ctx, c, r.plan.bounds, message, files, r.timeout)
	})
}

// layerStates returns the state of each layer if the plan came as far as step reached, which failed with err. A layer holds
// if all its steps were done. A negative reached means that the clone failed, all of it.
func (r *run) layerStates(reached int, failed string, err error) []Layer {
	last := map[string]int{}
	for i, s := range r.plan.steps {
		last[s.layer] = i
	}
	var layers []Layer
	for _, name := range r.plan.layerNames() {
		l := Layer{Name: name, How: "set up in a jail around nothing"}
		at, hasStep := last[name]
		switch {
		case name == failed || reached < 0 && slices.Contains(r.plan.initialLayers(), name):
			l.Err = err
		case reached < 0 || hasStep && at >= reached:
			l.Err = errUnreached
		}
		layers = append(layers, l)
	}
	return layers
}

// checkFromInside runs readlink and cat in cages with a /proc and compares their output with the promise of the layers.
func (j *Jail) checkFromInside(ctx context.Context, layers []Layer) []Layer {
	namespaces, err := j.readLinks(ctx, namespaceFiles())
	if err == nil {
		var text string
		var cage bailey.Cage
		if text, cage, err = j.outputOf(ctx, "cat", lookedAt...); err == nil {
			for _, name := range cage.Layers {
				if !slices.ContainsFunc(layers, func(l Layer) bool { return l.Name == name }) {
					layers = append(layers, Layer{Name: name, How: "set up in a jail around cat"})
				}
			}
			return j.checkExecDenied(ctx,
				compareLayers(layers, cageObservation{ours: ownNamespaces(), theirs: namespaces, text: text}))
		}
	}
	return append(layers, Layer{Name: "proc-private", How: "ran readlink and cat in jails with their own /proc", Err: err})
}

// readLinks returns the targets of symlinks as seen from inside, one per line. Each needs a cage of its own, since
// BusyBox's readlink accepts only one file.
func (j *Jail) readLinks(ctx context.Context, files []string) (string, error) {
	var all strings.Builder
	for _, file := range files {
		text, _, err := j.outputOf(ctx, "readlink", file)
		if err != nil {
			return "", err
		}
		all.WriteString(text)
	}
	return all.String(), nil
}

// checkExecDenied tries to execute a library as a program, which only Landlock refuses.
func (j *Jail) checkExecDenied(ctx context.Context, layers []Layer) []Layer {
	i := slices.IndexFunc(layers, func(l Layer) bool { return l.Name == "landlock" })
	if i < 0 {
		return append(layers, Layer{Name: "landlock", How: "asked the kernel for its version", Err: errNoLandlock})
	}
	env, err := j.tools.findTool("env")
	if err != nil {
		layers[i].Err = err
		return layers
	}
	for _, f := range env.files {
		var st unix.Stat_t
		if f.use != library || unix.Lstat(f.path, &st) != nil || st.Mode&0o111 == 0 {
			continue
		}
		layers[i].How = fmt.Sprintf("edition %d refused to run %s, a library", j.landlock, f.path)
		const cannotInvoke = 126 // env(1)
		if code, err := j.exitCodeOf(ctx, "env", f.path); err != nil || code != cannotInvoke {
			layers[i].Err = bailey.Unavailable.Wrapf(err, "make no calls on this host and report it: see SECURITY.md",
				"layer landlock was set up, but %s, which is not pinned, could be run (exit code %d)", f.path, code)
		}
		break
	}
	return layers
}

var errNoLandlock = &bailey.Error{Kind: bailey.Unavailable,
	Message: "layer landlock is absent: this kernel has no Landlock, or it is not switched on",
	Hint:    "use Linux 5.13 or newer and add landlock to the lsm= list of the kernel's command line; until then policy must accept calls without it"}

// exitCodeOf returns the exit code of a program in a cage.
func (j *Jail) exitCodeOf(ctx context.Context, command string, args ...string) (int, error) {
	planned, err := j.Plan(ctx, bailey.Job{Command: command, Args: args, Timeout: probeTime})
	if err != nil {
		return bailey.NeverRan, err
	}
	defer planned.Close()
	exit, err := planned.Start(ctx, bailey.Lent{}, bailey.Streams{})
	return exit.Code, err
}

// outputOf returns the standard output of a program in a cage with a /proc.
func (j *Jail) outputOf(ctx context.Context, command string, args ...string) (string, bailey.Cage, error) {
	planned, err := j.Plan(ctx, bailey.Job{Command: command, Args: args, NeedsProc: true, Timeout: probeTime})
	if err != nil {
		return "", bailey.Cage{}, err
	}
	defer planned.Close()
	var out, complaint bytes.Buffer
	exit, err := planned.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: &out, Stderr: &complaint})
	if err == nil && exit.Code != 0 {
		err = bailey.Unavailable.Wrapf(errors.New(clipText(complaint.String())), "",
			"%s exited in its jail with code %d", command, exit.Code)
	}
	return out.String(), planned.Cage(), err
}

func clipText(s string) string { return s[:min(len(s), 200)] }

// kinds lists the namespaces by their names in /proc/self/ns (namespaces(7)), with their layers.
var kinds = [...]struct{ file, layer string }{
	{"user", "userns"}, {"mnt", "mountns"}, {"pid", "pidns"}, {"net", "netns"}, {"ipc", "ipcns"}, {"uts", "utsns"},
	{"cgroup", "cgroupns"},
}

// lookedAt lists the files that show the other layers (proc_pid_status(5), proc_pid_mountinfo(5)).
var lookedAt = []string{"/proc/self/status", "/proc/self/limits", "/proc/self/mountinfo", "/proc/self/cgroup",
	"/proc/self/net/dev"}

func namespaceFiles() []string {
	var files []string
	for _, k := range kinds {
		files = append(files, "/proc/self/ns/"+k.file)
	}
	return files
}

// ownNamespaces returns the output of readlink for this process; a line is empty if the kernel does not tell.
func ownNamespaces() string {
	var b strings.Builder
	for _, file := range namespaceFiles() {
		text, _ := os.Readlink(file)
		b.WriteString(text + "\n")
	}
	return b.String()
}

// cageObservation is the output of programs that inspected a cage from inside.
type cageObservation struct {
	ours, theirs string // namespaces, one per line, in the order of kinds
	text         string // content of lookedAt, joined
}

// compareLayers checks each layer against the observation. If the observation contradicts a layer, or is missing, the layer
// gets an error: a missing observation must not pass for success.
func compareLayers(layers []Layer, s cageObservation) []Layer {
	ours, theirs := strings.Split(s.ours, "\n"), strings.Split(s.theirs, "\n")
	look := func(name, how string, ok bool) {
		i := slices.IndexFunc(layers, func(l Layer) bool { return l.Name == name })
		if i < 0 {
			return // not promised
		}
		layers[i].How = "seen from inside: " + how
		if !ok && layers[i].Err == nil {
			layers[i].Err = bailey.Unavailable.New("layer "+name+" was set up but is not visible from inside ("+how+")",
				"make no calls on this host and report it: see SECURITY.md")
		}
	}
	apart := map[string]bool{}
	for i, k := range kinds {
		apart[k.layer] = i < len(ours) && i < len(theirs) && ours[i] != "" && theirs[i] != "" && ours[i] != theirs[i]
		look(k.layer, "a namespace of its own", apart[k.layer])
	}
	status := parseFields(s.text)
	look("caps-none", "no capability in any set",
		isAllZero(status, "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"))
	look("no-new-privs", "NoNewPrivs is 1", lastWord(status["NoNewPrivs:"]) == "1")
	look("seccomp", "a filter on system calls", lastWord(status["Seccomp:"]) == "2")
	look("session", "leads a session of its own", lastWord(status["NSsid:"]) != "" &&
		lastWord(status["NSsid:"]) == lastWord(status["NSpid:"]))
	look("rlimits", "no core dumps", strings.Join(status["Max"], " ") == "core file size 1 1 bytes")
	look("cgroupns", "a namespace of its own, its own group its root", apart["cgroupns"] && isCgroupRoot(s.text))
	root, tmp := mountOptions(s.text, "/"), mountOptions(s.text, tmpDir)
	look("root-readonly", "the root is read-only", slices.Contains(root, "ro"))
	look("tmp-private", "/tmp is its own, noexec", slices.Contains(tmp, "noexec") && slices.Contains(tmp, "nodev"))
	if up := interfaceNames(s.text); !slices.Equal(up, []string{"lo"}) {
		look("netns", fmt.Sprintf("interfaces %v", up), false)
	}
	return layers
}

// parseFields returns the lines of a text by their first word. Of the limits it keeps only that on core files.
func parseFields(text string) map[string][]string {
	m := map[string][]string{}
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) > 1 && (w[0] != "Max" || w[1] == "core") && m[w[0]] == nil {
			m[w[0]] = w[1:]
		}
	}
	return m
}

func lastWord(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return words[len(words)-1]
}

func isAllZero(status map[string][]string, names ...string) bool {
	for _, name := range names {
		if v := lastWord(status[name]); v == "" || strings.Trim(v, "0") != "" {
			return false
		}
	}
	return true
}

// mountOptions returns the options of the topmost mount at a path. They are the sixth field of a line of mountinfo; the path
// is the fifth.
func mountOptions(text, at string) (options []string) {
	for line := range strings.Lines(text) {
		if w := strings.Fields(line); len(w) > 9 && w[4] == at && slices.Contains(w, "-") {
			options = strings.Split(w[5], ",")
		}
	}
	return options
}

// isCgroupRoot tells whether /proc/self/cgroup shows the root as the group of every controller that a cage needs.
func isCgroupRoot(text string) bool {
	for _, c := range wantedControllers[:needed] {
		if _, own, ok := ownCgroup(text, c); !ok || own != "/" {
			return false
		}
	}
	return true
}

// interfaceNames returns the first words of the table in net/dev, which is the end of the text.
func interfaceNames(text string) []string {
	_, table, _ := strings.Cut(text, "Inter-|")
	var names []string
	for line := range strings.Lines(table) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}
