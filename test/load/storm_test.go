//go:build linux

package load_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// TestStorm makes as many calls as BAILEY_STORM says (default 500; 5000 by hand, with a larger go test -timeout) from
// 64 concurrent callers, while tools, the first processes of cages and gateways are killed at random. Afterwards the
// host must have no traces that it did not have before, and each call must have one receipt.
func TestStorm(t *testing.T) {
	ktest.Long(t)
	const callers = 64
	calls := 500
	if s := os.Getenv("BAILEY_STORM"); s != "" {
		var err error
		if calls, err = strconv.Atoi(s); err != nil {
			t.Fatalf("BAILEY_STORM: %v", err)
		}
	}
	s := begin(t)
	before := s.warmed()

	var left atomic.Int64
	left.Store(int64(calls))
	stop := make(chan struct{})
	var callersDone, rest sync.WaitGroup
	rest.Go(func() { s.watch(stop) })
	rest.Go(func() { s.sniper(stop) })
	rest.Go(func() { s.killer(stop, 4*time.Second) })
	for range callers {
		callersDone.Go(func() {
			for left.Add(-1) >= 0 {
				switch rand.IntN(4) {
				case 0:
					s.any(s.repo, "system.echo", "-i", "message=hi")
				case 1:
					s.killed()
				default:
					s.any(s.repo, "git.log", "-i", "repo=.")
				}
			}
		})
	}
	callersDone.Wait()
	close(stop)
	rest.Wait()
	s.quiet()
	var now traces
	// real traces are visible to every gateway; a helper that one starts late, for earlier calls, is not a trace
	for deadline := time.Now().Add(3 * time.Minute); ; {
		s.command("gateway", "stop").Run() // it had as many helpers as the storm needed
		now = s.warmed()                   // starts another gateway, which sweeps
		for end := time.Now().Add(20 * time.Second); now.more(before) && time.Now().Before(end); now = look(t, s) {
			// a gateway sweeps when it starts, and again when killed processes have exited
			time.Sleep(50 * time.Millisecond)
		}
		if !now.more(before) || time.Now().After(deadline) {
			break
		}
	}
	now.compare(before)
	s.settle()
	if s.did["helper killed"] == 0 && s.kept() > 0 {
		t.Error("no warm helper was killed")
	}
}

// warmed makes the storm's calls, one at a time, until the gateway has one waiting helper for each kind, and returns
// the traces. If a call comes before the previous helper is ready again, the gateway starts an additional helper. Then
// warmed tries again with another gateway.
func (s *site) warmed() traces {
	s.t.Helper()
	var n int
	want := s.kept()
	for range 10 {
		for range 3 {
			s.any(s.repo, "git.log", "-i", "repo=.")
			s.any(s.repo, "system.echo", "-i", "message=hi")
			n = s.rest()
		}
		if n == want {
			s.quiet()
			return look(s.t, s)
		}
		s.command("gateway", "stop").Run()
	}
	s.t.Fatalf("%d helpers wait for two kinds of calls, and not %d", n, want)
	panic("unreachable")
}

// kept returns the number of helpers that wait for the storm's two kinds of calls: one for each, or none if cages have
// no control group, as for most ordinary users.
func (s *site) kept() int {
	s.t.Helper()
	out, err := s.command("run", "--json", "system.echo", "-i", "message=hi").Output()
	var call struct{ Cage struct{ Absent []string } }
	if err == nil {
		err = json.Unmarshal(out, &call)
	}
	if err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	if slices.Contains(call.Cage.Absent, "cgroup") {
		return 0
	}
	return 2
}

// rest waits until the processes below the gateway no longer change, and counts the helpers among them.
func (s *site) rest() (helpers int) {
	var before []process
	for deadline, same := time.Now().Add(20*time.Second), 0; same < 5 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		pid := s.gateway()
		now := below(pid)
		if same++; !slices.Equal(before, now) {
			same = 0
		}
		before, helpers = now, 0
		for _, p := range now {
			if named(p.pid) == "bailey-warm" && stat(p.pid).parent == pid {
				helpers++
			}
		}
	}
	return helpers
}

// any makes a call that may end in any way. Its result must be in the ledger.
func (s *site) any(dir string, args ...string) {
	cmd := s.command(append([]string{"run", "--json"}, args...)...)
	cmd.Dir = dir
	s.answered(args, cmd, func(status bailey.Status) bool { return status != bailey.Refused && status != bailey.Pending })
}

// sniper kills processes below the gateway: tools, and the processes that keep their cages together.
func (s *site) sniper(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(rand.N(60 * time.Millisecond)):
		}
		pid := s.gateway()
		if pid == 0 {
			continue
		}
		targets := below(pid)
		if len(targets) == 0 {
			continue
		}
		if p := targets[rand.IntN(len(targets))]; stat(p.pid).start == p.start {
			what := "process killed"
			if named(p.pid) == "bailey-warm" { // or a process that it keeps ready, or the first process of a call
				what = "helper killed"
			}
			syscall.Kill(p.pid, syscall.SIGKILL)
			s.count(what)
		}
	}
}

// ready is the number of first processes of cages that a gateway keeps for concurrent calls: docs/jail.md.
const ready = 8

// quiet waits until only the processes that the gateway keeps ready are below it.
func (s *site) quiet() {
	var n int
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all := below(s.gateway())
		n = len(slices.DeleteFunc(all, func(p process) bool { return named(p.pid) == "bailey-warm" }))
		if n <= ready {
			// the end of the last call: its group and directory are removed after its process
			time.Sleep(300 * time.Millisecond)
			return
		}
	}
	s.t.Errorf("%d processes are below the gateway beside helpers, and no call is live", n)
}

// named returns the name under which a process was started.
func named(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(line), "\x00")
	return name
}

// traces lists everything that calls could leave on a host.
type traces struct {
	t           *testing.T
	mounts      []string
	groups      []string // control groups below which this home's gateways create theirs
	files       []string
	descriptors int // of the gateway
	namespaces  int // kept open by the gateway
	zombies     int // below the gateway
}

func look(t *testing.T, s *site) traces {
	t.Helper()
	pid := s.gateway()
	found := traces{t: t}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	found.mounts = strings.Split(string(table), "\n")
	calls := map[string]int{}
	filepath.WalkDir("/sys/fs/cgroup", func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(path, "bailey") && s.owns(path) {
			found.groups = append(found.groups, nameless(path, pid, calls))
		}
		return nil
	})
	for _, dir := range []string{os.TempDir(), s.dir, s.home, s.repo, filepath.Join(s.repo, ".git")} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if dir != os.TempDir() || strings.Contains(e.Name(), "bailey") && s.owns(e.Name()) {
				found.files = append(found.files, filepath.Join(dir, e.Name()))
			}
		}
	}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("the gateway's descriptors: %v", err)
	}
	found.descriptors = len(links)
	for _, link := range links {
		if to, _ := os.Readlink(link); strings.Contains(to, ":[") && !strings.HasPrefix(to, "socket") && !strings.HasPrefix(to, "pipe") {
			found.namespaces++
		}
	}
	children, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, c := range children {
		b, _ := os.ReadFile(c)
		if _, after, ok := strings.Cut(string(b), ") Z "); ok && strings.HasPrefix(after, strconv.Itoa(pid)+" ") {
			found.zombies++
		}
	}
	return found
}

// nameless returns the path of a group without the parts that differ between gateways: the name of the running gateway
// and the number of its call. Groups of different calls keep different names.
func nameless(group string, pid int, calls map[string]int) string {
	parts := strings.Split(group, "/")
	for i, p := range parts {
		switch {
		case strings.HasPrefix(p, strconv.Itoa(pid)+"-"):
			parts[i] = "gateway"
		case strings.HasPrefix(p, "call-") && parts[i-1] == "gateway":
			of := strings.Join(parts[:i], "/")
			parts[i] = fmt.Sprintf("call %d", calls[of])
			calls[of]++
		}
	}
	return strings.Join(parts, "/")
}

// owns reports whether a name contains the process ID of one of this home's gateways, running or not. Other gateways
// may run on the machine.
func (s *site) owns(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range s.gateways {
		if slices.Contains(strings.FieldsFunc(name, func(r rune) bool { return r < '0' || r > '9' }), strconv.Itoa(pid)) {
			return true
		}
	}
	return false
}

// more reports whether there are traces that did not exist before.
func (now traces) more(before traces) bool {
	for _, lists := range [][2][]string{{before.mounts, now.mounts}, {before.groups, now.groups}, {before.files, now.files}} {
		for _, v := range lists[1] {
			if !slices.Contains(lists[0], v) {
				return true
			}
		}
	}
	return now.zombies > 0
}

// compare checks that there are no new traces. The resources that the gateway keeps ready may differ by those of one
// call.
func (now traces) compare(before traces) {
	now.t.Helper()
	for what, lists := range map[string][2][]string{"mounts": {before.mounts, now.mounts}, "groups": {before.groups, now.groups}, "files": {before.files, now.files}} {
		for _, v := range lists[1] {
			if !slices.Contains(lists[0], v) {
				now.t.Errorf("%s: %s was not there before", what, v)
			}
		}
	}
	const slack = 8
	// A gateway that runs as root keeps a user namespace for each user of its cages. Concurrent cages have different
	// users, and the number of concurrent cages is random.
	if now.descriptors > before.descriptors+slack || now.namespaces > before.namespaces+slack/2 || now.zombies > 0 {
		now.t.Errorf("the gateway has %d descriptors, %d of namespaces, %d zombies; before %d, %d, %d", now.descriptors, now.namespaces, now.zombies,
			before.descriptors, before.namespaces, before.zombies)
	}
	now.t.Logf("%d mounts, %d groups, %d files, %d descriptors before; %d, %d, %d, %d after", len(before.mounts), len(before.groups), len(before.files),
		before.descriptors, len(now.mounts), len(now.groups), len(now.files), now.descriptors)
}
