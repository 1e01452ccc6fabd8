package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestElsewhere checks that a package without files for another system is accepted, and that one that does not compile
// there is reported.
func TestElsewhere(t *testing.T) {
	c, _ := module(t, "func TestOther(t *testing.T) {}\n")
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(c.dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(c.dir, name), text)
	}
	write("linux/one.go", "//go:build linux\n\npackage linux\n")
	write("here/one.go", "package here\n")
	pkgs, err := c.listPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.vetOtherSystems(t.Context(), pkgs); err != nil {
		t.Error(err)
	}
	write("here/one_windows.go", "package here\n\nvar one = two\n")
	if err := c.vetOtherSystems(t.Context(), pkgs); err == nil || !strings.Contains(err.Error(), "undefined: two") {
		t.Error(err)
	}
}

// TestTimeWasUp checks that the end of the fuzzing time is not treated as a failure and hides none.
func TestTimeWasUp(t *testing.T) {
	const begin = "fuzz: elapsed: 9s, execs: 68361 (7367/sec), new interesting: 77 (total: 81)\n"
	for out, want := range map[string]bool{
		begin + "--- FAIL: FuzzX (10.03s)\n    context deadline exceeded\nFAIL\nexit status 1\nFAIL\tx\t10.058s\n":                                                                       true,
		begin + "--- FAIL: FuzzX (3.03s)\n    --- FAIL: FuzzX (0.00s)\n        x_test.go:9: context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n": false,
		begin + "--- FAIL: FuzzX (3.03s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n":                                                     false,
		begin + "--- FAIL: FuzzX (3.03s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n":                                                                    false,
		begin + "ok  \tx\t9.2s\n": false,
		"":                        false,
	} {
		if timeWasUp(out) != want {
			t.Errorf("%q: want %t", out, want)
		}
	}
}

// TestTail checks that if the output is too long, lines about passed tests are dropped before lines that a test
// printed.
func TestTail(t *testing.T) {
	text := "a_test.go:1: this is why\n" + strings.Repeat("=== RUN   TestX\n    --- PASS: TestX/y (0.00s)\n", 50) + "--- FAIL: TestX (0.00s)\n"
	if got := lastLines(text, 40); got != "a_test.go:1: this is why\n--- FAIL: TestX (0.00s)\n" {
		t.Errorf("%q", got)
	}
	if got := lastLines("=== RUN\nx\n", 40); got != "=== RUN\nx\n" {
		t.Errorf("%q", got)
	}
	if got := lastLines(strings.Repeat("x\n", 50), 2); got != "… 49 lines before\nx\n" {
		t.Errorf("%q", got)
	}
}
