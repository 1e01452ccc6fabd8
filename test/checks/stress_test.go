package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStress checks that occasional failures are counted, that the count is stored, and that completed runs are not
// repeated.
func TestStress(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	runs := filepath.Join(t.TempDir(), "runs")
	c, out := module(t, `func TestSometimes(t *testing.T) {
	f, err := os.OpenFile("`+runs+`", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString("x")
	if n, _ := f.Seek(0, 2); n%10 == 0 {
		t.Error("the tenth time it fails")
	}
	if testing.Short() {
		t.Skip("short")
	}
}
`)
	pkg, dir := "m/other", filepath.Join(c.dir, "other")
	for range 2 { // the second time, all runs are complete
		tally, err := c.stressPackage(context.Background(), pkg, dir)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if tally.Short != shortRuns || tally.Full != fullRuns || tally.Failed["TestSometimes"] != (shortRuns+fullRuns)/10 || len(tally.Failed) != 1 {
			t.Errorf("%+v\n%s", tally, out)
		}
	}
	if text, err := os.ReadFile(runs); err != nil || len(text) != shortRuns+fullRuns {
		t.Errorf("it ran %d times, %v", len(text), err)
	}
	if !strings.Contains(out.String(), "the tenth time it fails") {
		t.Errorf("what failed is not shown:\n%s", out)
	}
	put(t, filepath.Join(dir, "more_test.go"), "package other\n")
	if source, err := c.sourceDigest(context.Background(), pkg); err != nil || source == "" {
		t.Fatal(err)
	} else if kept, err := os.ReadFile(filepath.Join(keptDir(), "stress-m-other.json")); err != nil || strings.Contains(string(kept), source) {
		t.Errorf("another source has the same digest, %v", err)
	}
}

// TestLoadEnds checks that the load processes end with the checks.
func TestLoadEnds(t *testing.T) {
	if os.Getenv("BAILEY_CHECKS_SPIN") != "" {
		if err := spinUntilEOF(); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Setenv("BAILEY_CHECKS_SPIN", "1")
	release, err := startLoad(context.Background(), "-test.run=^TestLoadEnds$")
	if err != nil {
		t.Fatal(err)
	}
	release() // waits for them
}
