package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// TestStartsLight: every call of a shim, a client and a cage starts this program, so no package it links
// may take more than 0.3 ms to initialise. The least of several runs counts, which a busy machine does
// not change.
func TestStartsLight(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	const most, runs = 0.3, 10 // ms
	program := filepath.Join(t.TempDir(), "bailey")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	least := map[string]float64{}
	for range runs {
		cmd := exec.Command(program, "--version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		// init PACKAGE @0.95 ms, 0.13 ms clock, 28528 bytes, 374 allocs (runtime, "Environment Variables")
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			if len(f) < 6 || f[0] != "init" {
				continue
			}
			ms, err := strconv.ParseFloat(f[4], 64)
			if err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			if old, ok := least[f[1]]; !ok || ms < old {
				least[f[1]] = ms
			}
		}
	}
	if len(least) < 10 {
		t.Fatalf("only %d packages seen: the trace was not read", len(least))
	}
	for name, ms := range least {
		if ms > most {
			t.Errorf("%s takes %.2f ms to initialise, %.1f allowed", name, ms, most)
		}
	}
}
