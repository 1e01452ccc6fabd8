package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// TestStartsLight checks the work of package initialisation, because every client call and every cage starts this
// program. The test counts allocations and bytes, which do not depend on the load of the machine. The heaviest packages
// of today allocate 931 times and 81 kB, which takes 0.3 ms.
func TestStartsLight(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	const mostAllocs, mostBytes = 1200, 100_000
	program := filepath.Join(t.TempDir(), "bailey")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.Command(program, "--version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := 0
	// init PACKAGE @0.95 ms, 0.13 ms clock, 28528 bytes, 374 allocs (runtime, "Environment Variables")
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) < 11 || f[0] != "init" {
			continue
		}
		bytes, err := strconv.Atoi(f[7])
		allocs, aerr := strconv.Atoi(f[9])
		if err = errors.Join(err, aerr); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if seen++; allocs > mostAllocs || bytes > mostBytes {
			t.Errorf("%s allocates %d times and %d bytes to initialise; %d and %d are allowed", f[1], allocs, bytes, mostAllocs, mostBytes)
		}
	}
	if seen < 10 {
		t.Fatalf("only %d packages seen: the trace was not read", seen)
	}
}
