package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/jail"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/settings"
	"bailey/internal/workspace"
	"bailey/pack"
)

// filesPack has two features that no built-in pack has: a file as input, and a credential that is passed in a file.
const filesPack = `
name: files
version: 1.0.0
capabilities:
  - name: send
    risk: high
    sideEffectClass: mutating
    reversibility: irreversible
    backend: {type: subprocess, command: cat, args: [--, "{{ input.file }}"]}
    preview: {args: [--, "{{ input.file }}"]}
    inputSchema: {type: object, required: [file], properties: {file: {type: string, format: path}}}
  - name: token
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    backend: {type: subprocess, command: cat, args: [--, /run/bailey/secrets/TOKEN_FILE]}
    credentials: [{name: token, env: TOKEN_FILE, file: true}]
    inputSchema: {type: object}
`

// office is a gate with real workspaces, a real redactor and real cages. The test is the policy and the approver.
type office struct {
	t      *testing.T
	gate   *gate.Gate
	dir    string
	asked  []bailey.Question
	answer func(q bailey.Question) // runs while the approver reads the question
	files  []bailey.LentFile
	env    []string // the lent variables
	ways   EgressPlanner
	sealed []bailey.Outcome
	refuse bool
	open   bool                              // no approval is needed
	before func()                            // runs before a granted call starts
	look   func(j bailey.Job) (after func()) // runs before and after each preview command
}

func newOffice(t *testing.T) *office {
	return officeOf(t, fstest.MapFS{"files/pack.yaml": {Data: []byte(filesPack)}})
}

func officeOf(t *testing.T, packs fs.FS) *office {
	t.Helper()
	ktest.Require(t, "userns", "netns", "cat")
	o := &office{t: t, ways: EgressPlanner{Settings: func() settings.Network { return settings.Network{} }}, dir: filepath.Join(t.TempDir(), "yard"), answer: func(bailey.Question) {}, before: func() {}, look: func(bailey.Job) func() { return func() {} }}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	catalog, err := pack.LoadBuiltin(packs)
	if err != nil {
		t.Fatal(err)
	}
	cages, err := jail.New(jail.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cages.Close() })
	none := gateway.OpenProfiles(localapi.Home(t.TempDir()), workspace.NewWorkspaces(nil, nil), settings.InUse{}, nil, slog.New(slog.DiscardHandler))
	o.gate, err = gate.New(gate.Config{
		Ledger: o, Catalog: newShelf(catalog, none, cages.Installed), Places: namedYard{workspace.NewWorkspaces(nil, nil)}, Policy: o, Hooks: gate.NoHooks{}, Approver: o, Budgets: gate.Unbounded{},
		Lender: o, Egress: &o.ways, Redactor: gateway.NewRedaction(), Runners: map[pack.Isolation]bailey.Runner{pack.Jail: watched{cages, o}}, Host: "h", Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *office) Open(context.Context, bailey.Intent) (func(bailey.Outcome) error, error) {
	return func(out bailey.Outcome) error { o.sealed = append(o.sealed, out); return nil }, nil
}

func (o *office) Decide(r bailey.Request) bailey.Decision {
	if len(r.Approvals) > 0 || o.open || r.Capability == "files.token" {
		return bailey.Decision{Effect: bailey.Allow}
	}
	return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{{ID: "ask"}}}
}

func (o *office) Ask(_ context.Context, q bailey.Question) (bailey.Answer, error) {
	o.asked = append(o.asked, q)
	o.answer(q)
	if o.refuse {
		return bailey.Answer{Pending: true}, nil
	}
	return bailey.Answer{Granted: []bailey.RuleID{"ask"}}, nil
}

// namedYard treats each workspace as one that the settings name: an input is writable if its manifest says so.
type namedYard struct{ *workspace.Workspaces }

func (n namedYard) Open(call bailey.Call, in pack.PathInput, path string) (bailey.Place, error) {
	write := in.Write
	in.Write = false
	p, err := n.Workspaces.Open(call, in, path)
	p.Write = write
	return p, err
}

// watched wraps cages. It calls look around each preview command, and before when the call itself starts.
type watched struct {
	bailey.Runner
	o *office
}

func (w watched) Plan(ctx context.Context, j bailey.Job) (bailey.Run, error) {
	run, err := w.Runner.Plan(ctx, j)
	return watchedRun{run, w.o, j, !w.o.open && !slices.ContainsFunc(j.Places, func(p bailey.Place) bool { return p.Write })}, err
}

type watchedRun struct {
	bailey.Run
	o    *office
	job  bailey.Job
	look bool
}

func (r watchedRun) Start(ctx context.Context, lent bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
	if r.look {
		defer r.o.look(r.job)()
	} else {
		r.o.before()
	}
	return r.Run.Start(ctx, lent, s)
}

func (o *office) Parked(string) (bailey.Heard, bool) { return bailey.Heard{}, false }

func (o *office) End(bailey.SessionID) {}

func (o *office) Scope(context.Context, []bailey.Want) ([]bailey.LeaseScope, error) { return nil, nil }

func (o *office) Lend(_ context.Context, l bailey.Loan) (bailey.Lease, error) {
	if len(l.Wants) == 0 {
		return bailey.Lease{}, nil
	}
	return bailey.Lease{IDs: []string{"l-1"}, Env: slices.Clone(o.env), Files: o.files}, nil
}

func (o *office) call(id bailey.CapabilityID, input map[string]any) bailey.Result {
	return o.gate.Do(o.t.Context(), bailey.Call{Capability: id, Input: input, Door: "test", Dir: o.dir, Principal: bailey.Principal{Agent: "a"}, Session: bailey.Session{ID: "s-1"}})
}

func (o *office) write(name, content string) {
	o.t.Helper()
	if err := os.WriteFile(filepath.Join(o.dir, name), []byte(content), 0o644); err != nil {
		o.t.Fatal(err)
	}
}

// TestAttackFileAfterTheAnswer changes a file after a person granted the call, for example through a symlink. The tool
// must get the content that was shown.
func TestAttackFileAfterTheAnswer(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for name, attack := range map[string]func(o *office, path string) error{
		"written": func(o *office, p string) error { o.write("mail", "evil"); return nil },
		"replaced": func(o *office, p string) error {
			o.write("evil", "evil")
			return os.Rename(filepath.Join(o.dir, "evil"), p)
		},
		"linked":  func(o *office, p string) error { o.write("evil", "evil"); os.Remove(p); return os.Symlink("evil", p) },
		"removed": func(_ *office, p string) error { return os.Remove(p) },
		"through another name": func(o *office, p string) error {
			if err := os.Link(p, p+".link"); err != nil {
				return err
			}
			o.write("mail.link", "evil")
			return nil
		},
	} {
		o := newOffice(t)
		o.write("mail", "harmless")
		o.answer = func(bailey.Question) {
			if err := attack(o, filepath.Join(o.dir, "mail")); err != nil {
				t.Error(name, err)
			}
		}
		res := o.call("files.send", map[string]any{"file": "mail"})
		if res.Err != nil || string(res.Stdout) != "harmless" {
			t.Errorf("%s: %q, %v", name, res.Stdout, res.Err)
		}
		q := o.asked[0]
		if q.Contents != bailey.Bound || len(q.Files) != 1 || q.Files[0].Size != 8 || q.Preview.Output.Text != "harmless" {
			t.Errorf("%s: contents %s, %+v, %q", name, q.Contents, q.Files, q.Preview.Output.Text)
		}
	}
}

// TestAttackFileOfAParkedCall checks that a repeated call must ask again if the content of its file changed.
func TestAttackFileOfAParkedCall(t *testing.T) {
	o := newOffice(t)
	o.refuse = true
	key := []byte("the home's")
	subject := func() string {
		t.Helper()
		if res := o.call("files.send", map[string]any{"file": "mail"}); !errors.Is(res.Err, bailey.Denied) || res.Executed {
			t.Fatal(res.Err)
		}
		s, _ := approvaltext.Subject(o.asked[len(o.asked)-1], key)
		return s
	}
	o.write("mail", "harmless")
	first := subject()
	if again := subject(); again != first {
		t.Error("the same call is another one")
	}
	o.write("mail", "harmles5") // of the same length
	if subject() == first {
		t.Error("another content is the same call: an answer to the one would let the other through")
	}
	os.Remove(filepath.Join(o.dir, "mail"))
	o.write("mail", "harmless")
	if subject() != first {
		t.Error("the same content in another file is another call")
	}
}

// TestLentFileIsRedacted checks that a credential from a lent file is redacted in the output of the tool, and that the
// next call cannot read it.
func TestLentFileIsRedacted(t *testing.T) {
	o := newOffice(t)
	o.files = []bailey.LentFile{{Env: "TOKEN_FILE", Value: bailey.NewSecret("kSd83jfLwq0\n")}}
	res := o.call("files.token", nil)
	if res.Err != nil || strings.Contains(string(res.Stdout), "kSd83") || !strings.Contains(string(res.Stdout), "[REDACTED_LEASE_1]") {
		t.Errorf("%q, %v", res.Stdout, res.Err)
	}
	o.files = nil
	if res := o.call("files.token", nil); res.Err == nil || res.Executed || strings.Contains(res.Err.Error(), "kSd83") {
		t.Errorf("a call that was lent nothing ran: %q, %v", res.Stdout, res.Err)
	}
}
