package inside

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestParentIn(t *testing.T) {
	for stat, want := range map[string]int{
		"12 (sh) S 7 12 12 0":           7,
		"12 (a) S 1 ) R 4194304 9 ":     4194304,
		"12 (\n) S 3 (x)) Z 0 1":        0,
		"12 (sh) S 7":                   0,
		"12 (sh)":                       0,
		"12 (sh":                        0,
		"":                              0,
		"12 (sh) S -7 1":                0,
		"12 (sh) S 99999999999999999 1": 0,
	} {
		if got := parentIn([]byte(stat)); got != want {
			t.Errorf("%q: %d, want %d", stat, got, want)
		}
	}
}

// FuzzParentIn checks that a process cannot change its parent in stat by choosing its own name.
func FuzzParentIn(f *testing.F) {
	f.Add("sh", 7)
	f.Add("a) S 1 (", 3)
	f.Fuzz(func(t *testing.T, name string, parent int) {
		if parent < 0 || parent > 1<<22 {
			return
		}
		if got := parentIn(fmt.Appendf(nil, "12 (%s) S %d 12 0", name, parent)); got != parent {
			t.Errorf("by the name of %q the parent is %d, not %d", name, got, parent)
		}
		parentIn([]byte(name))
		if pids := pidsIn([]byte(name)); len(pids) > len(name) {
			t.Errorf("%q holds %v", name, pids)
		}
	})
}

func TestNumbers(t *testing.T) {
	for _, n := range []int{0, 7, 10, 4194304, 1 << 62} {
		if got := formatDecimal(n); got != strconv.Itoa(n) {
			t.Errorf("%d became %s", n, got)
		}
	}
	if got := pidsIn([]byte("1 22 333 ")); !slices.Equal(got, []int{1, 22, 333}) {
		t.Errorf("%v", got)
	}
	for _, s := range []string{"", "x", "1x", "-1", "99999999999"} {
		if n, ok := number10(s); ok {
			t.Errorf("%q is %d", s, n)
		}
	}
}

// TestChildren checks that both methods find two children: the kernel's list, and the parent of every process.
func TestChildren(t *testing.T) {
	var want []int
	for range 2 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestWaitsForever$")
		cmd.Env = append(os.Environ(), "BAILEY_WAITS=1")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer in.Close()
		want = append(want, cmd.Process.Pid)
	}
	slices.Sort(want)
	for name, list := range map[string][]int{"children": childPids(os.Getpid()), "claimants": childrenByScan(os.Getpid())} {
		slices.Sort(list)
		if !slices.Equal(list, want) {
			t.Errorf("%s: %v, want %v", name, list, want)
		}
	}
}

func TestWaitsForever(t *testing.T) {
	if os.Getenv("BAILEY_WAITS") != "" {
		bytes.NewBuffer(nil).ReadFrom(os.Stdin)
	}
}

// TestTrapWantsItsName checks that the program runs normally under any other name.
func TestTrapWantsItsName(t *testing.T) {
	for _, name := range []string{Name, Keeper + "x", "x" + Keeper, Stage[:5], ""} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestRoundTrip$", "-test.v")
		cmd.Args[0] = name
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestRoundTrip") {
			t.Errorf("as %q: %v\n%s", name, err, out)
		}
	}
	for _, name := range []string{Keeper, Stage} { // must fail without output if no gateway sends a start request
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestRoundTrip$", "-test.v")
		cmd.Args[0] = name
		if out, err := cmd.CombinedOutput(); err == nil || len(out) > 0 {
			t.Errorf("as %q: %v\n%s", name, err, out)
		}
	}
}
