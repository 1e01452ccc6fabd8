//go:build linux

package jail

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/jail/battery"
	"bailey/internal/ktest"
)

// named lists the probes that may be open in a kind of cage if its receipt names this gap. For example, a call in the
// lesser cage that may execute helpers has a loader, and no mount is noexec.
var named = map[string]string{
	"landlock exec/loader-place-readonly": loaderOpen, "landlock exec/loader-place-writable": loaderOpen, "landlock exec/loader-tmp": loaderOpen,
	"landlock exec/loader-preload": loaderOpen, "landlock exec/preload": loaderOpen, "landlock exec/audit": loaderOpen, "landlock exec/library-path": loaderOpen,
}

// cages lists the cages in which the battery runs, each as root and as an ordinary user (TestOrdinaryUser).
var cages = []struct {
	name  string
	build func(*testing.T) (*Jail, *stage)
}{
	{"without proc", func(t *testing.T) (*Jail, *stage) { return full(t, false) }},
	{"landlock", lesserStage},
	{"with proc", func(t *testing.T) (*Jail, *stage) { return full(t, true) }},
	{"warm", warmStage},
	{"wall", wallStage},
	{"with network", func(t *testing.T) (*Jail, *stage) {
		j, s := full(t, false)
		s.Net = true
		return j, s
	}},
}

// lesserStage returns the cage for hosts without namespaces. If the gateway is root, files written in it belong to its
// uid.
func lesserStage(t *testing.T) (*Jail, *stage) {
	j := lesserJail(t, Config{})
	s := stagedFor(t, j.hostUID)
	s.Kind = "landlock"
	if j.root {
		filepath.WalkDir(s.RW, func(path string, _ fs.DirEntry, _ error) error { return os.Lchown(path, j.hostUID, j.hostGID) })
	}
	s.untouch = s.digest(t)
	return j, s
}

// warmStage lets a helper serve every call. No helper has a /proc of its own or a mask in a place.
func warmStage(t *testing.T) (*Jail, *stage) {
	w, s := warmJail(t, Config{}), staged(t)
	s.Maskless = true
	s.ready = func(t *testing.T) { w.heat(t, s.job(t), "noop") }
	return w.Jail, s
}

func full(t *testing.T, proc bool) (*Jail, *stage) {
	j, s := newJail(t, Config{}), staged(t)
	j.mask, s.Proc = s.masks, proc
	return j, s
}

// TestBattery runs every probe in every cage, next to a second cage that has left whatever it could. No probe may be
// open.
func TestBattery(t *testing.T) {
	ktest.Long(t)
	for _, c := range cages {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread() // the session keyring belongs to this thread, which ends with the test
			j, s := c.build(t)
			defer s.sibling(t, j)()
			r := s.attack(t, j)
			s.judge(t, r, func(p battery.Probe) bool { return p.Shared(&s.Scene) })
			s.look(t)
		})
	}
}

// TestBatteryAlone runs each probe that may end its cage in a cage of its own.
func TestBatteryAlone(t *testing.T) {
	ktest.Long(t)
	runtime.LockOSThread()
	for _, c := range cages {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread()
			j, s := c.build(t)
			s.alone(t, j)
			s.look(t)
		})
	}
}

func (s *stage) alone(t *testing.T, j *Jail) {
	for _, p := range battery.Probes() {
		if !p.Alone {
			continue
		}
		s.Only = []string{p.Name}
		r := s.attack(t, j)
		if r.exit.Code == 137 && r.out == "" {
			t.Logf("%s ended its cage", p.Name)
			continue
		}
		s.judge(t, r, func(q battery.Probe) bool { return q.Name == p.Name })
	}
}

// TestBatteryOnce checks that a call in the lesser cage without helpers executes its program once and nothing
// afterwards, by any method, not even the same program.
func TestBatteryOnce(t *testing.T) {
	ktest.Long(t)
	runtime.LockOSThread()
	j, s := lesserStage(t)
	s.Helper, s.Loader, s.Libc = "", "", ""
	n := 0
	for _, p := range battery.Probes() {
		if !strings.HasPrefix(p.Name, "exec/") || !p.Shared(&s.Scene) {
			continue
		}
		n++
		r := ask(t, j, s.job(t, "one", p.Name)).must(t)
		if v := results(t, r.out)[p.Name]; v.Held == "" || v.Open != "" {
			t.Errorf("%s: %+v, %s", p.Name, v, r.log)
		}
	}
	if n < 20 {
		t.Errorf("%d probes", n)
	}
	s.look(t)
}

// attacked is a run of the attacker, with the gaps that its receipt names.
type attacked struct {
	told
	lacks []string
}

// attack runs the attacker with all probes, or with those in s.Only.
func (s *stage) attack(t *testing.T, j *Jail) attacked {
	t.Helper()
	s.ready(t)
	job := s.job(t, "all")
	r := ask(t, j, job)
	if r.err != nil || r.log != "" {
		t.Fatalf("%v (%s) %s", r.err, bailey.HintOf(r.err), r.log)
	}
	return attacked{r, planCage(t, j, job).Lacks}
}

// judge checks that each due probe has one result, and that none is open or odd.
func (s *stage) judge(t *testing.T, r attacked, due func(battery.Probe) bool) {
	t.Helper()
	found := results(t, r.out)
	n := 0
	for _, p := range battery.Probes() {
		if !due(p) {
			continue
		}
		n++
		v, ok := found[p.Name]
		switch lack := named[s.Kind+" "+p.Name]; {
		case !ok:
			t.Errorf("%s: no answer; the cage ended with %+v", p.Name, r.exit)
		case s.grants(p.Name, v):
			t.Logf("%s: %s%s", p.Name, v.Open, v.Odd)
		case v.Odd != "":
			t.Errorf("%s says nothing about the cage: %s", p.Name, v.Odd)
		case v.Open != "" && lack != "" && slices.Contains(r.lacks, lack):
			t.Logf("%s is open, as the receipt says (%s)", p.Name, lack)
		case v.Open != "":
			t.Errorf("%s is OPEN: %s", p.Name, v.Open)
		}
	}
	if len(found) != n {
		t.Errorf("%d answers of %d probes", len(found), n)
	}
	t.Logf("%d probes", n)
}

func results(t *testing.T, out string) map[string]battery.Result {
	t.Helper()
	found := map[string]battery.Result{}
	for line := range strings.Lines(out) {
		var r battery.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		found[r.Name] = r
	}
	return found
}

// sibling starts a cage that leaves whatever it can. It stays until end is called.
func (s *stage) sibling(t *testing.T, j *Jail) (end func()) {
	t.Helper()
	s.ready(t)
	job := s.job(t, "plant")
	r, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	in, hold := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := r.Start(context.Background(), lentFor(job), bailey.Streams{Stdin: in, Stdout: out, Stderr: os.Stderr})
		out.Close()
		done <- err
	}()
	if line, err := bufio.NewReader(read).ReadString('\n'); line != "planted\n" {
		t.Errorf("the sibling said %q, %v", line, err)
	}
	return func() {
		hold.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		r.Close()
	}
}

// TestBatteryIsSound checks that names are unique and have a class, and that every class of the threat model has
// probes.
func TestBatteryIsSound(t *testing.T) {
	classes := map[string]int{}
	seen := map[string]bool{}
	for _, p := range battery.Probes() {
		class, what, ok := strings.Cut(p.Name, "/")
		if !ok || what == "" || seen[p.Name] || strings.ContainsAny(p.Name, " _") {
			t.Errorf("%q is no name of a probe, or twice", p.Name)
		}
		seen[p.Name] = true
		classes[class]++
	}
	t.Logf("%d probes: %v", len(seen), classes)
	for _, class := range []string{"data", "process", "namespace", "privilege", "mount", "device", "kernel", "exec", "network", "ipc", "keyring", "resource", "crossing"} {
		if classes[class] < 5 {
			t.Errorf("class %s has %d probes", class, classes[class])
		}
	}
	for name := range named {
		if _, probe, _ := strings.Cut(name, " "); !seen[probe] {
			t.Errorf("%s is no probe", probe)
		}
	}
}

// TestBatteryRefusesOutside checks that the attacker refuses to run outside a cage, where its effects would be real.
func TestBatteryRefusesOutside(t *testing.T) {
	dir := t.TempDir()
	canary := put(t, dir+"/canary", "x", 0o644)
	scene := func(s battery.Scene) string {
		b, _ := json.Marshal(s)
		return battery.Env + "=" + string(b)
	}
	token := strings.Repeat("0", 32)
	all := []string{"caps-none", "seccomp"}
	for name, env := range map[string]string{
		"without a scene":         "A=b",
		"with an empty one":       battery.Env + "={}",
		"with a file to be read":  scene(battery.Scene{Token: token, Canary: canary, Kind: "full"}),
		"with nothing to be read": scene(battery.Scene{Token: token, Canary: "/no/such/file", Kind: "full"}),
		"as a weak cage":          scene(battery.Scene{Token: token, Canary: "/no/such/file", Kind: "full", Weak: all}),
		"as the other cage":       scene(battery.Scene{Token: token, Canary: "/no/such/file", Kind: "landlock"}),
	} {
		for _, args := range [][]string{{"all"}, {"one", "mount/unmount-proc"}, {"plant"}, {"part"}, {"survive", "daemon"}, {"linger", token}, {}} {
			cmd := exec.Command(attacker(), args...)
			cmd.Env = []string{env}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 99 || !strings.Contains(out.String(), "not in a cage") {
				t.Errorf("%s: %v ended with %d, %s", name, args, code, out.String())
			}
		}
	}
}
