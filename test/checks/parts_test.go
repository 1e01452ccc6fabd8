package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestElsewhere: a package of which another system has no file is nothing to complain about, one that does not compile there is.
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
	pkgs, err := c.packages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.elsewhere(t.Context(), pkgs); err != nil {
		t.Error(err)
	}
	write("here/one_windows.go", "package here\n\nvar one = two\n")
	if err := c.elsewhere(t.Context(), pkgs); err == nil || !strings.Contains(err.Error(), "undefined: two") {
		t.Error(err)
	}
}

// TestTail: long output loses the lines about passed tests before those that a test printed.
func TestTail(t *testing.T) {
	text := "a_test.go:1: this is why\n" + strings.Repeat("=== RUN   TestX\n    --- PASS: TestX/y (0.00s)\n", 50) + "--- FAIL: TestX (0.00s)\n"
	if got := tail(text, 40); got != "a_test.go:1: this is why\n--- FAIL: TestX (0.00s)\n" {
		t.Errorf("%q", got)
	}
	if got := tail("=== RUN\nx\n", 40); got != "=== RUN\nx\n" {
		t.Errorf("%q", got)
	}
	if got := tail(strings.Repeat("x\n", 50), 2); got != "… 49 lines before\nx\n" {
		t.Errorf("%q", got)
	}
}
