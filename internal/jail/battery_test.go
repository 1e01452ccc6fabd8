//go:build linux

package jail

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/jail/battery"
	"bailey/internal/ktest"
)

// pending are the probes that are open, with the layer that will close them. A name alone means every cage; with
// a kind before it, as in "landlock exec/preload", the cages of that kind.
var pending = map[string]string{
	"resource/memory-of-many": "cgroup", "resource/shared-memory": "cgroup", "resource/segments": "cgroup",
}

// cages are those that the battery is tried in, each as root and as an ordinary user (TestOrdinaryUser).
var cages = []struct {
	name  string
	build func(*testing.T) (*Jail, *stage)
}{
	{"without proc", func(t *testing.T) (*Jail, *stage) { return full(t, false) }},
	{"with proc", func(t *testing.T) (*Jail, *stage) { return full(t, true) }},
}

func full(t *testing.T, proc bool) (*Jail, *stage) {
	j, s := newJail(t, Config{}), staged(t)
	j.mask, s.Proc = s.masks, proc
	return j, s
}

// TestBattery runs every probe in every cage, beside a sibling that left what it could: none may be open.
func TestBattery(t *testing.T) {
	for _, c := range cages {
		t.Run(c.name, func(t *testing.T) {
			runtime.LockOSThread() // the session keyring is this thread's, which ends with the test
			j, s := c.build(t)
			defer s.sibling(t, j)()
			r := s.attack(t, j)
			s.judge(t, r, func(p battery.Probe) bool { return p.Shared(&s.Scene) })
			s.look(t)
		})
	}
}

// TestBatteryAlone runs the probes that may end their cage, each in one of its own.
func TestBatteryAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	runtime.LockOSThread()
	j, s := full(t, false)
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
	s.look(t)
}

// attack runs the attacker over all probes, or those of s.Only.
func (s *stage) attack(t *testing.T, j *Jail) told {
	t.Helper()
	r := ask(t, j, s.job(t, "all"))
	if r.err != nil || r.log != "" {
		t.Fatalf("%v (%s) %s", r.err, bailey.HintOf(r.err), r.log)
	}
	return r
}

// judge wants one line of each probe that is due, and none that is open or odd.
func (s *stage) judge(t *testing.T, r told, due func(battery.Probe) bool) {
	t.Helper()
	found := results(t, r.out)
	n := 0
	for _, p := range battery.Probes() {
		if !due(p) {
			continue
		}
		n++
		v, ok := found[p.Name]
		switch layer := pending[p.Name] + pending[s.Kind+" "+p.Name]; {
		case !ok:
			t.Errorf("%s: no answer; the cage ended with %+v", p.Name, r.exit)
		case v.Odd != "":
			t.Errorf("%s says nothing about the cage: %s", p.Name, v.Odd)
		case v.Open != "" && layer != "":
			t.Logf("%s is open until %s: %s", p.Name, layer, v.Open)
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

// sibling starts a cage that leaves what it can and stays until the returned function is called.
func (s *stage) sibling(t *testing.T, j *Jail) (end func()) {
	t.Helper()
	r, err := j.Plan(t.Context(), s.job(t, "plant"))
	if err != nil {
		t.Fatal(err)
	}
	in, hold := io.Pipe()
	read, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := r.Start(context.Background(), nil, bailey.Streams{Stdin: in, Stdout: out, Stderr: os.Stderr})
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

// TestBatteryIsSound: names are unique and classed, and every class of the threat model is there.
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
	for name := range pending {
		if !seen[name[strings.Index(name, " ")+1:]] {
			t.Errorf("%s is pending and no probe", name)
		}
	}
}

// TestBatteryRefusesOutside: what it does is real where no cage is.
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

// TestSurvivors: whatever a tool leaves running ends with its call, and soon.
func TestSurvivors(t *testing.T) {
	ktest.Require(t, "userns", "netns")
	runtime.LockOSThread()
	j, s := newJail(t, Config{}), staged(t)
	s.seen(t, j)
	for _, way := range battery.Ways {
		begin := time.Now()
		r := ask(t, j, s.job(t, "survive", way)).must(t)
		if took := time.Since(begin); took > 10*time.Second || !slices.Contains([]string{"left", "refused:"}, strings.Fields(r.out + " -")[0]) && way != "flooder" {
			t.Errorf("%s: %v, %.200q %s", way, took, r.out, r.log)
		}
		for _, line := range s.lingering() {
			t.Errorf("%s: a process is left: %s", way, line)
		}
	}
	s.look(t)
}

// seen shows that what lingers in a cage can be seen from outside while it runs.
func (s *stage) seen(t *testing.T, j *Jail) {
	t.Helper()
	r, err := j.Plan(t.Context(), s.job(t, "linger", s.Token))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Start(ctx, nil, bailey.Streams{}); close(done) }()
	for begin := time.Now(); len(s.lingering()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > 10*time.Second {
			t.Error("a process of a cage cannot be seen: this test would miss what is left")
			break
		}
	}
	cancel()
	<-done
}
