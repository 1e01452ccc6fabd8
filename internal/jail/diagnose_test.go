//go:build linux

package jail

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// TestDiagnoseHeld checks that on a host that can build cages every layer of a call's plan is reported as held.
// Landlock must be reported as absent exactly if the kernel lacks it.
func TestDiagnoseHeld(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	var names []string
	_, ungrouped := j.holder.openCgroups()
	for _, l := range j.Diagnose(t.Context()) {
		names = append(names, l.Name)
		if l.Name == layerCgroup && ungrouped != nil {
			continue // an ordinary user may have none: see TestNoCgroups
		}
		absent := l.Name == "landlock" && ktest.Has("landlock") != nil
		if (l.Err != nil) != absent || l.How == "" {
			t.Errorf("%s: %s: %v", l.Name, l.How, l.Err)
		}
	}
	planned, err := j.Plan(t.Context(), bailey.Job{Command: probe, NeedsProc: true})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	for _, want := range planned.Cage().Layers {
		if !slices.Contains(names, want) {
			t.Errorf("layer %s of a call's cage is not among %v", want, names)
		}
	}
}

// TestDiagnoseNamesTheStep breaks each step in turn. Its layer must be blamed, those completed before it count as held,
// and later ones not.
func TestDiagnoseNamesTheStep(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	whole, err := j.emptyRun()
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range whole.plan.steps {
		broken := &plan{bounds: whole.plan.bounds, steps: slices.Clone(whole.plan.steps)}
		broken.steps[i].Op = 63 // an invalid operation
		layers, ok := (&run{jail: j, plan: broken, timeout: probeTime}).tryLayers(t.Context())
		if ok {
			t.Errorf("without step %d, %s: whole", i, s.formatLine())
		}
		for _, l := range layers {
			done := !slices.ContainsFunc(broken.steps[i:], func(s step) bool { return s.layer == l.Name })
			blamed := l.Err != nil && !errors.Is(l.Err, errUnreached)
			if (l.Err == nil) != done || blamed != (l.Name == s.layer) {
				t.Errorf("without step %d of %q: layer %s: %v", i, s.layer, l.Name, l.Err)
			}
		}
	}
}

func TestDiagnoseNoUserNamespaces(t *testing.T) {
	if lesser(t, "no user namespaces", unix.CAP_SYS_RESOURCE) {
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	j, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	j.landlock = 0 // with Landlock, calls would get the lesser cage: see lesserHost
	for _, l := range j.Diagnose(t.Context()) {
		if l.Err == nil {
			t.Errorf("%s is held", l.Name)
		}
		if l.Name == "userns" {
			wants(t, l.Err, "userns", "user.max_user_namespaces")
		}
	}
}

func TestDiagnoseMaskedProc(t *testing.T) {
	if lesser(t, "masked proc", unix.CAP_SYS_ADMIN) {
		return
	}
	if err := unix.Mount("tmpfs", "/proc/irq", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	j, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range j.Diagnose(t.Context()) {
		if l.Name == layerCgroup {
			continue // no group is delegated here
		}
		if (l.Err != nil) != (l.Name == "proc-private") {
			t.Errorf("%s: %v", l.Name, l.Err)
		}
		if l.Err != nil {
			wants(t, l.Err, "proc-private", "systempaths=unconfined")
		}
	}
}

const (
	goodStatus = "Name:\tcat\nNSpid:\t2\nNSsid:\t2\nCapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
	goodLimits = "Limit Soft Limit Hard Limit Units\nMax cpu time unlimited unlimited seconds\nMax core file size   1   1   bytes\n"
	goodMounts = "1 0 0:1 / / ro,nosuid - tmpfs tmpfs rw\n2 1 0:2 / /tmp rw,nosuid,nodev,noexec - tmpfs tmpfs rw\n"
	goodGroup  = "4:memory:/\n0::/\n"
	goodNet    = "Inter-|   Receive\n face |bytes\n    lo:       0\n"
	goodSpaces = "user:[1]\nmnt:[1]\npid:[1]\nnet:[1]\nipc:[1]\nuts:[1]\ncgroup:[1]\n"
)

// promised returns layers that are visible from inside.
func promised() (layers []Layer) {
	for _, name := range []string{"userns", "mountns", "pidns", "netns", "ipcns", "utsns", "cgroupns", "caps-none", "no-new-privs",
		"seccomp", "session", "rlimits", "root-readonly", "tmp-private"} {
		layers = append(layers, Layer{Name: name})
	}
	return layers
}

// TestCompare changes the evidence of each layer in turn, and checks that only this layer is blamed.
func TestCompare(t *testing.T) {
	good := goodStatus + goodLimits + goodMounts + goodGroup + goodNet
	for name, c := range map[string]struct{ from, to, blamed string }{
		"good":         {"", "", ""},
		"capability":   {"CapBnd:\t0000", "CapBnd:\t0001", "caps-none"},
		"no set":       {"CapAmb:\t0000\n", "", "caps-none"},
		"new privs":    {"NoNewPrivs:\t1", "NoNewPrivs:\t0", "no-new-privs"},
		"no filter":    {"Seccomp:\t2", "Seccomp:\t0", "seccomp"},
		"session":      {"NSsid:\t2", "NSsid:\t0", "session"},
		"core dumps":   {"size   1   1", "size   0   0", "rlimits"},
		"writable":     {"/ / ro", "/ / rw", "root-readonly"},
		"mounted over": {"2 1 0:2 / /tmp", "3 1 0:3 / / rw - tmpfs x rw\n2 1 0:2 / /tmp", "root-readonly"},
		"a group seen": {"4:memory:/", "4:memory:/bailey-0", "cgroupns"},
		"no group":     {goodGroup, "", "cgroupns"},
		"executable":   {",noexec", "", "tmp-private"},
		"a network":    {"    lo:", "  eth0: 1\n    lo:", "netns"},
		"no table":     {goodNet, "", "netns"},
	} {
		text := good
		if c.from != "" {
			text = strings.Replace(good, c.from, c.to, 1)
			if text == good {
				t.Fatalf("%s changes nothing", name)
			}
		}
		var blamed []string
		for _, l := range compareLayers(promised(), cageObservation{ours: strings.ReplaceAll(goodSpaces, "1", "2"), theirs: goodSpaces, text: text}) {
			if l.Err != nil {
				blamed = append(blamed, l.Name)
			}
		}
		if got := strings.Join(blamed, " "); got != c.blamed {
			t.Errorf("%s: %q is blamed, want %q", name, got, c.blamed)
		}
	}
	for _, theirs := range []string{"", goodSpaces, "user:[1]\n", "\n\n\n\n\n\n\n"} {
		for _, l := range compareLayers(promised(), cageObservation{ours: goodSpaces, theirs: theirs, text: good}) {
			if l.Err == nil && strings.HasSuffix(l.Name, "ns") {
				t.Errorf("%s is held by %q", l.Name, theirs)
			}
		}
	}
}

// FuzzCompare checks any text: the output of a program in a cage must not be trusted.
func FuzzCompare(f *testing.F) {
	f.Add(goodSpaces, goodStatus+goodLimits+goodMounts+goodGroup+goodNet)
	f.Add("\n", "Max\nCapInh:\nInter-|:\n- - - - / - - - - -")
	f.Fuzz(func(t *testing.T, theirs, text string) {
		for _, l := range compareLayers(promised(), cageObservation{ours: "", theirs: theirs, text: text}) {
			if strings.HasSuffix(l.Name, "ns") && l.Err == nil {
				t.Errorf("%s is held though our own is unknown", l.Name)
			}
		}
	})
}
