//go:build linux

package jail

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// sample returns a layout with one entry of each kind, on an imaginary host.
func sample() *layout {
	l := newLayout()
	l.proc = true
	l.links["/bin"] = "usr/bin"
	l.addTool(&tool{files: []toolFile{{path: "/usr/bin/git", id: ident{dev: unix.Mkdev(254, 1), ino: 11}, use: executable},
		{path: "/home/u/bin/tool", id: ident{ino: 13, size: 100_000}, use: script, digest: "5c41", copied: true},
		{path: "/home/u/lib/a.so", id: ident{ino: 14, size: 1}, digest: "11b2", copied: true},
		{path: "/usr/bin/script", id: ident{dev: unix.Mkdev(254, 1), ino: 15}, use: script, digest: "0a33"}},
		data: []toolFile{{path: "/etc/ld.so.cache", id: ident{dev: unix.Mkdev(254, 1), ino: 12}}}}, false)
	l.binds["/dev/null"] = bind{source: "/dev/null", target: "/dev/null", dev: 6, ino: 3, layer: "dev-private", device: true,
		attrs: readOnly | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	l.binds["/srv/repo"] = bind{source: "/srv/repo", target: "/srv/repo", dev: unix.Mkdev(8, 2), ino: 7, attrs: inert, dir: true,
		layer: "binds-noexec", place: os.Stdin, uid: 501, gid: 20}
	l.binds["/srv/repo/.ssh"] = bind{source: emptyDir[1:], target: "/srv/repo/.ssh", attrs: readOnly | inert, dir: true, layer: "masks"}
	l.binds["/tmp/in put"] = bind{source: "/tmp/in put", target: "/tmp/in put", dev: 1, ino: 9, attrs: readOnly | inert, layer: "binds-noexec"}
	l.empty = true
	return l
}

func sampleHost(donate bool) host {
	return host{donate, 6, func(r int) uint64 {
		if r == unix.RLIMIT_NOFILE {
			return 512
		}
		return 1 << 40
	}, DefaultHostUID}
}

var samplePlanLimits = bailey.Limits{Tasks: 10}

func samplePlan(donate bool) *plan {
	p := composePlan(sample(), sampleHost(donate), samplePlanLimits, "/srv/repo")
	samePlan(p)
	return p
}

// samePlan completes a plan so that it is the same on every machine.
func samePlan(p *plan) {
	for i := range p.steps {
		if p.steps[i].Op == inside.Filter {
			p.steps[i].N = filterProgram(architectures[0], profile{Helper: true})
		}
		if p.steps[i].Op == inside.Narrow {
			p.steps[i].N = narrowProgram(architectures[0])
		}
	}
	p.bounds = bounds{layer: layerCgroup, memory: 512 << 20, tasks: 10 + ownTasks, weight: usualWeight}
	p.lent = []string{"TOKEN"}
	p.addStep("env-listed", inside.Exec, []uint64{2, 512 << 20}, "/usr/bin/git", "git", "a \"b\"\n", "HOME=/home/bailey")
}

func TestGoldenPlan(t *testing.T) {
	got := samplePlan(false).String() + "\n" + samplePlan(true).String()
	if *update {
		if err := os.WriteFile("testdata/plan.golden", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/plan.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the plan changed; if that is meant, run with -update and raise planVersion\n%s", got)
	}
}

// TestLinksBesideLentFiles checks that the symlinks of a place are not followed if the call is lent a file, and are otherwise.
func TestLinksBesideLentFiles(t *testing.T) {
	for _, lent := range [][]string{nil, {"TOKEN"}} {
		for _, donate := range []bool{false, true} {
			l := sample()
			l.lent = lent
			for _, s := range composePlan(l, sampleHost(donate), samplePlanLimits, "/srv/repo").steps {
				at := 2
				switch s.Op {
				case inside.Donated:
					at = 3
				case inside.Bind:
				default:
					continue
				}
				stays := s.N[at]&unix.MOUNT_ATTR_NOSYMFOLLOW != 0
				if want := len(lent) > 0 && s.S[1] == "srv/repo"; stays != want {
					t.Errorf("lent %v, %d %v: nosymfollow is %v", lent, s.Op, s.S, stays)
				}
			}
		}
	}
}

func TestDigest(t *testing.T) {
	p := samplePlan(true)
	was := textDigest(p.String())
	for i := range p.steps {
		if p.steps[i].Op == inside.Donated || p.steps[i].Op == inside.Copy {
			p.steps[i].N = slices.Clone(p.steps[i].N)
			p.steps[i].N[0] = 17
		}
	}
	if textDigest(p.String()) != was {
		t.Error("the digest depends on a descriptor's number")
	}
	for i := range p.steps {
		changed := samplePlan(true)
		changed.steps = slices.Delete(changed.steps, i, i+1)
		if textDigest(changed.String()) == was {
			t.Errorf("the digest does not depend on step %d", i)
		}
	}
	p.bounds.memory++
	if textDigest(p.String()) == was {
		t.Error("the digest does not depend on the memory the cage may use")
	}
	p = samplePlan(true)
	p.lent = nil
	if textDigest(p.String()) == was {
		t.Error("the digest does not depend on what will be lent")
	}
}

// TestPlanKeepsNoValue checks that the text has the names of environment variables, but no values or arguments.
func TestPlanKeepsNoValue(t *testing.T) {
	exec := func(words ...string) string {
		return step{inside.Step{Op: inside.Exec, N: []uint64{2, 512 << 20}, S: append([]string{"/usr/bin/git"}, words...)}, ""}.formatLine()
	}
	got := exec("git", "hunter2", "A=hunter2", "B=hunter2=x")
	if want := `exec "/usr/bin/git" memory 536870912 env "A" "B"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got == exec("git", "hunter2", "A=hunter2", "C=hunter2") {
		t.Error("the text does not depend on the names of the environment")
	}
}

// TestPlanIsBounded checks that planning fails if the text, encoded as JSON, is too long for the ledger.
func TestPlanIsBounded(t *testing.T) {
	fits := func(word string) (string, error) {
		p := &plan{}
		p.addStep("", inside.Chdir, nil, word)
		return p.checkedText()
	}
	encoded := func(text string) int {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.Encode(text)
		return b.Len() - len("\"\"\n")
	}
	for _, unit := range []string{"a", `"`, `\`, "\n", "\u2028", "é", "<", "\x7f", "\xff"} {
		longest := 0
		for n := 1; n <= bailey.PlanCap; n *= 2 {
			text, err := fits(strings.Repeat(unit, n))
			if err == nil {
				longest = n
			} else if !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
				t.Errorf("%d of %q: %v", n, unit, err)
			}
			if err == nil && encoded(text) > bailey.PlanCap {
				t.Errorf("%d of %q take %d bytes", n, unit, encoded(text))
			}
		}
		if longest < 1<<12 {
			t.Errorf("%d of %q are too many", 2*longest, unit)
		}
	}
}

// TestDeepPlacesAreRefused checks that a place that is too deep is refused, since the plan has the full path of each
// directory above it.
func TestDeepPlacesAreRefused(t *testing.T) {
	deep := t.TempDir() + strings.Repeat("/0123456789abcdef", 90)
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := newJail(t, Config{}).Plan(t.Context(), bailey.Job{Command: probe, Places: []bailey.Place{place(t, deep, false)}})
	if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), "ledger") {
		t.Errorf("%v", err)
	}
}

// TestLinesHaveTheirLayers checks that each line of the text has its layer, and each layer, except the clone's, a line.
func TestLinesHaveTheirLayers(t *testing.T) {
	p := samplePlan(true)
	layers := p.lineLayers()
	if n := strings.Count(p.String(), "\n"); n != len(layers) {
		t.Fatalf("%d lines, %d layers", n, len(layers))
	}
	for _, name := range p.layerNames() {
		if !slices.Contains(layers, name) && !slices.Contains(cloneLayers, name) {
			t.Errorf("no line of %s", name)
		}
	}
	for i, line := range strings.Split(strings.TrimSuffix(p.String(), "\n"), "\n") {
		if strings.HasPrefix(line, "rlimit ") != (layers[i] == "rlimits") {
			t.Errorf("%q is of %q", line, layers[i])
		}
	}
}

func TestLayersAreThoseApplied(t *testing.T) {
	layers := samplePlan(false).layerNames()
	for _, name := range []string{"userns", "mountns", "pidns", "netns", "ipcns", "utsns", "cgroupns", "cgroup", "session", "init-guarded", "root-readonly",
		"binds-noexec", "masks", "tmp-private", "dev-private", "proc-private", "keyring", "rlimits", "fds-closed", "caps-none", "no-new-privs", "landlock", "env-listed"} {
		if i := slices.Index(layers, name); i < 0 {
			t.Errorf("layer %s is missing", name)
		} else if slices.Contains(layers[i+1:], name) {
			t.Errorf("layer %s is named twice", name)
		}
	}
	bare := composePlan(newLayout(), host{ceiling: ownCeiling}, bailey.Limits{}, homeDir).layerNames()
	for _, name := range []string{"proc-private", "masks", "binds-noexec", "landlock", "cgroup", "watcher"} {
		if slices.Contains(bare, name) {
			t.Errorf("layer %s is named and nothing of it applied", name)
		}
	}
}

func TestEnviron(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want string // the part after the constants, or the kind of the error
	}{
		{nil, ""},
		{[]string{"A=1", "B=", "A=2"}, "B=,A=2"},
		{[]string{"_x9=a=b"}, "_x9=a=b"},
		{[]string{"PATH=/evil"}, "invalid"}, {[]string{"HOME=/"}, "invalid"}, {[]string{"USER=root"}, "invalid"}, {[]string{"TMPDIR=/x"}, "invalid"},
		{[]string{"A"}, "invalid"}, {[]string{"=x"}, "invalid"}, {[]string{"9A=x"}, "invalid"}, {[]string{"A-B=x"}, "invalid"}, {[]string{"Ä=x"}, "invalid"},
		{[]string{"A=\x00"}, "invalid"},
	} {
		env, err := buildEnv(c.in)
		got := strings.Join(env[min(len(env), len(baseEnv)):], ",")
		if err != nil {
			got = string(bailey.KindOf(err))
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	if env, _ := buildEnv([]string{"TZ=Europe/Berlin"}); slices.Contains(env, "TZ=UTC") || !slices.Contains(env, "TZ=Europe/Berlin") {
		t.Errorf("a declared TZ: %q", env)
	}
	if _, err := cageRules.addLent(baseEnv[:], []string{"TOKEN"}, []string{"OTHER=hunter2"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("an unplanned loan: %v", err)
	}
	if _, err := cageRules.addLent(baseEnv[:], []string{"TOKEN"}, []string{"hunter2"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a loan without a name: %v", err)
	}
	if env, err := cageRules.addLent(baseEnv[:], []string{"TOKEN"}, []string{"TOKEN=x"}); err != nil || env[len(env)-1] != "TOKEN=x" || len(baseEnv) != 6 {
		t.Errorf("a loan: %q, %v", env, err)
	}
}

func TestLentValuesReachOnlyTheTool(t *testing.T) {
	j := newJail(t, Config{})
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"sees"}, EnvNames: []string{"TOKEN"}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out strings.Builder
	if _, err := r.Start(t.Context(), bailey.Lent{Env: []string{"TOKEN=hunter2"}}, bailey.Streams{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "TOKEN=hunter2") {
		t.Error("what was lent did not arrive")
	}
	if strings.Contains(r.(*run).plan.String(), "hunter2") {
		t.Error("what was lent is in the plan")
	}
}
