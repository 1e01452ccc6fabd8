//go:build linux

package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// lesserJail returns a jail that treats the host as one without namespaces. Its cages' uid is in no other test.
func lesserJail(t testing.TB, cfg Config) *Jail {
	t.Helper()
	enough(t)
	if cfg.HostUID == 0 {
		cfg.HostUID = DefaultHostUID + 1 + os.Getpid()%1000
	}
	j := plainJail(t, cfg)
	rootsProbe(t, j)
	j.chosen, j.lesser = true, "this host is taken for one without namespaces"
	return j
}

// enough skips the test if the kernel lacks the parts of the lesser cage.
func enough(t testing.TB) {
	t.Helper()
	ktest.Require(t, "landlock", "seccomp")
	if abi := landlockABI(); abi < leastEdition {
		ktest.Missing(t, "landlock-edition", fmt.Errorf("Landlock's edition is %d, and the cage takes %d", abi, leastEdition))
	}
}

// rootsProbe skips the test if an ordinary user has built the probe, since this cage runs no copies.
func rootsProbe(t testing.TB, j *Jail) {
	t.Helper()
	if usersProbe(j) {
		ktest.Missing(t, "root", errors.New("the probe is not root's"))
	}
}

// usersProbe tells whether cages get a copy of the probe, because an ordinary user has built it and can write it.
func usersProbe(j *Jail) bool {
	tool, err := j.tools.findTool(probe)
	return err != nil || slices.ContainsFunc(tool.files, func(f toolFile) bool { return f.copied })
}

// open creates a directory that the cage's user can reach and, if write is true, write.
func (j *Jail) open(t testing.TB, write bool) string {
	t.Helper()
	dir := t.TempDir()
	for p := dir; p != os.TempDir() && p != "/"; p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	if write && j.root {
		if err := os.Chown(dir, j.hostUID, j.hostGID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shown opens a path as the gate does. It is not mounted, so any file system works.
func shown(t testing.TB, path string, write bool) []bailey.Place {
	t.Helper()
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return []bailey.Place{{Input: "path", Path: path, File: f, Write: write}}
}

func TestLesserByItsEffects(t *testing.T) {
	j := lesserJail(t, Config{})
	t.Setenv("AWS_SECRET_ACCESS_KEY", "outside")
	open, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	unix.FcntlInt(open.Fd(), unix.F_SETFD, 0) // a descriptor without close-on-exec
	r := ask(t, j, bailey.Job{Env: []string{"A_NAME=a value"}}, "sees").must(t)
	var s sight
	if err := json.Unmarshal([]byte(r.out), &s); err != nil {
		t.Fatalf("%v in %q, %q", err, r.out, r.log)
	}
	want := func(what string, got, want any) {
		t.Helper()
		if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
			t.Errorf("%s: %s, want %s", what, g, w)
		}
	}
	want("ids", []int{s.UID, s.EUID, s.GID}, []int{j.hostUID, j.hostUID, j.hostGID})
	want("capabilities", s.Caps, [6]uint32{})
	want("no_new_privs", s.NNP, 1)
	want("descriptors", s.FDs, []int{0, 1, 2})
	want("ignored signals", len(s.Ignored), 0)
	want("tty", s.TTY, false)
	want("session leader", s.Leader, true)
	want("umask", s.Umask, 0o022)
	want("what can be listed", [][]string{s.Root, s.Dev, s.Etc, s.Tmp}, [][]string{{}, {}, {}, {}})
	want("core limit", s.Limits["core"].Max, 1)
	want("file limit", s.Limits["nofile"].Max, min(defaultFiles, ownCeiling(unix.RLIMIT_NOFILE)))
	if filepath.Dir(s.Cwd) != j.nests {
		t.Errorf("cwd: %s, want a directory in %s", s.Cwd, j.nests)
	}
	want("environment", s.Env, append(withHomeDir(append(slices.Clone(baseEnv[:]), "A_NAME=a value"), s.Cwd), []string{}...))
	if j.root {
		want("groups", s.Groups, 0)
		want("bounding set", s.Bounding, 0)
		want("securebits", s.Securebits, securebits)
	}
	if exists(s.Cwd) {
		t.Error("the private directory outlived its call")
	}
	cage := planCage(t, j, bailey.Job{Command: probe})
	if cage.Kind != "landlock" || !cage.Enforced || cage.Lesser != j.lesser || !slices.Equal(cage.Absent, j.holder.boundsFor(bailey.Limits{}).absentLayers()) {
		t.Errorf("the cage says of itself %+v", cage)
	}
}

func TestLesserWalls(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	home, work := j.open(t, false), j.open(t, true)
	note, other := filepath.Join(work, "note"), filepath.Join(home, "id_ed25519")
	for _, f := range []string{note, other} {
		if err := os.WriteFile(f, []byte("text"), 0o666); err != nil {
			t.Fatal(err)
		}
		os.Chmod(f, 0o666) // its mode allows everything: only the cage denies access
	}
	copyFile(t, "/bin/true", filepath.Join(work, "true"))
	os.Symlink(other, filepath.Join(work, "shortcut"))
	fifo := filepath.Join(work, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	os.Chmod(fifo, 0o666)
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract, err := net.Listen("unix", fmt.Sprintf("@jail-lesser-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	datagrams, err := net.ListenPacket("unixgram", filepath.Join(work, "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()

	ro, rw := shown(t, work, false), shown(t, work, true)
	helped := bailey.Job{Places: ro, Exec: []string{"/bin/true"}}
	const no = "permission denied"
	for _, c := range []struct {
		name string
		job  bailey.Job
		args []string
		want string
	}{
		{"reads what it was given", bailey.Job{Places: ro}, []string{"read", note}, "ok"},
		{"lists what it was given", bailey.Job{Places: ro}, []string{"list", work}, "ok"},
		{"reads nothing else", bailey.Job{Places: ro}, []string{"read", other}, no},
		{"nor through a symlink", bailey.Job{Places: ro}, []string{"read", filepath.Join(work, "shortcut")}, no},
		{"nor upwards", bailey.Job{Places: ro}, []string{"read", work + "/../001/id_ed25519"}, no},
		{"lists nothing else", bailey.Job{Places: ro}, []string{"list", filepath.Dir(work)}, no},
		{"reads no host file", bailey.Job{}, []string{"read", "/etc/passwd"}, no},
		{"reads a declared file", bailey.Job{Read: []string{"/etc/passwd"}}, []string{"read", "/etc/passwd"}, "ok"},
		{"has no proc", bailey.Job{}, []string{"list", "/proc"}, no},
		{"not even its own", bailey.Job{}, []string{"read", "/proc/self/status"}, no},
		{"has no sys", bailey.Job{}, []string{"list", "/sys"}, no},
		{"writes nothing read-only", bailey.Job{Places: ro}, []string{"write", note}, no},
		{"makes nothing read-only", bailey.Job{Places: ro}, []string{"write", filepath.Join(work, "none")}, no},
		{"writes no pipe read-only", bailey.Job{Places: ro}, []string{"write", fifo}, no},
		{"writes what it may", bailey.Job{Places: rw}, []string{"write", filepath.Join(work, "new")}, "ok"},
		{"writes one file", bailey.Job{Places: shown(t, note, true)}, []string{"write", note}, "ok"},
		{"and not the one beside", bailey.Job{Places: shown(t, note, true)}, []string{"write", filepath.Join(work, "new")}, no},
		{"writes no tmp", bailey.Job{}, []string{"write", "/tmp/bailey-lesser-x"}, no},
		{"writes no shm", bailey.Job{}, []string{"write", "/dev/shm/bailey-lesser-x"}, no},
		{"writes no tool", bailey.Job{}, []string{"write", probe}, no},
		{"writes to null", bailey.Job{}, []string{"write", "/dev/null"}, "ok"},
		{"opens no terminal", bailey.Job{}, []string{"read", "/dev/ptmx"}, no},
		{"runs nothing from the workspace", helped, []string{"exec", filepath.Join(work, "true")}, no},
		{"nor another program of the host", helped, []string{"exec", "/bin/sh"}, no},
		{"runs declared helpers", helped, []string{"exec", "/bin/true"}, ""},
		{"without helpers executes once", bailey.Job{Places: ro}, []string{"exec", probe}, "function not implemented"},
		{"reaches no network", bailey.Job{}, []string{"dial", "tcp", l.Addr().String()}, no},
		{"reaches no abstract socket", bailey.Job{}, []string{"dial", "unix", abstract.Addr().String()}, no},
		{"turns no datagram pair to a socket in a place", bailey.Job{Places: ro}, []string{"pair", datagrams.LocalAddr().String()}, no},
		{"keeps stream pairs", bailey.Job{}, []string{"pair", ""}, "ok"},
		{"mounts nothing", bailey.Job{}, []string{"mount", work}, "operation not permitted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := ask(t, j, c.job, c.args...).must(t); r.first() != c.want {
				t.Errorf("%v: %q, want %q (%s)", c.args, r.first(), c.want, r.log)
			}
		})
	}
	if b, _ := os.ReadFile(filepath.Join(work, "new")); string(b) != "written inside" {
		t.Errorf("what was written in the cage is %q outside", b)
	}
	if b, _ := os.ReadFile(other); string(b) != "text" {
		t.Errorf("the key became %q", b)
	}
}

// TestLesserLoader tests the pinned loader, which would execute any file that it can read. Without helpers nothing must
// be executed; with helpers, the cage must report this gap.
func TestLesserLoader(t *testing.T) {
	ktest.Require(t, "/bin/sh", "/bin/true")
	j := lesserJail(t, Config{})
	work := j.open(t, false)
	copyFile(t, "/bin/true", filepath.Join(work, "true"))
	script := loaderOf(t) + " " + filepath.Join(work, "true") + " && echo it ran"
	for _, c := range []struct {
		helpers []string
		ran     bool
	}{{nil, false}, {[]string{"/bin/true"}, true}} {
		job := bailey.Job{Command: "/bin/sh", Args: []string{"-c", script}, Places: shown(t, work, false), Exec: c.helpers}
		r := ask(t, j, job).must(t)
		if got := strings.Contains(r.out, "it ran"); got != c.ran {
			t.Errorf("with helpers %v the loader ran a file of the workspace: %t (%s)", c.helpers, got, r.log)
		}
		if said := slices.Contains(planCage(t, j, job).Lacks, loaderOpen); said != c.ran {
			t.Errorf("with helpers %v the cage says of the loader: %t", c.helpers, said)
		}
	}
}

// TestLesserOutOfReach checks that no other process can be signalled, traced or read: the keeper, the gateway, or
// another of the same user.
func TestLesserOutOfReach(t *testing.T) {
	j := lesserJail(t, Config{})
	ktest.Require(t, "sleep")
	peer := exec.Command("sleep", "60")
	if j.root {
		peer.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(j.hostUID), Gid: uint32(j.hostGID)}}
	}
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { peer.Process.Kill(); peer.Wait() }()
	for name, pid := range map[string]string{"gateway": strconv.Itoa(os.Getpid()), "peer": strconv.Itoa(peer.Process.Pid), "keeper": "parent"} {
		if r := ask(t, j, bailey.Job{}, "signal", pid).must(t); r.first() != "operation not permitted" {
			t.Errorf("a signal to the %s: %q", name, r.first())
		}
		r := ask(t, j, bailey.Job{}, "trace", pid).must(t)
		if n := strings.Count(r.out, " false "); n != 9 || strings.Contains(r.out, " true ") {
			t.Errorf("of 9 attacks on the %s %d were refused:\n%s", name, n, r.out)
		}
	}
}

func TestLesserMetadata(t *testing.T) {
	j := lesserJail(t, Config{})
	work := j.open(t, true)
	note := filepath.Join(work, "note")
	if err := os.WriteFile(note, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j.root {
		os.Chown(note, j.hostUID, j.hostGID) // owned by the tool, so that file modes would allow all this
	}
	for _, places := range [][]bailey.Place{nil, shown(t, work, true)} {
		r := ask(t, j, bailey.Job{Places: places}, "meta", note).must(t)
		if n := strings.Count(r.out, " false "); n < 4 || strings.Contains(r.out, " true ") {
			t.Errorf("with %d places:\n%s", len(places), r.out)
		}
	}
	// Landlock has no right for this
	if r := ask(t, j, bailey.Job{}, "watch").must(t); r.first() != "operation not permitted" {
		t.Errorf("watching what changes in a directory: %q", r.first())
	}
	if r := ask(t, j, bailey.Job{}, "sysv").must(t); strings.Count(r.out, " false ") != 3 {
		t.Errorf("System V:\n%s", r.out)
	}
}

func TestLesserLimits(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	var n int
	job := bailey.Job{Limits: bailey.Limits{Tasks: 30}, Exec: []string{probe}}
	r := ask(t, j, job, "bomb").must(t)
	if fmt.Sscan(r.out, &n); n < 1 || n > 30+ownTasks {
		t.Errorf("%q children were started, want at most %d", r.out, 30+ownTasks)
	}
	small := bailey.Limits{MemoryBytes: 256 << 20}
	for _, c := range []struct {
		limits bailey.Limits
		mib    string
		fits   bool
	}{{small, "64", true}, {small, "300", false}, {bailey.Limits{}, "300", true}, {bailey.Limits{}, "600", false}} {
		if r := ask(t, j, bailey.Job{Limits: c.limits}, "eat", c.mib).must(t); (r.first() == "ok") != c.fits {
			t.Errorf("%s MiB under %+v: %s", c.mib, c.limits, r.out)
		}
	}
}

// TestLesserMemoryInAll checks that the memory limit covers the whole cage. The keeper may be killed first; even then
// nothing may remain.
func TestLesserMemoryInAll(t *testing.T) {
	ktest.Long(t)
	for _, layer := range []string{layerCgroup, layerWatcher} {
		t.Run(layer, func(t *testing.T) {
			j := lesserJail(t, Config{})
			if layer == layerWatcher {
				j.holder.asked, j.holder.why = true, errors.New("withheld")
			} else if _, err := j.holder.openCgroups(); err != nil {
				ktest.Missing(t, "cgroup", err)
			}
			job := bailey.Job{Exec: []string{probe}}
			if r := ask(t, j, job, "crowd", "4", "50", "own").must(t); r.first() != "all fit" || r.exit != (bailey.Exit{}) {
				t.Errorf("200 MiB: %+v", r)
			}
			r := ask(t, j, job, "crowd", "4", "200", "own").must(t)
			if r.exit.Code == 0 || r.exit.Over != "the tool used more than 512 MiB of memory in all" {
				t.Errorf("800 MiB: %+v", r)
			}
			if left := bearing(probe); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

func TestLesserRefuses(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "work", ".env")
	work := filepath.Dir(secret)
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	j := lesserJail(t, Config{Mask: []string{secret}})
	newNestsDir(t, j)
	for name, c := range map[string]struct {
		before func()
		job    bailey.Job
		words  string
	}{
		"proc":         {nil, bailey.Job{NeedsProc: true}, "proc-private"},
		"no mask yet":  {nil, bailey.Job{Places: shown(t, work, false)}, ""},
		"a mask":       {func() { os.WriteFile(secret, nil, 0o600) }, bailey.Job{Places: shown(t, work, false)}, secret},
		"nests":        {nil, bailey.Job{Places: shown(t, filepath.Dir(j.nests), false)}, "private directories"},
		"a mask, read": {nil, bailey.Job{Read: []string{secret}}, "masked"},
	} {
		os.Remove(secret)
		if c.before != nil {
			c.before()
		} else if name == "a mask, read" {
			os.WriteFile(secret, nil, 0o600)
		}
		c.job.Command = probe
		r, err := j.Plan(t.Context(), c.job)
		if err == nil {
			r.Close()
		}
		if (err == nil) != (c.words == "") || err != nil && (!strings.Contains(err.Error(), c.words) || bailey.HintOf(err) == "") {
			t.Errorf("%s: %v (%s), want %q", name, err, bailey.HintOf(err), c.words)
		}
	}
}

// TestLesserRunsNoCopies checks that a program that others than root can write is refused, since it would need a copy.
func TestLesserRunsNoCopies(t *testing.T) {
	j := lesserJail(t, Config{})
	mine := filepath.Join(j.open(t, false), "mine")
	copyFile(t, probe, mine)
	os.Chown(mine, stranger, strangers)
	for _, job := range []bailey.Job{{Command: mine}, {Command: probe, Exec: []string{mine}}} {
		if _, err := j.Plan(t.Context(), job); bailey.KindOf(err) != bailey.Denied || !strings.Contains(bailey.HintOf(err), "install the program and its directories as root") {
			t.Errorf("%+v: %v (%s)", job, err, bailey.HintOf(err))
		}
	}
}

// TestLesserUnreachable checks that a place is refused, not shown in part, if file modes deny it to the cage's user.
func TestLesserUnreachable(t *testing.T) {
	ktest.Require(t, "root")
	j := lesserJail(t, Config{})
	closed, open := t.TempDir(), j.open(t, false)
	os.Chmod(closed, 0o700)
	for _, c := range []struct {
		places []bailey.Place
		ok     bool
	}{{shown(t, closed, false), false}, {shown(t, open, false), true}, {shown(t, open, true), false}} {
		r := ask(t, j, bailey.Job{Places: c.places}, "exit", "0")
		if (r.err == nil) != c.ok || r.err != nil && (r.exit.Code != bailey.NeverRan || !strings.Contains(r.err.Error(), "cannot access")) {
			t.Errorf("%s, write %t: %+v", c.places[0].Path, c.places[0].Write, r)
		}
	}
}

// TestLesserEveryStepMatters is TestEveryStepMatters for the lesser cage.
func TestLesserEveryStepMatters(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	planned, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}, Places: shown(t, j.open(t, false), false)})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	whole := planned.(*run).plan
	for i := range whole.steps {
		broken := &plan{steps: append([]step(nil), whole.steps...), lesser: true, ceiling: whole.ceiling, bounds: whole.bounds}
		broken.steps[i].Op = 63 // an invalid operation
		r := &run{jail: j, plan: broken, timeout: probeTime, places: planned.(*run).places}
		exit, err := r.runInCage(t.Context(), whole.steps[len(whole.steps)-1].S, bailey.Streams{})
		if err == nil || exit.Code != -1 {
			t.Errorf("without step %d, %s: %+v, %v", i, whole.steps[i].formatLine(), exit, err)
		}
		if layer := whole.steps[i].layer; err != nil && !strings.Contains(err.Error(), layer) {
			t.Errorf("without step %d the error does not name layer %s: %v", i, layer, err)
		}
	}
}

// sampleLesser returns the plan of the sample layout, as far as the lesser cage can show it.
func sampleLesser(root, once bool) *plan {
	l := sample()
	delete(l.binds, "/srv/repo/.ssh")
	p := composeLesser(l, sampleHost(root), bailey.Limits{Tasks: 10}, map[bool]string{true: homeDir, false: "/srv/repo"}[once], once)
	for i := range p.steps { // must be the same on every machine
		switch p.steps[i].Op {
		case inside.Filter:
			p.steps[i].N = filterProgram(architectures[0], profile{Shared: true})
		case inside.Once:
			p.steps[i].N = execFilter(architectures[0])
		}
	}
	p.lent = []string{"TOKEN"}
	p.addStep("env-listed", inside.Become, []uint64{2, 512 << 20}, "/usr/bin/git", "git", "a \"b\"\n", "HOME=", "TMPDIR=")
	return p
}

func TestGoldenLesserPlan(t *testing.T) {
	got := sampleLesser(true, true).String() + "\n" + sampleLesser(false, false).String()
	if *update {
		if err := os.WriteFile("testdata/plan-landlock.golden", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/plan-landlock.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the plan changed; if that is meant, run with -update and raise planVersion\n%s", got)
	}
}

// TestLesserDigest checks that the digest depends on every step, but not on values known only at a call's start.
func TestLesserDigest(t *testing.T) {
	was := textDigest(sampleLesser(true, true).String())
	p := sampleLesser(true, true)
	for i := range p.steps {
		switch s := &p.steps[i]; s.Op {
		case inside.Grant, inside.Home, inside.Tasks:
			s.N = slices.Clone(s.N)
			s.N[0] = 17
		}
	}
	if textDigest(p.String()) != was {
		t.Error("the digest depends on a descriptor's number, or on how many tasks there are")
	}
	for i := range p.steps {
		changed := sampleLesser(true, true)
		changed.steps = slices.Delete(changed.steps, i, i+1)
		if textDigest(changed.String()) == was {
			t.Errorf("the digest does not depend on step %d", i)
		}
	}
}

// TestGrantsFitTheRuleset is TestRulesFitTheRuleset for grants. If the kernel has no scope for signals, the plan must
// have the filter that denies them.
func TestGrantsFitTheRuleset(t *testing.T) {
	for abi := 1; abi <= len(editions)+1; abi++ {
		r, _ := supportedRuleset(abi)
		h := sampleHost(true)
		h.landlock = abi
		for _, s := range composeLesser(sample(), h, bailey.Limits{}, homeDir, true).steps {
			if s.Op == inside.Grant && (s.N[3] == 0 || s.N[3]&^r.files != 0) {
				t.Errorf("ABI %d: %s", abi, s.formatLine())
			}
			if s.Op == inside.Filter && !slices.Equal(s.N, filterProgram(currentArch(), profile{Shared: true, NoSignals: abi < 6})) {
				t.Errorf("ABI %d: the filter is another one", abi)
			}
		}
	}
}
