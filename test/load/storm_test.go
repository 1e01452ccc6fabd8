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

// TestStorm has 64 callers at once make as many calls as BAILEY_STORM says (500 unless said; 5000 by hand, with
// go test -timeout above it) while tools, the cages' first processes and gateways are killed at random. Then
// nothing is left on the host that was not there before, and each call has one receipt.
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
	for range 3 { // what is left behind is there whichever gateway looks; a helper that one starts late, for what it was asked before, is not
		s.command("gateway", "stop").Run() // its helpers were as many as the storm wanted
		now = s.warmed()                   // by another, which sweeps
		for end := time.Now().Add(20 * time.Second); now.more(before) && time.Now().Before(end); now = look(t, s) {
			time.Sleep(50 * time.Millisecond) // a gateway sweeps when it starts, and once more when what was killed has died
		}
		if !now.more(before) {
			break
		}
	}
	now.compare(before)
	s.settle()
	if s.did["helper killed"] == 0 && s.kept() > 0 {
		t.Error("no warm helper was killed")
	}
}

// warmed has a gateway serve the storm's calls, one at a time, until each has one helper that waits, and looks then. Where
// a call comes before the last one's helper is ready again there is a helper more, by chance: then it is for another gateway.
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

// kept is how many helpers wait for the storm's two kinds of calls: one for each, and none where cages have no control
// group, as those of most ordinary users.
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

// rest waits until what is below the gateway stays what it is, and counts the helpers among it.
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

// any makes a call that may end in every way there is. What it was told must be in the ledger.
func (s *site) any(dir string, args ...string) {
	cmd := s.command(append([]string{"run", "--json"}, args...)...)
	cmd.Dir = dir
	s.answered(args, cmd, func(status bailey.Status) bool { return status != bailey.Refused && status != bailey.Pending })
}

// sniper kills processes below the gateway: tools, and what holds their cages together.
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
			if named(p.pid) == "bailey-warm" { // or what it has parked, or the first process of a call
				what = "helper killed"
			}
			syscall.Kill(p.pid, syscall.SIGKILL)
			s.count(what)
		}
	}
}

// ready is how many first processes of cages a gateway keeps for calls that come at once: docs/jail.md.
const ready = 8

// quiet waits until the gateway has nothing below it but what it keeps ready.
func (s *site) quiet() {
	var n int
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		all := below(s.gateway())
		n = len(slices.DeleteFunc(all, func(p process) bool { return named(p.pid) == "bailey-warm" }))
		if n <= ready {
			time.Sleep(300 * time.Millisecond) // the last call's end: group and directory are removed after its process
			return
		}
	}
	s.t.Errorf("%d processes are below the gateway beside helpers, and no call is live", n)
}

// named is what a process was started by.
func named(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	name, _, _ := strings.Cut(string(line), "\x00")
	return name
}

// traces is what calls could leave on a host.
type traces struct {
	t           *testing.T
	mounts      []string
	groups      []string // control groups below which the home's gateways put theirs
	files       []string
	descriptors int // of the gateway
	namespaces  int // that the gateway keeps open
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

// nameless is a group's path without what differs between gateways of which each keeps one call ready: the name
// of the gateway that lives, and the number of its call. A second call's group has another name than the first.
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

// owns tells whether a name that carries the id of a process carries one of this home's gateways, dead or alive.
// Other gateways may be at work on the machine.
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

// more reports whether there is something that was not there before.
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

// compare wants nothing that was not there before; what the gateway keeps ready may come and go by one call's worth.
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
	// A gateway that is root keeps a user namespace for each user that its cages had. Cages at once have different users, and
	// how many were at once is chance.
	if now.descriptors > before.descriptors+slack || now.namespaces > before.namespaces+slack/2 || now.zombies > 0 {
		now.t.Errorf("the gateway has %d descriptors, %d of namespaces, %d zombies; before %d, %d, %d", now.descriptors, now.namespaces, now.zombies,
			before.descriptors, before.namespaces, before.zombies)
	}
	now.t.Logf("%d mounts, %d groups, %d files, %d descriptors before; %d, %d, %d, %d after", len(before.mounts), len(before.groups), len(before.files),
		before.descriptors, len(now.mounts), len(now.groups), len(now.files), now.descriptors)
}
