//go:build linux

package direct

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
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
		r := callOnboarded(t, catalog, rules, "jq.run", row.input, dir)
		if r.Executed != row.ran || !strings.Contains(string(r.Stdout), row.says) || row.ran != (r.Err == nil) {
			t.Errorf("%v: %s, %s%s (%v), want %q", row.input, r.Status, r.Stdout, r.Stderr, r.Err, row.says)
		}
	}
}

// TestOnboardedReaders drafts packs from the helps of real programs and calls what only reads on real files.
func TestOnboardedReaders(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "tar", "systemctl")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "facts"), []byte("north wall\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", dir, "-cf", filepath.Join(dir, "a.tar"), "facts").CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	rows := []struct {
		tool  string
		id    bailey.CapabilityID
		input map[string]any
		says  string
	}{
		{"df", "df.run", map[string]any{"human_readable": true, "file": "facts"}, "Filesystem"},
		{"ls", "ls.run", map[string]any{"l": true, "file": "."}, "facts"},
		{"tar", "tar.list", map[string]any{"file": "a.tar"}, "facts\n"},
		{"systemctl", "systemctl.is-active", nil, ""},
	}
	if ktest.Has("rg") == nil {
		rows = append(rows, rows[0])
		rows[len(rows)-1].tool, rows[len(rows)-1].id = "rg", "rg.run"
		rows[len(rows)-1].input, rows[len(rows)-1].says = map[string]any{"pattern": "north", "path": "facts"}, "north wall"
	}
	for _, row := range rows {
		catalog := onboards(t, row.tool)
		m, err := catalog.Lookup(row.id)
		if err != nil || m.SideEffect != pack.ReadOnly {
			t.Errorf("%s: %v, or it does not only read", row.id, err)
			continue
		}
		if row.input == nil {
			continue // it needs a daemon
		}
		rules, err := policy.Load(policy.Config{Actions: policyfiles.Actions(catalog), Sources: []policy.Source{{Name: "own.cedar",
			Text: []byte(`@id("own") permit (principal, action == Action::"` + string(row.id) + `", resource);`)}}})
		if err != nil {
			t.Fatal(err)
		}
		if r := callOnboarded(t, catalog, rules, row.id, row.input, dir); !r.Executed || r.Err != nil || !strings.Contains(string(r.Stdout), row.says) {
			t.Errorf("%s %v: %s, %s%s (%v)", row.id, row.input, r.Status, r.Stdout, r.Stderr, r.Err)
		}
	}
}

// callOnboarded makes one call through a new gate.
func callOnboarded(t *testing.T, catalog *pack.Catalog, rules *policy.Engine, id bailey.CapabilityID,
	input map[string]any, dir string) bailey.Result {
	t.Helper()
	s := &server.Server{Catalog: catalog, Rules: server.FixedRules(rules), Log: slog.New(slog.DiscardHandler)}
	if _, err := s.NewGate(localapi.Home(t.TempDir()), nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Gate.Do(t.Context(), bailey.Call{Capability: id, Input: input, Door: "cli", Dir: dir,
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: bailey.NewSessionID()}})
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
