//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

func TestLesserExit(t *testing.T) {
	j := lesserJail(t, Config{})
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"exit", "0"}, 0}, {[]string{"exit", "3"}, 3}, {[]string{"die"}, 137}} {
		if r := ask(t, j, bailey.Job{}, c.args...).must(t); r.exit != (bailey.Exit{Code: c.code}) {
			t.Errorf("%v: %+v, want %d", c.args, r.exit, c.code)
		}
	}
	var out bytes.Buffer
	planned, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"cat"}})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	if _, err := planned.Start(t.Context(), bailey.Lent{}, bailey.Streams{Stdin: strings.NewReader("hello"), Stdout: &out}); err != nil || out.String() != "hello" {
		t.Errorf("stdin came out as %q (%v)", out.String(), err)
	}
}

func TestLesserNothingSurvives(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	for _, verb := range []string{"daemon", "hold"} {
		dir := j.open(t, true)
		file := filepath.Join(dir, "beat")
		begin := time.Now()
		r := ask(t, j, bailey.Job{Places: shown(t, dir, true), Exec: []string{probe}}, verb, file).must(t)
		if r.first() != "ok" || strings.Contains(r.out, "never") {
			t.Fatalf("%s: %+v", verb, r)
		}
		if !still(t, file) {
			t.Errorf("%s: a process outlived its call", verb)
		}
		if d := time.Since(begin); d > 45*time.Second {
			t.Errorf("%s: the call took %v", verb, d)
		}
	}
}

func TestLesserTimeout(t *testing.T) {
	timesUp(t, func(t *testing.T, grace time.Duration) *Jail { return lesserJail(t, Config{Grace: grace}) }, func(t *testing.T, j *Jail) (string, []bailey.Place) {
		dir := j.open(t, true)
		return dir, shown(t, dir, true)
	})
}

// TestLesserUrgesAll checks that SIGTERM reaches a grandchild in its own session. The parent ends when that has
// reported it. If the grandchild was not up before the timeout, or had too little time to report, the next try gets
// more of both.
func TestLesserUrgesAll(t *testing.T) {
	ktest.Require(t, "/bin/sh", "setsid", "sleep")
	inMidst(t, func(timeout time.Duration) bool {
		j := lesserJail(t, Config{Grace: 4 * timeout})
		dir := j.open(t, true)
		script := `cd ` + dir + `; setsid sh -c 'trap "echo gone > told; exit" TERM; echo > up; while :; do sleep 0.05; done' & trap "" TERM; until [ -s told ]; do sleep 0.05; done`
		job := bailey.Job{Command: "/bin/sh", Args: []string{"-c", script}, Timeout: timeout, Places: shown(t, dir, true),
			Exec: []string{"/bin/sh", "setsid", "sleep"}}
		r := ask(t, j, job)
		b, _ := os.ReadFile(filepath.Join(dir, "told"))
		if string(b) != "gone\n" {
			t.Logf("a grandchild that was up (%t) wrote %q when the time was up: %+v", exists(filepath.Join(dir, "up")), b, r)
			return false
		}
		if r.must(t); !r.exit.TimedOut {
			t.Errorf("%+v", r)
		}
		return true
	})
}

func TestLesserCancelKills(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	dir := j.open(t, true)
	file := filepath.Join(dir, "beat")
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"deaf", file}, Places: shown(t, dir, true)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	stop := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for !exists(file) {
			time.Sleep(5 * time.Millisecond)
		}
		cancel(stop)
	}()
	if exit, err := r.Start(ctx, bailey.Lent{}, bailey.Streams{}); !errors.Is(err, stop) || exit.Code != 137 || !still(t, file) {
		t.Errorf("%+v, %v", exit, err)
	}
}

// bearing returns the live processes with this word in their command line, except this one. For an ordinary user it
// returns only that user's, which include all its cages: other users may run the same test.
func bearing(word string) (pids []int) {
	for _, pid := range listProcesses() {
		var s syscall.Stat_t
		if uid := os.Getuid(); uid != 0 && (syscall.Stat("/proc/"+strconv.Itoa(pid), &s) != nil || int(s.Uid) != uid) {
			continue
		}
		text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err == nil && pid != os.Getpid() && bytes.Contains(text, []byte(word)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestLesserForkBomb runs three bombs, which RLIMIT_NPROC must limit: one that forks, one whose processes end after a
// fork, and one that executes itself in new sessions.
func TestLesserForkBomb(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{Reluctance: 10 * time.Minute})
	word := "bomb-" + strconv.Itoa(os.Getpid())
	for name, job := range map[string]bailey.Job{
		"forks":    {Command: probe, Args: []string{"forks", word}},
		"flees":    {Command: probe, Args: []string{"flees", word}},
		"executes": {Command: probe, Args: []string{"breed", word}, Exec: []string{probe}},
	} {
		job.Timeout = 3 * time.Second
		most := 0
		done := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(20 * time.Millisecond):
					most = max(most, len(bearing(word)))
				}
			}
		})
		// the bomb may use tasks that these processes release while it runs
		begin, others := time.Now(), tasksOf(j.hostUID)
		r := ask(t, j, job).must(t)
		close(done)
		watch.Wait()
		// or if the keeper had to be killed
		if d := time.Since(begin); !r.exit.TimedOut && r.exit.Over == "" || d > job.Timeout+DefaultGrace+time.Minute {
			t.Errorf("%s: %+v after %v", name, r.exit, d)
		}
		if most < 5 && name != "flees" || most > defaultTasks+ownTasks+others {
			t.Errorf("%s: %d processes were seen at once", name, most)
		}
		if left := bearing(word); len(left) > 0 {
			t.Errorf("%s: %v are left", name, left)
		}
	}
}

func TestLesserManyStartsLeaveNothing(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	newNestsDir(t, j)
	dir := j.open(t, false)
	once := func() {
		if r := ask(t, j, bailey.Job{Command: "true", Places: shown(t, dir, false)}); r.err != nil || r.exit.Code != 0 {
			t.Errorf("%+v: %v", r, r.err)
		}
	}
	once()
	n := 200
	if testing.Short() {
		n = 50
	}
	fds := count(t, "/proc/self/fd")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range n / 8 {
				once()
			}
		})
	}
	wg.Wait()
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if now := count(t, "/proc/self/fd") - n/8*8; now > fds+2 { // places opened by the test stay open until its end
		t.Errorf("%d descriptors became %d", fds, now)
	}
	if left := names(t, j.nests); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	var ws unix.WaitStatus
	if pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("a child is left: %d, %v", pid, err)
	}
}

// TestLesserGatewayDeath checks that if the gateway dies, the keeper ends the tool with all its processes, and itself.
func TestLesserGatewayDeath(t *testing.T) {
	j := lesserJail(t, Config{})
	dir := j.open(t, true)
	file := filepath.Join(dir, "beat")
	gateway := exec.Command("/proc/self/exe")
	gateway.Env = append(os.Environ(), gatewayEnv+"="+dir, probeEnv+"="+probe, lesserKindEnv+"="+strconv.Itoa(j.hostUID))
	var log bytes.Buffer
	gateway.Stderr = &log
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); !exists(file); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			gateway.Process.Kill()
			gateway.Wait()
			t.Fatalf("the tool never began: %s", log.String())
		}
	}
	gateway.Process.Kill()
	gateway.Wait()
	for begin := time.Now(); len(bearing(file)) > 0 && time.Since(begin) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
	}
	if left := bearing(file); len(left) > 0 {
		t.Errorf("%v outlived their gateway", left)
	}
}

// TestLesserKeeperKilled checks that if a keeper is killed, the gateway inherits and ends its processes, for example
// daemons in their own sessions, and no other children.
func TestLesserKeeperKilled(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "sleep")
	j := lesserJail(t, Config{})
	bystander := exec.Command("sleep", "60")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bystander.Process.Kill(); bystander.Wait() }()
	dir := j.open(t, true)
	file := filepath.Join(dir, "beat")
	job := bailey.Job{Command: probe, Args: []string{"stay", file}, Places: shown(t, dir, true), Exec: []string{probe}}
	planned, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	killed := make(chan int, 1)
	go func() {
		for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
			pids := bearing(file)
			if !exists(file) || len(pids) < 2 {
				continue
			}
			for _, pid := range pids {
				status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
				parent := statusField(status, "PPid:")
				if line, _ := os.ReadFile("/proc/" + strconv.Itoa(parent) + "/cmdline"); strings.HasPrefix(string(line), "bailey-keeper") {
					unix.Kill(parent, unix.SIGKILL)
					killed <- parent
					return
				}
			}
		}
		killed <- 0
	}()
	exit, err := planned.Start(t.Context(), bailey.Lent{}, bailey.Streams{})
	if pid := <-killed; pid == 0 {
		t.Fatalf("no keeper was found to kill: %+v, %v", exit, err)
	}
	if err != nil || exit.Code != 137 {
		t.Errorf("the call ended with %+v, %v", exit, err)
	}
	if left := bearing(file); len(left) > 0 || !still(t, file) {
		t.Errorf("%v outlived their keeper", left)
	}
	if bystander.Process.Signal(unix.Signal(0)) != nil || hasExited(bystander.Process.Pid) {
		t.Error("a child of the gateway's own was ended too")
	}
}
