package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/policy"
	"bailey/internal/wire"
)

// TestSandboxDisabled checks that on a platform without a cage each of these commands prints the warning once when it
// starts. On other platforms the warning must not appear.
func TestSandboxDisabled(t *testing.T) {
	t.Setenv("BAILEY_HOME", "relative") // invalid, so that each command stops early
	for _, words := range []string{"run git.status", "serve", "gateway", "status", "doctor", "run git.status --json"} {
		for _, bare := range []bool{true, false} {
			var out, said bytes.Buffer
			a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &said, bare: bare}
			root := a.root()
			root.SetArgs(strings.Fields(words))
			if err := root.ExecuteContext(context.Background()); err == nil {
				t.Errorf("%s: went on", words)
			}
			if got := strings.Count(said.String(), "SANDBOX DISABLED"); (got == 1) != bare || got > 1 || strings.Contains(out.String(), "SANDBOX") {
				t.Errorf("%s, without a cage %v: stderr %q, stdout %q", words, bare, said.String(), out.String())
			}
		}
	}
}

// TestRulesElsewhere checks that the rule for calls without a cage is in force only on a platform without a cage.
func TestRulesElsewhere(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for bare, want := range map[bool]bailey.Effect{true: bailey.Allow, false: bailey.Deny} {
		s := &stack{log: slog.New(slog.NewTextHandler(io.Discard, nil)), bare: bare}
		_, err := s.spine(wire.Home(filepath.Join(t.TempDir(), "home")), nil)
		defer s.close()
		if err != nil {
			t.Fatal(err)
		}
		for _, cage := range []string{"none", "seatbelt"} {
			d := s.rules.Decide(bailey.Request{Capability: "system.date", Principal: bailey.Principal{Agent: "local"}, Target: bailey.Target{Kind: "local"}, Input: map[string]any{"format": "%s"}, Cage: cage, Time: time.Now()})
			if d.Effect != want {
				t.Errorf("without a cage %v, cage %s: %v %s", bare, cage, d.Effect, d.Reason)
			}
		}
	}
}

func TestStatusElsewhere(t *testing.T) {
	c := bareCage()
	if c.Kind != "none" || c.Layers == nil || len(c.Layers) != 0 || c.words() != "none; "+disabled {
		t.Errorf("%+v: %s", c, c.words())
	}
	if f := bareFinding(); f.State != warning || f.Cure == "" || f.Tried != disabled {
		t.Errorf("%+v", f)
	}
}

// fixedRules returns a rulebook whose rules do not change.
func fixedRules(e *policy.Engine) *rulebook {
	r := &rulebook{meter: gateway.NewBudgets(nil)}
	r.use(edition{engine: e})
	return r
}

// TestToolsThatMayRun checks that an agent is offered a tool only if the current policy could allow some call of it.
func TestToolsThatMayRun(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	catalog, err := builtIn()
	if err != nil {
		t.Fatal(err)
	}
	offered := func(more string) (ids []bailey.CapabilityID) {
		rules, err := policy.Load(policy.Config{Actions: actions(catalog), Sources: []policy.Source{policy.Starter(), {Name: "own.cedar", Text: []byte(more)}}})
		if err != nil {
			t.Fatal(err)
		}
		none := gateway.OpenProfiles(wire.Home(t.TempDir()), gateway.NewWorkspaces(nil, nil), gateway.InUse{}, nil, slog.New(slog.DiscardHandler))
		s := &stack{shelf: newShelf(catalog, none, func(command string) bool { return command == "git" }), rules: fixedRules(rules)}
		for _, tool := range (doorOfMCP{s: s}).Tools(t.Context(), bailey.Principal{Agent: "local"}) {
			ids = append(ids, tool.ID)
		}
		return ids
	}
	if ids := offered(""); !slices.Contains(ids, "git.log") || slices.Contains(ids, "git.commit") {
		t.Errorf("by the starter policy: %v", ids)
	}
	commits := `@id("commits") permit (principal, action == Action::"git.commit", resource) when { context.cage == "full" };`
	if ids := offered(commits); !slices.Contains(ids, "git.commit") || slices.Contains(ids, "git.push") {
		t.Errorf("with a rule for commits: %v", ids)
	}
	if ids := offered(strings.Replace(commits, "principal,", `principal == Agent::"other",`, 1)); slices.Contains(ids, "git.commit") {
		t.Errorf("with a rule for another agent: %v", ids)
	}
}
