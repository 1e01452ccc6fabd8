//go:build linux

package jail

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// lesserEnv names the restriction of the host under which the test runs.
const lesserEnv = "BAILEY_JAIL_LESSER"

// lesser runs the calling test again in its own user and mount namespace, as an ordinary user with these capabilities.
// It returns true in the parent.
func lesser(t *testing.T, wall string, caps ...uintptr) (parent bool) {
	t.Helper()
	if os.Getenv(lesserEnv) == wall {
		return false
	}
	ktest.Require(t, "userns", "netns")
	uid, gid := os.Geteuid(), os.Getegid()
	if uid == 0 {
		uid, gid = stranger, strangers
	}
	one := func(host int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 1000, HostID: host, Size: 1}}
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.count=1", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), lesserEnv+"="+wall, probeEnv+"="+probe, "BAILEY_KERNEL=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: one(uid), GidMappings: one(gid),
		GidMappingsEnableSetgroups: os.Geteuid() == 0, AmbientCaps: caps,
		Credential: &syscall.Credential{Uid: 1000, Gid: 1000, NoSetGroups: os.Geteuid() != 0}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("behind %s: %v\n%s", wall, err, out)
	}
	return true
}

// wants checks that an error names the layer and the remedy.
func wants(t *testing.T, err error, layer, hint string) {
	t.Helper()
	if bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(err.Error(), layer) || !strings.Contains(bailey.HintOf(err), hint) {
		t.Errorf("%v (%s): want layer %s and the cure %s", err, bailey.HintOf(err), layer, hint)
	}
}

func TestNoUserNamespaces(t *testing.T) {
	enough(t)
	if lesser(t, "no user namespaces", unix.CAP_SYS_RESOURCE) {
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	lesserHost(t, "userns", "user.max_user_namespaces")
}

func TestMaskedProc(t *testing.T) {
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
	wants(t, ask(t, j, bailey.Job{NeedsProc: true}, "exit", "0").err, "proc-private", "systempaths=unconfined")
	if r := ask(t, j, bailey.Job{}, "exit", "3").must(t); r.exit.Code != 3 {
		t.Errorf("without proc: %+v", r)
	}
}

// TestArmedKnowsItsMounts checks that if a mount is made or removed, all armed processes are replaced. Otherwise their
// cages would show hidden files or unmounted file systems.
func TestArmedKnowsItsMounts(t *testing.T) {
	ktest.Long(t)
	if lesser(t, "changing mounts", unix.CAP_SYS_ADMIN) {
		return
	}
	work := t.TempDir()
	sub := filepath.Join(work, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sub, "under"), []byte("hidden"), 0o644); err != nil {
		t.Fatal(err)
	}
	j := newJail(t, Config{})
	changed := false
	read := func(name, want string) {
		t.Helper()
		time.Sleep(100 * time.Millisecond) // gives other readers time to consume the mount event
		old := j.armedWhen(t, 3)
		if r := ask(t, j, bailey.Job{Places: []bailey.Place{place(t, work, false)}}, "read", filepath.Join(sub, name)).must(t); r.first() != want {
			t.Errorf("%s: %q, want %q", name, r.first(), want)
		}
		for pid := range j.armedWhen(t, 3) {
			if old[pid] && changed {
				t.Errorf("%s: %d waits for the next call", name, pid)
			}
		}
		changed = false
	}
	j.cages().stock.more = 2
	ask(t, j, bailey.Job{}, "exit", "0").must(t)
	read("under", "ok")
	if err := unix.Mount("tmpfs", sub, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	changed = true
	read("under", "no such file or directory")
	if err := os.WriteFile(filepath.Join(sub, "over"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	read("over", "ok")
	if err := unix.Unmount(sub, 0); err != nil {
		t.Fatal(err)
	}
	changed = true
	read("over", "no such file or directory")
	read("under", "ok")
}

// TestEveryStepMatters breaks each step of a plan in turn: the cage must refuse, and name the layer.
func TestEveryStepMatters(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	planned, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}, NeedsProc: true})
	if err != nil {
		t.Fatal(err)
	}
	defer planned.Close()
	whole := planned.(*run).plan
	for i := range whole.steps {
		broken := &plan{bounds: whole.bounds, steps: append([]step(nil), whole.steps...)}
		broken.steps[i].Op = 63 // an invalid operation
		r := &run{jail: j, plan: broken, timeout: probeTime, copied: planned.(*run).copied}
		exit, err := r.runInCage(context.Background(), whole.steps[len(whole.steps)-1].S, bailey.Streams{})
		if err == nil || exit.Code != -1 {
			t.Errorf("without step %d, %s: %+v, %v", i, whole.steps[i].formatLine(), exit, err)
		}
		if layer := whole.steps[i].layer; err != nil && !strings.Contains(err.Error(), layer) {
			t.Errorf("without step %d the error does not name layer %s: %v", i, layer, err)
		}
	}
}

// TestTrapRunsEarly checks that package inside is initialised before the expensive packages.
func TestTrapRunsEarly(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", probeEnv+"="+probe)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	trap, system := strings.Index(string(out), "init bailey/internal/jail/inside @"), strings.Index(string(out), "init os @")
	if system < 0 || trap < 0 || trap > system {
		t.Errorf("package inside is initialised at %d, package os at %d:\n%s", trap, system, out)
	}
}
