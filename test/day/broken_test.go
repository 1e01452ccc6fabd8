//go:build linux

package day

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/test/since"
)

// broken lists gates with one changed line, at least one for each stage that the scenario uses. The old text must occur
// in the file exactly once. hours lists, in order, the parts of the scenario that must notice the change, and the parts
// that they need.
var broken = []struct{ stage, law, file, old, new, hours string }{
	{"intent", "what an intent holds is redacted", "internal/gate/receipt.go",
		"inlineJSON(c.Redactor.Input(c.call.Session.ID, c.call.Input))", "inlineJSON(c.call.Input)", "history evening"},
	{"lookup", "the capability named is the one that runs", "internal/gate/course.go",
		"c.Catalog.Lookup(c.call.Capability)", `c.Catalog.Lookup("system.date")`, "history"},
	{"restore", "a secret's token stays a token", "internal/gateway/redaction.go",
		"Secrets: in.AcceptsSecret", "Secrets: redact.Categories()", "hidden"},
	{"restore", "an address opens the path it stands for", "internal/gateway/redaction.go",
		"Type: in.Format", `Type: ""`, "hidden"},
	{"check", "input is what the manifest describes", "internal/gate/course.go",
		"	if c.input, err = c.manifest.Check(c.input, c.text); err != nil {", "	if _, err = c.manifest.Check(c.input, c.text); false {", "mistakes"},
	{"check", "a path stays in the workspace", "internal/workspace/workspace.go",
		"	case !b.Hold(real):", "	case false:", "forbidden"},
	{"decide", "policy decides", "internal/gate/course.go",
		"	c.decision = c.Policy.Decide(c.policyRequest())\n", "	c.decision = bailey.Decision{Effect: bailey.Allow}\n", "byHand"},
	{"confirm", "the policy of now decides last", "internal/gate/course.go",
		"	d := c.Policy.Decide(c.policyRequest())\n", "	d := bailey.Decision{Effect: bailey.Allow}\n", "rules asked"},
	{"confirm", "nothing runs while everything is stopped", "internal/gateway/kill.go",
		"	if !killed.On() {\n", "	if true {\n", "rules"},
	{"budget", "what is used up refuses", "internal/gateway/budget.go",
		"		if bound := m.reachedLimit(l); bound != \"\" {", "		if bound := \"\"; bound != \"\" {", "rules"},
	{"run", "what was allowed runs", "internal/gate/course.go",
		"	exit, err := c.run.Start(ctx, bailey.Lent{Env: c.lease.Env, Files: c.lease.Files, Way: c.outerWay()}, bailey.Streams{Stdin: stdin, Stdout: c.stdout, Stderr: c.stderr})", "	_, exit, err := stdin, bailey.Exit{}, error(nil)", "history"},
	{"run", "a tool that failed is no success", "internal/gate/course.go",
		"	case exit.Code != 0:", "	case false:", "trapped"},
	{"cage", "there is no shell", "internal/jail/compose_linux.go",
		"	l.addTool(t, false)\n", "	l.addTool(t, false)\n	if sh, err := r.jail.tools.findTool(\"sh\"); err == nil {\n		l.addTool(sh, true)\n	}\n", "trapped"},
	{"redact", "output is redacted", "internal/gate/capture.go",
		"	if _, err := p.redact.Write(b); err != nil {", "	if _, err := p.limit.Write(b); err != nil {", "history"},
	{"redact", "the detectors hold for every session", "internal/gateway/redaction.go",
		"r.inForce.Load().NewTable()", "redact.NewTable()", "hidden"},
	{"outcome", "every exit is sealed", "internal/gate/gate.go",
		"	defer func() { res = c.sealReceipt(seal, recover()) }()", "	_ = seal\n	defer func() { res = c.buildResult(c.buildOutcome()) }()", "history evening"},
	{"ledger", "an entry's hash covers the one before", "audit/entry.go",
		"	d.Write(prev[:])\n", "	d.Write(make([]byte, len(prev)))\n", "history keep evening outsider"},
	{"ledger", "a plan stands before what names it", "internal/ledger/chain.go",
		"	if p == nil || c.plans", "	if true || c.plans", "history byHand keep evening outsider"},
	{"ledger", "what a dead gateway left open is closed as interrupted", "internal/ledger/recover.go",
		"Status: bailey.Interrupted,", "Status: bailey.OK,", "killedWithin evening"},
	{"door", "no call is said again to the next gateway", "internal/mcp/relay.go",
		`	case "notifications/initialized":`, `	case "notifications/initialized", "tools/call":`, "killedWithin evening"},
}

// TestTableIsDocumented checks that the table in docs/threat-model.md contains every row of broken.
func TestTableIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range broken {
		if row := "| " + b.stage + " | " + b.law + " | `" + b.file + "` |"; !strings.Contains(string(text), row) {
			t.Errorf("docs/threat-model.md lacks the row %s", row)
		}
	}
}

// TestTextsStandOnce checks that every row can be applied, whether or not it is due.
func TestTextsStandOnce(t *testing.T) {
	for _, b := range broken {
		text, err := os.ReadFile(filepath.Join("../..", b.file))
		if n := strings.Count(string(text), b.old); err != nil || n != 1 {
			t.Errorf("%s: %q stands %d times in %s, want once; %v", b.law, b.old, n, b.file, err)
		}
	}
}

// TestBrokenGates checks that each broken gate makes the hours fail that must notice it. The installed program is built
// with an overlay for the broken file; nothing on disk changes. TestDayInPieces checks that the same hours pass with
// the unchanged gate.
func TestBrokenGates(t *testing.T) {
	changes := since.Require(t)
	ktest.Require(t, "userns", "netns", "git", "go", "python3")
	left := 0
	for _, b := range broken {
		if !changes.File(b.file) && !changes.Below("test/day") {
			left++
			continue
		}
		t.Run(b.stage+": "+b.law, func(t *testing.T) {
			t.Parallel()
			out, err := liveApart(t, b.hours, overlay(t, b.file, b.old, b.new))
			switch {
			case err == nil:
				t.Fatalf("the hours %s did not notice:\n%s", b.hours, out)
			case !strings.Contains(out, begins):
				t.Fatalf("the day was not lived:\n%s", out)
			}
			t.Log(first(out))
		})
	}
	since.LeftOut(t, left, len(broken))
}

// TestDayInPieces checks that the hours of each broken gate pass with a gate that is not broken.
func TestDayInPieces(t *testing.T) {
	changes := since.Require(t)
	ktest.Require(t, "userns", "netns", "git", "go", "python3")
	if !changes.Below("test/day") {
		t.Skip("nothing below test/day changed since .ci/full passed")
	}
	var known []string
	for _, h := range (&day{}).hours() {
		known = append(known, h.id)
	}
	lived := map[string]bool{}
	for _, b := range broken {
		for id := range strings.FieldsSeq(b.hours) {
			if !slices.Contains(known, id) {
				t.Errorf("%s: the day has no hour %q", b.law, id)
			}
		}
		if lived[b.hours] {
			continue
		}
		lived[b.hours] = true
		t.Run(b.hours, func(t *testing.T) {
			t.Parallel()
			if out, err := liveApart(t, b.hours, ""); err != nil || !strings.Contains(out, begins) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// liveApart runs some hours of the scenario in a separate process, with or without an overlay.
func liveApart(t *testing.T, hours, overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestDayWithAnyClient$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), overlayEnv+"="+overlay, hoursEnv+"="+hours)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// first returns the first error of the scenario.
func first(out string) string {
	_, after, _ := strings.Cut(out, begins+"\n")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}

// overlay writes a broken file and the overlay list that replaces the original with it.
func overlay(t *testing.T, file, old, new string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%q stands %d times in %s, want once", old, n, file)
	}
	dir := t.TempDir()
	laid := filepath.Join(dir, filepath.Base(file))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: laid}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{laid: strings.Replace(string(text), old, new, 1), filepath.Join(dir, "overlay.json"): string(list)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "overlay.json")
}
