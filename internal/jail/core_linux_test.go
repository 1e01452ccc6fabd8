package jail

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestDumped checks when a crash in a cage reaches a program outside, which Lacks must report.
func TestDumped(t *testing.T) {
	for _, c := range []struct {
		pattern string
		most    uint64
		want    bool
	}{{"core", 0, false}, {"core", 1 << 63, false}, {"|/usr/lib/systemd/systemd-coredump %P", 1 << 63, false}, {"|/usr/lib/systemd/systemd-coredump %P", 1, false},
		{"|/usr/lib/systemd/systemd-coredump %P", 0, true}, {"@/run/coredump.socket", 1 << 63, true}, {"@@/run/coredump.socket", 0, true}, {"", 0, false}} {
		if got := isDumpExposed(c.pattern, c.most); got != c.want {
			t.Errorf("%q up to %d: %v", c.pattern, c.most, got)
		}
	}
}

// machineEnv says that the machine belongs to the test: its settings may be changed.
const machineEnv = "BAILEY_OWN_MACHINE"

// TestAttackCoreHandler checks that no crash in a cage reaches the handler in core_pattern, even if the tool lowers its
// limit first. The kernel starts it as root, outside every cage, with the memory of the crashed process; a limit of 0
// does not prevent this.
func TestAttackCoreHandler(t *testing.T) {
	if os.Getenv(machineEnv) == "" {
		ktest.Missing(t, "own-machine", errors.New(machineEnv+" is not set"))
	}
	const pattern, caught = "/proc/sys/kernel/core_pattern", "/caught"
	old, err := os.ReadFile(pattern)
	if err == nil {
		err = os.WriteFile(pattern, []byte("|"+probe+" catch "+caught), 0)
	}
	if err == nil {
		err = os.WriteFile("/proc/sys/kernel/core_pipe_limit", []byte("16"), 0) // makes the kernel wait for the handler
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(pattern, old, 0); os.Remove(caught) })
	came := func() bool {
		_, err := os.Stat(caught)
		os.Remove(caught)
		return err == nil
	}
	if out, err := exec.Command(probe, "crash", "0").CombinedOutput(); !came() {
		t.Fatalf("a crash outside does not reach the handler, so this shows nothing: %v, %.200s", err, out)
	}
	exec.Command(probe, "crash", "1").Run()
	if came() {
		t.Fatal("a limit of 1 does not stop it on this kernel")
	}
	j := plainJail(t, Config{})
	for range 3 { // in a new cage, and in the cage of a helper
		for _, args := range [][]string{{"crash"}, {"crash", "0"}, {"crash", "4096"}} {
			r := ask(t, j, bailey.Job{}, args...)
			if r.err != nil || r.exit.Code == 0 {
				t.Fatalf("%v: %+v", args, r)
			}
			if came() {
				t.Errorf("%v: the handler had the memory", args)
			}
		}
	}
}
