//go:build linux

package direct

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/server"
	"bailey/pack"
)

// onboards drafts a pack for a real tool in real cages, and loads it as a pack that is not built in.
func onboards(t *testing.T, tool string) *pack.Catalog {
	t.Helper()
	cages, err := server.OpenJail(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cages.Close()
	p := &toolProber{app: &cli.App{Stderr: io.Discard}, cages: cages, tool: tool}
	if _, err := p.planFirstProbe(t.Context(), onboardFlags{tool: tool}); err != nil {
		t.Fatal(err)
	}
	draft, err := p.draftPack(t.Context(), onboardFlags{tool: tool, depth: 1})
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := pack.Load(fstest.MapFS{tool + "/pack.yaml": {Data: draft.YAML}})
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}

// TestOnboardedToolIsCalled drafts a pack from the help of jq. The default policy must deny its calls. With a rule that
// names the capability, the call must run on files of the workspace only.
func TestOnboardedToolIsCalled(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "jq")
	catalog := onboards(t, "jq")
	named := policy.Source{Name: "own.cedar", Text: []byte(`@id("jq") permit (principal, action == Action::"jq.run", resource);`)}
	dir := t.TempDir()
	for name, text := range map[string]string{"facts.json": `{"walls": ["north", "south"]}`, "other.json": `{}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		rules policy.Source
		input map[string]any
		ran   bool
		says  string
	}{
		{policy.Starter(), map[string]any{"jq_filter": ".walls[1]", "file": "facts.json"}, false, ""},
		{named, map[string]any{"jq_filter": ".walls[1]", "file": "facts.json", "r": true}, true, "south\n"},
		{named, map[string]any{"jq_filter": "--version", "file": "facts.json"}, false, ""},
		{named, map[string]any{"jq_filter": `input_filename, ("/etc/hostname" | test("x"))`, "file": "other.json"}, true, "other.json"},
		{named, map[string]any{"jq_filter": ".", "file": "/etc/hostname"}, false, ""},
	} {
		rules, err := policy.Load(policy.Config{Actions: policyfiles.Actions(catalog), Sources: []policy.Source{row.rules}})
		if err != nil {
			t.Fatal(err)
		}
		s := &server.Server{Catalog: catalog, Rules: server.FixedRules(rules), Log: slog.New(slog.DiscardHandler)}
		if _, err := s.NewGate(localapi.Home(t.TempDir()), nil); err != nil {
			t.Fatal(err)
		}
		r := s.Gate.Do(t.Context(), bailey.Call{
			Capability: "jq.run", Input: row.input, Door: "cli", Dir: dir,
			Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: bailey.NewSessionID()},
		})
		s.Close()
		if r.Executed != row.ran || !strings.Contains(string(r.Stdout), row.says) || row.ran != (r.Err == nil) {
			t.Errorf("%v: %s, %s%s (%v), want %q", row.input, r.Status, r.Stdout, r.Stderr, r.Err, row.says)
		}
	}
}

// cageless plans as on a platform without a cage.
type cageless struct {
	bailey.PlainRunner
	bailey.Run
}

func (cageless) Plan(context.Context, bailey.Job) (bailey.Run, error) { return cageless{}, nil }

func (cageless) Cage() bailey.Cage { return bailey.Cage{Kind: "none"} }

func (cageless) Close() error { return nil }

// TestOnboardWantsACage checks that without a cage no tool runs.
func TestOnboardWantsACage(t *testing.T) {
	p := &toolProber{app: &cli.App{Stderr: io.Discard}, cages: cageless{}, tool: "jq"}
	if _, err := p.planFirstProbe(t.Context(), onboardFlags{tool: "jq"}); !errors.Is(err, bailey.Unavailable) {
		t.Error(err)
	}
}
