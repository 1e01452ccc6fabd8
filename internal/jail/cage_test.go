//go:build linux

package jail

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// sight is the output of the probe's command sees.
type sight struct {
	UID, EUID, GID, Groups, PID int
	Leader, TTY                 bool
	Caps                        [6]uint32
	Bounding, NNP, Securebits   int
	Env, Argv                   []string
	FDs, Ignored                []int
	Root, Dev, Etc, Home, Tmp   []string
	Cwd, Host                   string
	Up, Umask                   int
	Limits                      map[string]struct{ Cur, Max uint64 }
}

func TestCageByItsEffects(t *testing.T) {
	j := newJail(t, Config{})
	t.Setenv("AWS_SECRET_ACCESS_KEY", "outside")
	t.Setenv("TMPDIR", os.TempDir())
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
	want("ids", []int{s.UID, s.EUID, s.GID}, []int{1000, 1000, 1000})
	want("capabilities", s.Caps, [6]uint32{})
	want("bounding set", s.Bounding, 0)
	want("no_new_privs", s.NNP, 1)
	want("securebits", s.Securebits, securebits)
	want("environment", s.Env, append(slices.Clone(baseEnv[:]), "A_NAME=a value"))
	want("argv[0]", s.Argv[0], probe)
	want("descriptors", s.FDs, []int{0, 1, 2})
	want("/dev", s.Dev, []string{"full", "null", "random", "urandom", "zero"})
	want("/etc", s.Etc, []string{"group", "passwd"})
	want("home", s.Home, []string{})
	want("cwd", s.Cwd, homeDir)
	want("host name", s.Host, "bailey")
	want("interfaces up", s.Up, 0)
	want("tty", s.TTY, false)
	want("session leader", s.Leader, true)
	want("umask", s.Umask, 0o022)
	want("core limit", s.Limits["core"].Max, 1)
	want("task limit", s.Limits["nproc"].Max, min(defaultTasks+ownTasks, ownCeiling(unix.RLIMIT_NPROC)))
	want("file limit", s.Limits["nofile"].Max, min(defaultFiles, ownCeiling(unix.RLIMIT_NOFILE)))
	for _, name := range s.Root {
		if !slices.Contains([]string{copyDir[1:], "bin", "dev", "etc", "home", "lib", "lib64", "sbin", "tmp", "usr"}, name) && !strings.HasPrefix(probe, "/"+name+"/") {
			t.Errorf("/%s is in the root", name)
		}
	}
	if os.Geteuid() == 0 && s.Groups != 0 {
		t.Errorf("%d supplementary groups of root's", s.Groups)
	}
	if s.PID == 1 {
		t.Error("the tool is PID 1, which ignores SIGTERM")
	}
}

// TestNoSignalIsIgnored simulates a gateway started with nohup, in its own process: Go cannot undo an ignored signal.
func TestNoSignalIsIgnored(t *testing.T) {
	ktest.Require(t, "userns", "netns")
	if ktest.RunInSubprocess(t, probeEnv+"="+probe) {
		return
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGPIPE, unix.SIGUSR1)
	r := ask(t, newJail(t, Config{}), bailey.Job{}, "sees").must(t)
	var s sight
	if err := json.Unmarshal([]byte(r.out), &s); err != nil || len(s.Ignored) > 0 {
		t.Errorf("the tool inherits ignored signals %v (%v)", s.Ignored, err)
	}
}

func TestWalls(t *testing.T) {
	ktest.Long(t)
	home := t.TempDir()
	secret, work := filepath.Join(home, ".ssh"), filepath.Join(home, "work")
	for _, d := range []string{secret, work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	key, note := filepath.Join(secret, "id_ed25519"), filepath.Join(work, "note")
	for _, f := range []string{key, note} {
		if err := os.WriteFile(f, []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, "/bin/true", filepath.Join(work, "true"))
	os.Symlink(key, filepath.Join(work, "shortcut"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract, err := net.Listen("unix", fmt.Sprintf("@jail-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	file, err := net.Listen("unix", filepath.Join(work, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	datagrams, err := net.ListenPacket("unixgram", filepath.Join(work, "d"))
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()

	j := newJail(t, Config{Mask: []string{secret}})
	ro, rw := []bailey.Place{place(t, work, false)}, []bailey.Place{place(t, work, true)}
	loader := bailey.Job{Places: rw, Exec: []string{"/bin/true"}}
	for _, c := range []struct {
		name string
		job  bailey.Job
		args []string
		want string
	}{
		{"reads what it was given", bailey.Job{Places: ro}, []string{"read", note}, "ok"},
		{"reads no private key", bailey.Job{Places: ro}, []string{"read", key}, "no such file or directory"},
		{"nor through a symlink", bailey.Job{Places: ro}, []string{"read", filepath.Join(work, "shortcut")}, "no such file or directory"},
		{"nor upwards", bailey.Job{Places: ro}, []string{"read", work + "/../.ssh/id_ed25519"}, "no such file or directory"},
		{"sees no host file", bailey.Job{}, []string{"read", "/etc/hostname"}, "no such file or directory"},
		{"has no proc", bailey.Job{}, []string{"list", "/proc"}, "no such file or directory"},
		{"writes nothing read-only", bailey.Job{Places: ro}, []string{"write", note}, "read-only file system"},
		{"writes what it may", bailey.Job{Places: rw}, []string{"write", filepath.Join(work, "new")}, "ok"},
		{"writes no root", bailey.Job{}, []string{"write", "/x"}, "read-only file system"},
		{"writes no etc", bailey.Job{}, []string{"write", "/etc/passwd"}, "read-only file system"},
		{"writes no tool", bailey.Job{}, []string{"write", probe}, "read-only file system"},
		{"writes its tmp", bailey.Job{}, []string{"write", "/tmp/x"}, "ok"},
		{"writes its home", bailey.Job{}, []string{"write", homeDir + "/x"}, "ok"},
		{"writes to null", bailey.Job{}, []string{"write", "/dev/null"}, "ok"},
		{"runs nothing from the workspace", loader, []string{"exec", filepath.Join(work, "true")}, "permission denied"},
		{"mounts nothing", bailey.Job{}, []string{"mount", "/tmp"}, "operation not permitted"},
		{"keeps its host name", bailey.Job{}, []string{"sethost"}, "operation not permitted"},
		{"reaches no network", bailey.Job{}, []string{"dial", "tcp", l.Addr().String()}, "permission denied"},
		{"reaches no abstract socket", bailey.Job{}, []string{"dial", "unix", abstract.Addr().String()}, "permission denied"},
		{"turns no datagram pair to a socket in a place", bailey.Job{Places: ro}, []string{"pair", datagrams.LocalAddr().String()}, "permission denied"},
		{"keeps stream pairs", bailey.Job{}, []string{"pair", ""}, "ok"},
		{"reaches no socket in a place", bailey.Job{Places: ro}, []string{"dial", "unix", file.Addr().String()}, "permission denied"},
		{"runs declared helpers", loader, []string{"exec", "/bin/true"}, ""},
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
	if b, _ := os.ReadFile(note); string(b) != "text" {
		t.Errorf("the note became %q", b)
	}
	t.Run("ld.so runs nothing from the workspace", func(t *testing.T) {
		r := ask(t, j, loader, "exec", loaderOf(t), filepath.Join(work, "true")).must(t)
		if r.exit.Code == 0 || !strings.Contains(r.log, "true") {
			t.Errorf("exit %d, %q: the loader ran a file of the workspace", r.exit.Code, r.log)
		}
	})
}

// loaderOf returns the dynamic loader of /bin/true.
func loaderOf(t *testing.T) string {
	t.Helper()
	ktest.Require(t, "/bin/true")
	f, err := os.Open("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o, err := readObject(f)
	if err != nil || o.interp == "" {
		ktest.Missing(t, "dynamic-true", err)
	}
	return o.interp
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestInitIsOutOfReach(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	for _, proc := range []bool{false, true} {
		r := ask(t, j, bailey.Job{NeedsProc: proc}, "attack").must(t)
		if n := strings.Count(r.out, " false "); n != 11 || strings.Contains(r.out, " true ") {
			t.Errorf("with proc %v, of 11 attacks %d were refused:\n%s", proc, n, r.out)
		}
		if !strings.Contains(r.out, "pidfd errno 0") {
			t.Errorf("the probe did not get as far as a pidfd:\n%s", r.out)
		}
		if r := ask(t, j, bailey.Job{NeedsProc: proc}, "killone").must(t); r.first() != "ok" || r.exit.Code != 0 {
			t.Errorf("signals to PID 1 ended the cage: %+v", r)
		}
	}
}

func TestProcIsItsOwn(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	r := ask(t, j, bailey.Job{NeedsProc: true}, "list", "/proc").must(t)
	pids := 0
	for name := range strings.Lines(r.out) {
		if name[0] >= '1' && name[0] <= '9' {
			pids++
		}
	}
	if pids != 1 || !strings.Contains(r.out, "self") {
		t.Errorf("%d processes are visible, want the tool alone:\n%s", pids, r.out)
	}
	for name := range strings.Lines(strings.TrimPrefix(r.out, "ok\n")) {
		name = strings.TrimSpace(name)
		if name[0] >= '1' && name[0] <= '9' || slices.Contains(shownOfProc, name) {
			continue
		}
		shown := ask(t, j, bailey.Job{NeedsProc: true}, "show", "/proc/"+name).must(t).out
		if shown == "is a directory\n" {
			shown = ask(t, j, bailey.Job{NeedsProc: true}, "list", "/proc/"+name).must(t).out
		}
		// a symlink into /sys, for example arm64's device-tree
		if shown != "ok\n" && shown != "no such file or directory\n" {
			t.Errorf("/proc/%s shows %q", name, shown)
		}
	}
	for _, f := range []string{"/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/self/oom_score_adj"} {
		r := ask(t, j, bailey.Job{NeedsProc: true}, "write", f).must(t)
		// covered with /dev/null, which accepts writes
		covered := ask(t, j, bailey.Job{NeedsProc: true}, "show", f).must(t).out == "ok\n"
		if r.first() == "ok" && !covered {
			t.Errorf("%s can be written", f)
		}
	}
}

func TestTasksAreBounded(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	var n int
	r := ask(t, j, bailey.Job{Limits: bailey.Limits{Tasks: 30}}, "bomb").must(t)
	if fmt.Sscan(r.out, &n); n < 1 || n > 30+ownTasks {
		t.Errorf("%q children were started, want at most %d", r.out, 30+ownTasks)
	}
	if r := ask(t, j, bailey.Job{}, "killall").must(t); r.exit.Code != 0 {
		t.Errorf("kill(-1) from inside ended with %+v", r)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
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

func TestNoKeyOfTheGatewayIsThere(t *testing.T) {
	runtime.LockOSThread() // the keyring belongs to this thread, which ends with the test
	ktest.Require(t, "keyring")
	if _, err := unix.KeyctlJoinSessionKeyring("jail-test"); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.AddKey("user", "jail-secret", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
		t.Fatal(err)
	}
	j := newJail(t, Config{})
	if r := ask(t, j, bailey.Job{}, "key", "jail-secret").must(t); r.first() == "ok" {
		t.Error("the tool found a key of the gateway's session keyring")
	}
}

func TestOrdinaryTools(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "date")
	repo := t.TempDir()
	j := newJail(t, Config{})
	for _, c := range []struct {
		job  bailey.Job
		want string
	}{
		{bailey.Job{Command: "date", Args: []string{"+%Z"}}, "UTC"},
		{bailey.Job{Command: "git", Args: []string{"init", "-q", repo}, Places: []bailey.Place{place(t, repo, true)}}, ""},
		{bailey.Job{Command: "git", Args: []string{"status", "--porcelain=v2", "--branch"}, Dir: repo, Places: []bailey.Place{place(t, repo, false)}}, "# branch.oid (initial)"},
	} {
		r := ask(t, j, c.job).must(t)
		if r.exit.Code != 0 || r.first() != c.want {
			t.Errorf("%s %v: %+v, want %q", c.job.Command, c.job.Args, r, c.want)
		}
	}
}

func TestProbe(t *testing.T) {
	if err := newJail(t, Config{}).Probe(t.Context()); err != nil {
		t.Fatal(err, bailey.HintOf(err))
	}
}
