package jail

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// planJob plans job and stores the result in r.
func (r *run) planJob(job bailey.Job) error {
	t, err := r.jail.tools.findIn(job.Command, jobPath(job))
	if err != nil {
		return err
	}
	l, err := r.buildLayout(job, t)
	if err != nil {
		return err
	}
	if r.env, err = buildEnv(slices.Concat(job.Env, networkEnv(job.Network), lentEnv(job.FileNames))); err != nil {
		return err
	}
	if r.env, err = withSearchPath(r.env, job.Wall); err != nil {
		return err
	}
	dir, err := l.checkWorkdir(job.Dir)
	if err != nil {
		return err
	}
	argv := slices.Concat(t.run, job.Args)
	if len(t.run) == 1 {
		argv[0] = job.Command
	}
	if slices.ContainsFunc(argv, func(a string) bool { return strings.Contains(a, "\x00") }) {
		return bailey.Invalid.New("an argument contains a NUL byte", "")
	}
	r.argc, r.tty = len(argv), job.TTY
	if r.lesser != "" {
		once := len(job.Exec) == 0
		r.env = withHomeDir(r.env, "")
		r.plan = composeLesser(l, r.jail.hostInfo(), job.Limits, dir, once)
		r.cage.Kind, r.cage.Lacks, r.cage.Lesser = "landlock", lacksLesser(r.jail.landlock, once), r.lesser
		return r.completePlan(job, inside.Become, slices.Concat(t.run[:1], argv, r.env))
	}
	words, s := slices.Concat(t.run[:1], argv, r.env), r.makePlanKey(job, t, dir)
	if m := r.jail.memos.findPlan(s, l); m != nil {
		r.plan = m.planWithExec(toolStep(inside.Exec, m.plan.dataLimit(job.Limits), job.TTY, len(argv), words))
		programs := r.cage.Programs
		r.cage = m.cage
		r.recordPrograms(programs)
		return nil
	}
	r.plan = composePlan(l, r.jail.hostInfo(), job.Limits, dir)
	r.cage.Kind, r.cage.Absent, r.cage.Lacks = "full", absentLandlock(r.jail.landlock), l.landlockGaps(r.jail.landlock)
	if err := r.completePlan(job, inside.Exec, words); err != nil {
		return err
	}
	if l.isCacheable() {
		made := &cachedPlan{l, r.plan.withoutArgs(), r.cage}
		made.cage.Programs = nil
		r.jail.memos.storePlan(s, made)
	}
	return nil
}

// jobPath returns the search path of a job.
func jobPath(job bailey.Job) string {
	if job.Wall != nil && job.Wall.Path != "" {
		return job.Wall.Path
	}
	return searchPath
}

// makePlanKey returns everything on which the plan depends besides the layout.
func (r *run) makePlanKey(job bailey.Job, t *tool, dir string) planKey {
	s := planKey{command: t.run[0], dir: dir, lent: strings.Join(slices.Sorted(slices.Values(job.EnvNames)), "\x00"),
		limits: job.Limits,
		bounds: r.jail.holder.boundsFor(job.Limits), tty: job.TTY, wall: job.Wall != nil}
	var names strings.Builder
	for _, v := range r.env {
		name, _, _ := strings.Cut(v, "=")
		names.WriteString(name)
		names.WriteByte(0)
	}
	s.env = names.String()
	for i, resource := range boundedResources {
		s.ceilings[i] = ownCeiling(resource)
	}
	return s
}

// toolStep returns the step that starts or becomes the tool, with the program, its arguments and its environment.
func toolStep(op uint8, data uint64, tty bool, argc int, words []string) step {
	numbers := []uint64{uint64(argc), data}
	if tty {
		numbers = append(numbers, 1)
	}
	return step{inside.Step{Op: op, N: numbers, S: words}, "env-listed"}
}

// completePlan adds the bounds and the step that starts the tool, and describes the cage.
func (r *run) completePlan(job bailey.Job, op uint8, words []string) error {
	r.plan.bounds = r.jail.holder.boundsFor(job.Limits)
	r.plan.lent = slices.Sorted(slices.Values(job.EnvNames))
	r.plan.steps = append(r.plan.steps, toolStep(op, r.plan.dataLimit(job.Limits), job.TTY, r.argc, words))
	if n := r.plan.countDescriptors(); n > maxDonations {
		return bailey.Unavailable.Errorf("name fewer paths; or install the tool and its libraries as root, which makes copies unnecessary",
			"a jail can have %d path inputs and copies of files, but this call has %d", maxDonations, n)
	}
	r.plan.warm = job.Wall == nil && isWarmable(r.plan)
	text, err := r.plan.checkedText()
	if err != nil {
		return err
	}
	r.cage.Enforced, r.cage.Layers = true, r.plan.layerNames()
	r.cage.PlanDigest, r.cage.Plan, r.cage.PlanLayers = textDigest(text), text, r.plan.lineLayers()
	r.cage.Absent = slices.Clip(append(r.cage.Absent, r.plan.bounds.absentLayers()...))
	r.cage.Lacks = slices.Clip(append(r.cage.Lacks, r.plan.bounds.protectionGaps()...))
	if pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern"); err == nil &&
		isDumpExposed(string(pattern), r.plan.ceiling(unix.RLIMIT_CORE)) {
		r.cage.Lacks = append(r.cage.Lacks, "rlimits: a crash reaches what core_pattern names")
	}
	if r.jail.root && len(r.jail.uids.used) == 0 {
		r.cage.Lacks = append(r.cage.Lacks, "userns: a user of its own for each cage")
	}
	r.recordPrograms(r.cage.Programs)
	return nil
}

// recordPrograms records the programs that may be executed, the tool first.
func (r *run) recordPrograms(programs []bailey.Program) {
	r.cage.Programs, r.cage.Binary, r.cage.BinaryDigest = programs, programs[0].Path, programs[0].SHA256
}

// buildLayout lays out the files of the cage: the tool, its helpers and data, the places, and the masks over them.
func (r *run) buildLayout(job bailey.Job, t *tool) (*layout, error) {
	l := newLayout()
	l.proc, l.lent = job.NeedsProc, slices.Sorted(slices.Values(job.FileNames))
	l.masks = r.jail.resolvedMasks(job)
	l.addRootSymlinks()
	if err := l.addDevices(); err != nil {
		return nil, err
	}
	if job.TTY {
		// the kernel resolves it by session: the cage's own terminal, or none
		if err := l.addDevice("tty", 5, 0); err != nil {
			return nil, err
		}
	}
	if r.lesser == "" {
		if err := l.coverProc(); err != nil {
			return nil, err
		}
	}
	if err := r.addNetwork(l, job.Network); err != nil {
		return nil, err
	}
	if err := r.pinTool(job, t); err != nil {
		return nil, err
	}
	l.addTool(t, false)
	if err := r.addHelpers(l, job); err != nil {
		return nil, err
	}
	if err := r.addToolLibs(l, job, t); err != nil {
		return nil, err
	}
	for _, path := range job.Read {
		if err := l.addReadPath(path); err != nil {
			return nil, err
		}
	}
	for _, p := range job.Places {
		if p.Frozen != nil {
			if err := r.bindFrozen(l, p); err != nil {
				return nil, err
			}
			continue
		}
		file, err := duplicateFile(p.File)
		if err != nil {
			return nil, bailey.Internal.Wrap(err, p.Path+" has no open descriptor", "")
		}
		if old := r.places[p.Path]; old != nil {
			old.Close()
		}
		r.places[p.Path] = file
		if err := l.bindPlace(p, file); err != nil {
			return nil, err
		}
	}
	if err := l.checkFrozenPlaces(); err != nil {
		return nil, err
	}
	if err := r.addAgentSandbox(l, job.Wall); err != nil {
		return nil, err
	}
	if err := r.openUnreachable(l); err != nil {
		return nil, err
	}
	if r.lesser != "" {
		if len(job.Hide) > 0 {
			return nil, bailey.Unavailable.New("no jail: layer masks: "+job.Hide[0]+" cannot be hidden without namespaces",
				"use a host with namespaces: "+r.jail.lesser)
		}
		return l, l.checkEnforceable(r.jail)
	}
	var err error
	if r.absent, err = l.hidePaths(job.Hide); err != nil {
		return nil, err
	}
	return l, l.coverMasks()
}

// resolvedMasks returns the configured masks and the paths to which their symlinks lead now. A cage that shows only the tool's
// own files needs no masks.
func (j *Jail) resolvedMasks(job bailey.Job) []string {
	if len(job.Places)+len(job.Read) == 0 && job.Wall == nil {
		return nil
	}
	masks := slices.Clone(j.mask)
	for _, m := range j.mask {
		if real, err := realPath(m); err == nil && real != m {
			masks = append(masks, real)
		}
	}
	slices.Sort(masks)
	return slices.Compact(masks)
}

// checkWorkdir returns the directory in which the tool starts. The cage must contain it.
func (l *layout) checkWorkdir(dir string) (string, error) {
	if dir == "" {
		return homeDir, nil
	}
	if filepath.IsAbs(dir) && filepath.Clean(dir) == dir {
		if b, ok := l.binds[dir]; ok && b.dir {
			return dir, nil
		}
		if b, ok := l.bindAbove(dir); (ok && b.dir) || dir == homeDir || dir == tmpDir {
			return dir, nil
		}
	}
	return "", bailey.Invalid.Errorf("it must be one of the call's path inputs, or lie below one",
		"working directory %q is not in the jail", dir)
}

// host holds what a plan depends on besides its job.
type host struct {
	donate   bool // the gateway is root and mounts the places itself
	landlock int  // Landlock ABI of the kernel, 0 without Landlock
	ceiling  func(resource int) uint64
	uid      int // uid of cages outside
}

func (j *Jail) hostInfo() host { return host{j.root, j.landlock, ownCeiling, j.hostUID} }

// composePlan orders the steps. The order is part of the protection: see the package comment.
func composePlan(l *layout, h host, limits bailey.Limits, dir string) *plan {
	p := &plan{ceiling: h.ceiling}
	p.addStep("cgroupns", inside.Unshare, []uint64{unix.CLONE_NEWCGROUP}) // its root is the group into which PID 1 was put
	p.addStep("init-guarded", inside.Undump, nil)
	p.addStep("init-guarded", inside.Signals, nil)
	p.addStep("root-readonly", inside.Umask, []uint64{0})
	p.addStep("mountns", inside.Private, nil)
	if l.net != nil {
		p.addStep("netns", inside.Loopback, nil)
	}
	l.emitSteps(p, h.donate, limits)
	p.addStep("root-readonly", inside.Pivot, nil)
	p.addStep("utsns", inside.Host, nil, userName)
	p.addStep("keyring", inside.Keyring, nil)
	p.addAllLimits(limits)
	p.addStep("fds-closed", inside.Descriptors, nil)
	p.addStep("", inside.Umask, []uint64{0o022})
	p.addStep("", inside.Chdir, nil, dir)
	p.addStep("caps-none", inside.Bounding, nil)
	p.addStep("caps-none", inside.Securebits, []uint64{securebits})
	p.addStep("caps-none", inside.Caps, nil)
	p.addStep("no-new-privs", inside.NoNewPrivs, nil)
	l.addLandlockSteps(p, h.landlock)
	p.addStep("seccomp", inside.Filter,
		filterProgram(currentArch(),
			profile{Helper: true, Inet: l.canUseInet(), Unix: l.canUseUnix(), Watches: l.wall != nil}))
	p.addStep("seccomp", inside.Narrow, narrowProgram(currentArch()))
	return p
}

// securebits: root is not special, a change of ids changes no capabilities, none can be kept or made ambient; all
// locked (capabilities(7)).
const securebits = 1<<0 | 1<<1 | // NOROOT
	1<<2 | 1<<3 | // NO_SETUID_FIXUP
	1<<5 | // KEEP_CAPS is off
	1<<6 | 1<<7 // NO_CAP_AMBIENT_RAISE

// shownOfProc lists the entries that a cage's own /proc shows beside its processes, such as numbers by which programs
// size themselves. Everything else there tells of the host's kernel, hardware and keys (kcore, kallsyms, keys, cmdline,
// timer_list, bus, …): entries that are not listed here, including those that future kernels add, are covered.
var shownOfProc = []string{"self", "thread-self", "mounts", "net", "sys",
	"cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version", "vmstat"}

// coverProc covers the other entries of /proc, if the cage has one.
func (l *layout) coverProc() error {
	if !l.proc {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return layerUnavailable("proc-private", err)
	}
	null := l.binds["/dev/null"]
	for _, e := range entries {
		name := e.Name()
		if name[0] >= '0' && name[0] <= '9' || slices.Contains(shownOfProc, name) || e.Type()&os.ModeSymlink != 0 {
			continue
		}
		b := bind{source: "/dev/null", target: "/proc/" + name, layer: "proc-private", dev: null.dev, ino: null.ino,
			attrs: readOnly | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
		if e.IsDir() {
			b.source, b.dir, b.dev, b.ino, l.empty = emptyDir[1:], true, 0, 0, true
			b.attrs |= unix.MOUNT_ATTR_NODEV
		}
		l.binds[b.target] = b
	}
	return nil
}

// A sketch holds everything besides the layout on which a plan depends. If both are the same as last time, so is the
// plan. The layout itself is made again for each call, with all its checks.
type planKey struct {
	command, dir string
	env          string // names only
	lent         string
	limits       bailey.Limits
	ceilings     [len(boundedResources)]uint64
	bounds       bounds
	tty, wall    bool
}

// A memo is the plan that was made from a sketch and a layout. It is immutable.
type cachedPlan struct {
	layout *layout
	plan   *plan
	cage   bailey.Cage // without programs
}

// planCache is a cache of plans.
type planCache struct {
	mu   sync.Mutex
	seen map[planKey]*cachedPlan // guarded by mu
}

const maxMemos = 128

func (m *planCache) findPlan(s planKey, l *layout) *cachedPlan {
	m.mu.Lock()
	found := m.seen[s]
	m.mu.Unlock()
	if found == nil || !l.isCacheable() || !found.layout.hasSameSteps(l) {
		return nil
	}
	return found
}

func (m *planCache) storePlan(s planKey, made *cachedPlan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen == nil || len(m.seen) >= maxMemos {
		m.seen = map[planKey]*cachedPlan{}
	}
	m.seen[s] = made
}

// isCacheable reports whether the layout and a sketch hold everything on which the plan depends. That is not so for a
// network, or for an agent jail with more than trees.
func (l *layout) isCacheable() bool {
	var more bailey.Wall
	if l.wall != nil {
		more = *l.wall
	}
	more.Trees = nil // trees are binds
	return l.net == nil && reflect.ValueOf(more).IsZero()
}

// hasSameSteps reports whether two layouts result in the same steps, whatever descriptors their places have.
func (l *layout) hasSameSteps(o *layout) bool {
	return l.proc == o.proc && l.empty == o.empty && slices.Equal(l.masks, o.masks) && slices.Equal(l.lent, o.lent) &&
		maps.Equal(l.links, o.links) &&
		maps.Equal(l.files, o.files) && maps.EqualFunc(l.binds, o.binds, bind.isSameBind)
}

func (b bind) isSameBind(o bind) bool {
	if (b.place == nil) != (o.place == nil) || (b.copy == nil) != (o.copy == nil) || b.copy != nil &&
		*b.copy != *o.copy {
		return false
	}
	if (b.frozen == nil) != (o.frozen == nil) || b.frozen != nil && b.frozen.Size != o.frozen.Size {
		return false
	}
	b.place, b.copy, b.frozen, o.place, o.copy, o.frozen = nil, nil, nil, nil, nil, nil
	return b == o
}

// planWithExec returns the plan of a memo with the exec step of one call.
func (m *cachedPlan) planWithExec(exec step) *plan {
	p := *m.plan
	steps := make([]step, len(p.steps)) // append would reserve twice the room, for as long as the call waits
	copy(steps, p.steps)
	steps[len(steps)-1] = exec
	p.steps = steps
	return &p
}

// withoutArgs returns the plan without the arguments and environment of the call for which it was made.
func (p *plan) withoutArgs() *plan {
	q := *p
	q.steps = slices.Clone(p.steps)
	n := len(q.steps) - 1
	q.steps[n] = step{inside.Step{Op: q.steps[n].Op}, q.steps[n].layer}
	return &q
}
