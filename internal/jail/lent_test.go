//go:build linux

package jail

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// keyed returns a job to which a file is lent.
func keyed(args ...string) bailey.Job {
	return bailey.Job{Command: probe, Args: args, FileNames: []string{"KEY_FILE"}}
}

func loaned(value string) bailey.Lent {
	return bailey.Lent{Files: []bailey.LentFile{{Env: "KEY_FILE", Value: bailey.NewSecret(value)}}}
}

func lentTo(t testing.TB, j *Jail, job bailey.Job, l bailey.Lent) (string, error) {
	t.Helper()
	r, err := j.Plan(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out strings.Builder
	_, err = r.Start(t.Context(), l, bailey.Streams{Stdout: &out, Stderr: &out})
	return out.String(), err
}

// TestLentFileIsInMemory checks that the file is in its own memory file system, and that the tool can only read it.
func TestLentFileIsInMemory(t *testing.T) {
	j := newJail(t, Config{})
	value := "-----BEGIN KEY-----\nhunter2\x00\xff\n"
	out, err := lentTo(t, j, keyed("lent", "KEY_FILE"), loaned(value))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/run/bailey/secrets/KEY_FILE <nil> <nil>\n", "type 1021994 mode 100400 uid 1000 readonly true\n", // TMPFS_MAGIC
		"write true\n", "chmod true remove true beside true\n", fmt.Sprintf("%q <nil>\n", value),
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}

// TestLentFileGoesWithItsCall checks that no later call sees the file, with a helper or without, nor does the host.
func TestLentFileGoesWithItsCall(t *testing.T) {
	j := plainJail(t, Config{})
	ktest.Require(t, "userns", "netns")
	for i := range 4 { // a helper would serve some of these calls
		value := fmt.Sprint("hunter", i)
		if out, err := lentTo(t, j, keyed("lent", "KEY_FILE"), loaned(value)); err != nil || !strings.Contains(out, fmt.Sprintf("%q", value)) {
			t.Fatalf("%q, %v", out, err)
		}
		r := ask(t, j, bailey.Job{}, "read", "/run/bailey/secrets/KEY_FILE")
		if strings.Contains(r.out, "ok") || !strings.Contains(r.out, "no such file") {
			t.Errorf("a call that was lent nothing reads %q", r.out)
		}
		if r, err := j.Plan(t.Context(), keyed("sees")); err != nil {
			t.Error(err)
		} else if r.Close(); len(r.Warm()) > 0 {
			t.Error("a helper would serve it, and hold the file")
		}
	}
	if _, err := os.Lstat(lentDir); err == nil {
		t.Error("the host has it")
	}
}

// TestLentFileIsInThePlan checks that the plan contains the file's path but neither its value nor its size, and differs
// without it.
func TestLentFileIsInThePlan(t *testing.T) {
	j := newJail(t, Config{})
	with, err := j.Plan(t.Context(), keyed("sees"))
	if err != nil {
		t.Fatal(err)
	}
	defer with.Close()
	without, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"sees"}, EnvNames: []string{"KEY_FILE"}})
	if err != nil {
		t.Fatal(err)
	}
	defer without.Close()
	if plan := with.Cage().Plan; !strings.Contains(plan, "lent \"KEY_FILE\" \"run/bailey/secrets/KEY_FILE\" 0400\n") {
		t.Error(plan)
	}
	if with.Cage().PlanDigest == without.Cage().PlanDigest {
		t.Error("the digest says nothing of it")
	}
	again, err := j.Plan(t.Context(), keyed("sees")) // from the cached plan
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Cage().PlanDigest != with.Cage().PlanDigest {
		t.Error("the same plan has another digest")
	}
}

// TestLentFileRefusals checks that exactly the planned files can be lent, and that no error contains a value.
func TestLentFileRefusals(t *testing.T) {
	j := newJail(t, Config{})
	other := loaned("hunter2")
	other.Files[0].Env = "OTHER"
	for name, l := range map[string]bailey.Lent{
		"nothing":   {},
		"another":   other,
		"twice":     {Files: append(loaned("hunter2").Files, loaned("hunter2").Files...)},
		"too large": loaned(strings.Repeat("hunter2", maxLent/7+1)),
	} {
		out, err := lentTo(t, j, keyed("sees"), l)
		if err == nil || out != "" || strings.Contains(fmt.Sprintf("%v %+v %s", err, l, bailey.HintOf(err)), "hunter2") {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	for _, name := range []string{"PATH", "1X", "a/../b", ""} {
		if r, err := j.Plan(t.Context(), bailey.Job{Command: probe, FileNames: []string{name}}); err == nil {
			r.Close()
			t.Errorf("%q was planned as a lent file", name)
		}
	}
	if out, err := lentTo(t, j, keyed("lent", "KEY_FILE"), loaned("")); err != nil || !strings.Contains(out, "\"\" <nil>\n") {
		t.Errorf("an empty value: %q, %v", out, err)
	}
}

// TestLentFileIsNowhereElse checks that the value is not in the host's command lines, in a readable environment, or on
// disk.
func TestLentFileIsNowhereElse(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	value := "needle-" + random(t)
	before := put(t, filepath.Join(t.TempDir(), "before"), "", 0o644)
	if err := os.Chtimes(before, time.Time{}, time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	r, err := j.Plan(t.Context(), keyed("sees"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out strings.Builder
	if _, err := r.Start(t.Context(), loaned(value), bailey.Streams{Stdout: &out}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), value) || !strings.Contains(out.String(), "KEY_FILE=/run/bailey/secrets/KEY_FILE") {
		t.Errorf("the tool's environment and arguments: %s", out.String())
	}
	if strings.Contains(fmt.Sprintf("%+v", r.(*run).plan), value) {
		t.Error("it is in the plan")
	}
	if len(r.(*run).loan) != 1 {
		t.Fatal("nothing was lent")
	}
	for _, f := range r.(*run).loan {
		if _, err := f.Stat(); err == nil {
			t.Error("the gateway still holds it")
		}
	}
	// Files last written before the value existed cannot contain it. One file does, to check the search.
	decoy := put(t, filepath.Join(t.TempDir(), "decoy"), value, 0o644)
	found, err := exec.Command("find", os.TempDir(), "-type", "f", "-newer", before, "-exec", "grep", "-lsF", value, "{}", "+").Output()
	if string(found) != decoy+"\n" {
		t.Errorf("on disk: %q, %v; only %s is to be found", found, err, decoy)
	}
}

func TestLesserLendsNoFiles(t *testing.T) {
	j := lesserJail(t, Config{})
	if _, err := j.Plan(t.Context(), keyed("sees")); bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(bailey.HintOf(err), "namespaces") {
		t.Errorf("%v (%s)", err, bailey.HintOf(err))
	}
	path := put(t, filepath.Join(j.open(t, false), "file"), "x", 0o644)
	if _, err := j.Plan(t.Context(), bailey.Job{Command: probe, Places: []bailey.Place{frozenPlace(t, path, "x")}}); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("a frozen file: %v", err)
	}
}

func TestBareLendsNoFiles(t *testing.T) {
	if _, err := systemBare.Plan(t.Context(), bailey.Job{Command: "sh", FileNames: []string{"KEY"}}); bailey.KindOf(err) != bailey.Unavailable {
		t.Error(err)
	}
	path := put(t, filepath.Join(t.TempDir(), "file"), "x", 0o644)
	if _, err := systemBare.Plan(t.Context(), bailey.Job{Command: "sh", Places: []bailey.Place{frozenPlace(t, path, "x")}}); bailey.KindOf(err) != bailey.Unavailable {
		t.Error(err)
	}
}
