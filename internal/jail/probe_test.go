//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
	"bailey/test/since"
)

// probeEnv tells a test binary that runs as another user where the probe is.
const probeEnv = "BAILEY_JAIL_PROBE"

// stranger and otherStranger are uids, strangers is a gid, that own nothing on this machine. The task limit counts all
// processes of a uid, so concurrent tests need different ones.
const stranger, strangers, otherStranger = 31337, 31338, 31339

// probe is the path of testdata/probe, built once and statically.
var probe string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

// waiters is the number of parallel tests at the same time. They wait for timeouts or other processes, and run after
// all others, some of which count what is left in and below this process.
const waiters = "16"

func testMain(m *testing.M) int {
	flag.Set("test.parallel", waiters) // default; the command line can override it
	if os.Args[0] == inside.Name || os.Args[0] == inside.Warm {
		return 1 // should be PID 1 but is not: a test weakened its cage
	}
	if os.Args[0] == falseName {
		return falseMain(os.Args[1])
	}
	if os.Getenv(gatewayEnv) != "" {
		return gatewayMain()
	}
	if probe = os.Getenv(probeEnv); probe != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("/var/tmp", "jail-probe-") // a warm helper serves no tool below a cage's own /tmp
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Chmod(dir, 0o755)
	probe = filepath.Join(dir, "probe")
	build := exec.Command("go", "build", "-o", dir, "./testdata/probe", "./testdata/battery")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the probe and the battery: %v\n%s", err, out)
		return 1
	}
	for _, program := range []string{probe, attacker()} {
		os.Chmod(program, 0o755)
	}
	return m.Run()
}

// TestOrdinaryUser runs the tests of this package again, as a user without rights.
func TestOrdinaryUser(t *testing.T) { asStranger(t, stranger, func(int) func() { return func() {} }) }

// TestOrdinaryUserWithGroups runs the tests that need a helper as a user with delegated control groups.
func TestOrdinaryUserWithGroups(t *testing.T) {
	ktest.Long(t)
	asStranger(t, otherStranger, func(pid int) func() { return delegate(t, pid, otherStranger) },
		"-test.run=^Test(Battery|Survivors|Warm.*|OnDemandIsWarm|Killed.*|ParkedBefore.*|TimeIsUpWarm|CancelledWarm|TooMuch.*|NothingIsLeftOfACall|TwoLive.*|NoBound.*|HelpersAre.*|TenThousandCalls|FalseHelper)$", "-test.short")
}

// asStranger starts this program again as another user, and calls give before the tests begin.
func asStranger(t *testing.T, uid int, give func(pid int) func(), args ...string) {
	t.Helper()
	t.Parallel()
	ktest.Require(t, "root", "userns")
	since.RequireDue(t, "internal/jail") // otherwise .ci/ordinary runs the same tests
	home := t.TempDir()
	for p := home; p != os.TempDir() && p != "/"; p = filepath.Dir(p) {
		os.Chmod(p, 0o755)
	}
	if err := os.Chown(home, uid, strangers); err != nil {
		t.Fatal(err)
	}
	// The program waits for a line, until give has put it into its groups.
	this, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer this.Close()
	cmd := exec.Command("/bin/sh", "-c", `read line; exec /proc/self/fd/3 "$@"`, "jail.test", "-test.v", "-test.count=1", "-test.timeout=10m")
	cmd.Args = append(cmd.Args, args...)
	cmd.ExtraFiles = []*os.File{this}
	cmd.Env = append(os.Environ(), probeEnv+"="+probe, "HOME="+home, "TMPDIR="+home)
	if os.Getenv("BAILEY_KERNEL") != "" { // require the features that were found above, except root
		cmd.Env = append(cmd.Env, "BAILEY_KERNEL=require:userns,netns")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: strangers}}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	wait, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer give(cmd.Process.Pid)()
	wait.Write([]byte("\n"))
	wait.Close()
	err = cmd.Wait()
	out := log.Bytes()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "--- SKIP") || strings.Contains(line, "needs ") {
			t.Log(strings.TrimSpace(line))
		}
	}
	if err != nil { // list the failed tests at the end, where a shortened log is kept
		t.Fatalf("%s\nas uid %d: %v; of these tests failed:\n%s", out, uid, err,
			strings.Join(regexp.MustCompile(`(?m)^\s*--- FAIL.*`).FindAllString(string(out), -1), "\n"))
	}
}

// delegate puts a process into control groups that belong to uid, if this process can create any.
func delegate(t *testing.T, pid, uid int) (remove func()) {
	t.Helper()
	own, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	hierarchies, err := findHierarchies(string(own), string(mounts))
	if err != nil {
		t.Log(err)
	}
	var dirs []string
	for _, h := range hierarchies {
		dir := filepath.Join(h.mount, fmt.Sprintf("jail-test-%d", os.Getpid()))
		if h.version == 2 {
			writeKnob(filepath.Join(h.mount, "cgroup.subtree_control"), "+"+strings.Join(h.controllers, " +"))
		}
		err := os.Mkdir(dir, 0o755)
		for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control", "tasks"} {
			os.Chown(filepath.Join(dir, name), uid, strangers)
		}
		if err = errors.Join(err, writeKnob(filepath.Join(dir, "cgroup.procs"), fmt.Sprint(pid))); err != nil {
			t.Log(err)
		}
		dirs = append(dirs, dir)
	}
	return func() {
		for _, dir := range dirs {
			bases, _ := filepath.Glob(filepath.Join(dir, basePrefix+"*"))
			for _, base := range bases {
				sites, _ := filepath.Glob(base + "/*-*")
				for _, site := range sites {
					clearSite(site)
				}
				unix.Rmdir(base)
			}
			clearGroup(dir, patience)
		}
	}
}

// newJail returns a jail in which every call gets a new cage, since it depends on timing which calls a helper serves.
// warmJail returns one with helpers.
func newJail(t testing.TB, cfg Config) *Jail {
	t.Helper()
	ktest.Require(t, "userns", "netns")
	j := plainJail(t, cfg)
	j.cages().closed = true
	return j
}

func plainJail(t testing.TB, cfg Config) *Jail {
	t.Helper()
	j, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

// place opens a path as the gate does.
func place(t testing.TB, path string, write bool) bailey.Place {
	t.Helper()
	mappable(t)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), path)
	t.Cleanup(func() { f.Close() })
	return bailey.Place{Input: "path", Path: path, File: f, Write: write}
}

// mappable skips the test if the gateway is root and cannot make idmapped mounts of the temporary directory.
func mappable(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	ktest.Require(t, "userns")
	j, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	dir, err := os.Open(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	tree, err := j.cloneDetached(dir, inert, mapping{uid: j.hostUID})
	if err != nil {
		ktest.Missing(t, "idmap", err)
	}
	tree.Close()
}

// A told is the result of one call.
type told struct {
	exit     bailey.Exit
	err      error
	out, log string
}

func (r told) first() string { line, _, _ := strings.Cut(r.out, "\n"); return line }

// ask runs the probe in a cage.
func ask(t testing.TB, j *Jail, job bailey.Job, args ...string) told {
	t.Helper()
	// enough for the whole battery under emulation
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	if job.Command == "" {
		job.Command, job.Args = probe, args
	}
	r, err := j.Plan(ctx, job)
	if err != nil {
		return told{exit: never, err: err}
	}
	defer r.Close()
	var out, log bytes.Buffer
	exit, err := r.Start(ctx, lentFor(job), bailey.Streams{Stdout: &out, Stderr: &log})
	return told{exit, err, out.String(), log.String()}
}

// lentFor returns the loan that a job needs at its start.
func lentFor(job bailey.Job) (lent bailey.Lent) {
	if job.Network != nil {
		lent.Way = &echo{}
	}
	return lent
}

// must fails the test if the cage itself failed.
func (r told) must(t testing.TB) told {
	t.Helper()
	if r.err != nil {
		t.Fatalf("%v (%s)\n%s%s", r.err, bailey.HintOf(r.err), r.out, r.log)
	}
	return r
}

// still reports whether the file has stopped growing.
func still(t testing.TB, path string) bool {
	t.Helper()
	size := func() int64 {
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	before := size()
	time.Sleep(200 * time.Millisecond)
	return size() == before
}
