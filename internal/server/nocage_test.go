package server

import (
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
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/settings"
	"bailey/internal/workspace"
)

// TestRulesElsewhere checks that the rule for calls without a cage is in force only on a platform without a cage.
func TestRulesElsewhere(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for bare, want := range map[bool]bailey.Effect{true: bailey.Allow, false: bailey.Deny} {
		s := &Server{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Bare: bare}
		_, err := s.NewGate(localapi.Home(filepath.Join(t.TempDir(), "home")), nil)
		defer s.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, cage := range []string{"none", "seatbelt"} {
			d := s.Rules.Decide(bailey.Request{Capability: "system.date", Principal: bailey.Principal{Agent: "local"}, Target: bailey.Target{Kind: "local"}, Input: map[string]any{"format": "%s"}, Cage: cage, Time: time.Now()})
			if d.Effect != want {
				t.Errorf("without a cage %v, cage %s: %v %s", bare, cage, d.Effect, d.Reason)
			}
		}
	}
}

func TestStatusElsewhere(t *testing.T) {
	c := bareCage()
	if c.Kind != "none" || c.Layers == nil || len(c.Layers) != 0 || c.Summary() != "none; "+apitype.Disabled {
		t.Errorf("%+v: %s", c, c.Summary())
	}
	if f := apitype.BareFinding(); f.State != apitype.Warning || f.Cure == "" || f.Tried != apitype.Disabled {
		t.Errorf("%+v", f)
	}
}

// TestToolsThatMayRun checks that an agent is offered a tool only if the current policy could allow some call of it.
func TestToolsThatMayRun(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	offered := func(more string) (ids []bailey.CapabilityID) {
		rules, err := policy.Load(policy.Config{Actions: policyfiles.Actions(catalog), Sources: []policy.Source{policy.Starter(), {Name: "own.cedar", Text: []byte(more)}}})
		if err != nil {
			t.Fatal(err)
		}
		none := gateway.OpenProfiles(localapi.Home(t.TempDir()), workspace.NewWorkspaces(nil, nil), settings.InUse{}, nil, slog.New(slog.DiscardHandler))
		s := &Server{hosts: newHostAccess(localapi.Home(t.TempDir()), nil), shelf: newShelf(catalog, none, func(command string) bool { return command == "git" }), Rules: FixedRules(rules)}
		for _, tool := range (mcpBackend{s: s}).Tools(t.Context(), bailey.Principal{Agent: "local"}) {
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
