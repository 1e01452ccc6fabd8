//go:build linux

package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/terminal"
	"bailey/pack"
)

// bookForTest returns a rulebook in its own home, and the policies that it recorded.
func bookForTest(t *testing.T, last apitype.AppliedPolicy) (*policyStore, *[]apitype.AppliedPolicy) {
	t.Helper()
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	var noted []apitype.AppliedPolicy
	r, err := openPolicyStore(&policyStore{
		home: localapi.Home(t.TempDir()), catalog: catalog, meter: gateway.NewBudgets(nil), log: slog.New(slog.DiscardHandler),
		signers: func() []string { return nil },
		note: func(_ context.Context, kind string, data any) error {
			if kind != apitype.PolicyEvent {
				return fmt.Errorf("noted %s", kind)
			}
			noted = append(noted, data.(apitype.AppliedPolicy))
			return nil
		},
	}, last)
	if err != nil {
		t.Fatal(err)
	}
	return r, &noted
}

const allowsDate = `@id("dates") permit (principal, action == Action::"system.date", resource);` + "\n"

// rulesIn writes files into a new directory.
func rulesIn(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func asksFor(dir, digest, base string) apitype.PolicyRequest {
	return apitype.PolicyRequest{Dir: dir, Digest: digest, Base: base}
}

// byOperator is the caller of the commands.
var byOperator = gateway.Caller{Operator: localapi.Env}

// TestPolicyDirIsAPipe checks that a pipe in place of the policy directory, or of the one that was applied, does not
// block the gateway.
func TestPolicyDirIsAPipe(t *testing.T) {
	ktest.Long(t)
	r, _ := bookForTest(t, apitype.AppliedPolicy{})
	pipe := filepath.Join(t.TempDir(), "policy")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	now := r.now.Load()
	now.applied.Dir = pipe
	r.now.Restore(now)
	for name, look := range map[string]func() error{
		"compare": func() error {
			_, err := r.previewPolicy(t.Context(), asksFor(pipe, "", ""), byOperator)
			return err
		},
		"drift": func() error { return errors.New(r.describeDrift()) },
	} {
		said := make(chan error, 1)
		go func() { said <- look() }()
		select {
		case err := <-said:
			if err == nil || !strings.Contains(err.Error(), "cannot be read") {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s waits for the pipe", name)
			if w, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil { // unblocks the reader
				w.Close()
			}
			<-said
		}
	}
}

// TestPolicyFileNames checks that a policy file is rejected if its name cannot be shown, for example because of control
// characters. Operators must see exactly what takes effect.
func TestPolicyFileNames(t *testing.T) {
	for _, name := range []string{"a\x1b[2J.test.yaml", "a\n  + b.test.yaml", "a\xff.cedar", "a\xff.test.yaml", "a\u202eb.test.yaml", "a\u200b.cedar"} {
		dir := rulesIn(t, map[string]string{"a.cedar": allowsDate})
		text := "tests: []\n"
		if strings.HasSuffix(name, ".cedar") {
			text = "// none\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := policyfiles.ReadDir(dir); bailey.KindOf(err) != bailey.Invalid || strings.ContainsFunc(err.Error(), terminal.Strange) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestApplyIsWhatWasShown checks that apply is refused if the files changed since they were shown, or if another policy
// was applied. The applied policy must be stored first, and recorded.
func TestApplyIsWhatWasShown(t *testing.T) {
	ktest.Long(t)
	r, noted := bookForTest(t, apitype.AppliedPolicy{})
	dir := rulesIn(t, map[string]string{"a.cedar": allowsDate})
	p, err := r.previewPolicy(t.Context(), asksFor(dir, "", ""), byOperator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.applyPolicy(t.Context(), asksFor(dir, p.Digest, "another"), byOperator); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("held against another: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.cedar"), []byte("// none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.applyPolicy(t.Context(), asksFor(dir, p.Digest, ""), byOperator); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("a file more: %v", err)
	}
	if len(*noted) != 0 || r.Applied().Digest != "" || r.now.Load().Files.Digest() == p.Digest {
		t.Fatalf("applied all the same: %+v", *noted)
	}
	if err := os.Remove(filepath.Join(dir, "b.cedar")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.applyPolicy(t.Context(), asksFor(dir, p.Digest, ""), gateway.Caller{Call: bailey.Call{Principal: bailey.Principal{Person: "ada"}}, Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
	if n := *noted; len(n) != 1 || n[0].Digest != p.Digest || n[0].Operator != localapi.Env || n[0].Person != "ada" || !reflect.DeepEqual(n[0], r.Applied()) {
		t.Errorf("%+v", n)
	}
	if f, err := r.readStored(p.Digest); err != nil || f.Digest() != p.Digest {
		t.Errorf("%+v %v", f, err)
	}
}

// TestApplyWithoutRecord checks that a policy has no effect if it cannot be stored or recorded.
func TestApplyWithoutRecord(t *testing.T) {
	ktest.Long(t)
	dir := rulesIn(t, map[string]string{"a.cedar": allowsDate})
	for name, spoil := range map[string]func(*policyStore){
		"kept": func(r *policyStore) {
			if err := os.WriteFile(filepath.Join(string(r.home), keptPolicies), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"noted": func(r *policyStore) {
			r.note = func(context.Context, string, any) error { return errors.New("the disk is full") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := bookForTest(t, apitype.AppliedPolicy{})
			before := r.Engine().Digest()
			seen, err := r.previewPolicy(t.Context(), asksFor(dir, "", ""), byOperator)
			if err != nil {
				t.Fatal(err)
			}
			spoil(r)
			if _, err := r.applyPolicy(t.Context(), asksFor(dir, seen.Digest, ""), byOperator); err == nil {
				t.Error("applied")
			}
			if r.Engine().Digest() != before || r.Applied().Policy != "" {
				t.Errorf("it takes effect: %+v", r.Applied())
			}
		})
	}
}

// TestKeptPolicyIsTheOne checks that a stored policy is read only by its digest. If the content does not match, every
// call must be denied.
func TestKeptPolicyIsTheOne(t *testing.T) {
	ktest.Long(t)
	r, _ := bookForTest(t, apitype.AppliedPolicy{})
	dir := rulesIn(t, map[string]string{"a.cedar": allowsDate})
	f, err := policyfiles.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.storeFiles(f); err != nil {
		t.Fatal(err)
	}
	for _, digest := range []string{"", "../policies/" + f.Digest()[:52], strings.ToUpper(f.Digest()), f.Digest()[:63], f.Digest() + "0"} {
		if _, err := r.readStored(digest); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%q: %v", digest, err)
		}
	}
	if _, err := r.readStored(strings.Repeat("0", 64)); bailey.KindOf(err) != bailey.NotFound {
		t.Errorf("nobody's: %v", err)
	}
	file := filepath.Join(string(r.home), keptPolicies, f.Digest()+".json")
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	for name, text := range map[string]string{
		"another rule": `[{"name":"a.cedar","text":"@id(\"all\") permit (principal, action == Action::\"system.echo\", resource);"}]`,
		"another name": fmt.Sprintf(`[{"name":"b.cedar","text":%q}]`, allowsDate),
		"nothing":      `[]`,
		"a field more": fmt.Sprintf(`[{"name":"a.cedar","text":%q,"more":1}]`, allowsDate),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.readStored(f.Digest()); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
		again, err := openPolicyStore(&policyStore{home: r.home, catalog: r.catalog, meter: r.meter, log: r.log}, apitype.AppliedPolicy{Digest: f.Digest(), Policy: "p", Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if d := again.Decide(bailey.Request{Capability: "system.date"}); d.Effect != bailey.Deny || !strings.HasSuffix(d.Reason, "nothing is allowed") || d.Hint == "" {
			t.Errorf("%s: an agent is told: %+v", name, d)
		}
		var s apitype.Status
		if again.fillStatus(&s); !strings.Contains(s.Fault, "nothing is allowed: ") {
			t.Errorf("%s: a person is told: %s", name, s.Fault)
		}
	}
}

// TestBudgetsAtStart checks that a call with a budget is refused until the ledger was read. After that the budget must
// contain the past usage. Dry runs and denied calls do not count.
func TestBudgetsAtStart(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns")
	s := spineForTest(t)
	call := func(dry bool) error {
		return s.Gate.Do(t.Context(), bailey.Call{Capability: "system.date", Door: "cli", Dir: t.TempDir(), Principal: bailey.Principal{Agent: "a", Person: "ada"}, DryRun: dry, Session: bailey.Session{ID: bailey.NewSessionID()}}).Err
	}
	if err := errors.Join(call(false), call(true), call(false)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.kill.Kill(t.Context(), "", ""); err != nil || call(false) == nil {
		t.Fatal(err)
	}
	if _, err := s.kill.Resume(t.Context(), gateway.Resumed{}); err != nil {
		t.Fatal(err)
	}
	s.since = time.Now()
	s.budgets.Set([]bailey.Budget{{ID: "few", Agent: true, Within: time.Hour, Calls: 3}})
	s.holdBudgets()
	if err := call(false); bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(err.Error(), "still being read") {
		t.Errorf("held: %v", err)
	}
	s.recallBudgets(t.Context())
	if b := s.budgets.State(); len(b) != 1 || b[0].Calls != 2 || b[0].Wall <= 0 {
		t.Errorf("%+v", b)
	}
	if err := call(false); err != nil {
		t.Errorf("the third: %v", err)
	}
	if err := call(false); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("the fourth: %v", err)
	}
}

// TestSignerIsAsked checks that if the settings name signers, a policy without a signature by one of them is neither
// shown as applicable nor applied.
func TestSignerIsAsked(t *testing.T) {
	ktest.Long(t)
	r, noted := bookForTest(t, apitype.AppliedPolicy{})
	dir := rulesIn(t, map[string]string{"a.cedar": allowsDate})
	seen, err := r.previewPolicy(t.Context(), asksFor(dir, "", ""), byOperator)
	if err != nil {
		t.Fatal(err)
	}
	r.signers = func() []string {
		return []string{"ada ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"}
	}
	for name, q := range map[string]apitype.PolicyRequest{"unsigned": asksFor(dir, seen.Digest, ""), "built in": asksFor("", seen.Digest, "")} {
		if _, err := r.previewPolicy(t.Context(), q, byOperator); bailey.KindOf(err) != bailey.Denied || bailey.HintOf(err) == "" {
			t.Errorf("%s is shown: %v", name, err)
		}
		if _, err := r.applyPolicy(t.Context(), q, byOperator); bailey.KindOf(err) != bailey.Denied {
			t.Errorf("%s is applied: %v", name, err)
		}
	}
	q := asksFor(dir, seen.Digest, "")
	q.Signature = "no signature"
	if _, err := r.applyPolicy(t.Context(), q, byOperator); bailey.KindOf(err) != bailey.Invalid {
		t.Errorf("badly signed: %v", err)
	}
	r.signers = func() []string { return nil }
	if _, err := r.applyPolicy(t.Context(), q, byOperator); bailey.KindOf(err) != bailey.Denied || len(*noted) > 0 {
		t.Errorf("signed where nobody is trusted: %v, noted %v", err, *noted)
	}
	if _, err := r.previewPolicy(t.Context(), asksFor("policy", "", ""), byOperator); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), "absolute") {
		t.Errorf("relative to the gateway's own directory: %v", err)
	}
}

// TestApplyDiffers checks that Differs depends on the policy in force and its origin: built in or applied files.
func TestApplyDiffers(t *testing.T) {
	ktest.Long(t)
	r, _ := bookForTest(t, apitype.AppliedPolicy{})
	differs := func(dir string) bool {
		t.Helper()
		seen, err := r.previewPolicy(t.Context(), asksFor(dir, "", ""), byOperator)
		if err != nil {
			t.Fatal(err)
		}
		return seen.Differs
	}
	same := rulesIn(t, map[string]string{policy.Starter().Name: string(policy.Starter().Text)})
	if differs("") || !differs(same) {
		t.Errorf("of what is built in: built in %v, its files %v", differs(""), differs(same))
	}
	seen, _ := r.previewPolicy(t.Context(), asksFor(same, "", ""), byOperator)
	if _, err := r.applyPolicy(t.Context(), asksFor(same, seen.Digest, ""), byOperator); err != nil {
		t.Fatal(err)
	}
	if !differs("") || differs(same) {
		t.Errorf("of its files: built in %v, its files %v", differs(""), differs(same))
	}
	e := r.now.Load()
	e.Fault = errors.New("it is gone")
	r.now.Restore(e)
	if !differs(same) {
		t.Error("what cannot be used is in use")
	}
}

// TestKeptIsRead checks that a new gateway uses the applied policy with its budgets. If the policy's tests fail with
// the gateway's packs, nothing may be allowed.
func TestKeptIsRead(t *testing.T) {
	ktest.Long(t)
	r, _ := bookForTest(t, apitype.AppliedPolicy{})
	dir := rulesIn(t, map[string]string{
		"a.cedar": allowsDate, "budgets.yaml": "budgets:\n  - {id: few, calls: 1}\n",
		"a.test.yaml": "tests:\n  - {name: the date, call: system.date, expect: allow}\n",
	})
	seen, err := r.previewPolicy(t.Context(), asksFor(dir, "", ""), byOperator)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.applyPolicy(t.Context(), asksFor(dir, seen.Digest, ""), byOperator); err != nil {
		t.Fatal(err)
	}
	open := func(c *pack.Catalog) *policyStore {
		again, err := openPolicyStore(&policyStore{home: r.home, catalog: c, meter: gateway.NewBudgets(nil), log: r.log}, r.Applied())
		if err != nil {
			t.Fatal(err)
		}
		return again
	}
	again := open(r.catalog)
	if again.Engine().Digest() != r.Engine().Digest() || len(again.meter.State()) != 1 || again.now.Load().Fault != nil || !reflect.DeepEqual(again.Applied(), r.Applied()) {
		t.Errorf("%+v, fault %v", again.Applied(), again.now.Load().Fault)
	}
	none, err := pack.Load(fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	again = open(none)
	if d := again.Decide(bailey.Request{Capability: "system.date"}); again.now.Load().Fault == nil || d.Effect != bailey.Deny || d.Reason != noPolicy || !reflect.DeepEqual(again.Applied(), r.Applied()) {
		t.Errorf("other packs: %+v, fault %v", d, again.now.Load().Fault)
	}
}

// TestAppliesAreOneByOne checks that if several policies are based on the same one, only one of them is applied.
func TestAppliesAreOneByOne(t *testing.T) {
	ktest.Long(t)
	r, _ := bookForTest(t, apitype.AppliedPolicy{})
	r.note = func(context.Context, string, any) error { time.Sleep(50 * time.Millisecond); return nil }
	var all sync.WaitGroup
	var applied atomic.Int64
	for i := range 4 {
		dir := rulesIn(t, map[string]string{"a.cedar": allowsDate, "b.cedar": fmt.Sprintf("// %d\n", i)})
		seen, err := r.previewPolicy(t.Context(), asksFor(dir, "", ""), byOperator)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if _, err := r.applyPolicy(t.Context(), asksFor(dir, seen.Digest, ""), byOperator); err == nil {
				applied.Add(1)
			}
		})
	}
	all.Wait()
	if n := applied.Load(); n != 1 {
		t.Errorf("%d were applied", n)
	}
}

// TestStopReason checks that the reason for a stop is short and redacted, because every agent sees it. The stop must
// complete even if its caller is gone.
func TestStopReason(t *testing.T) {
	ktest.Long(t)
	s := spineForTest(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct{ reason, want string }{
		{"it reads ghp_" + strings.Repeat("a1B2", 9), "it reads [REDACTED_"}, {strings.Repeat("x", 2*apitype.MaxKillReason+1), ""},
	} {
		from := gateway.Caller{Call: bailey.Call{Session: bailey.Session{ID: bailey.NewSessionID()}}}
		if _, err := s.killCalls(gone, apitype.KillRequest{Reason: c.reason}, from); err != nil {
			t.Fatal(err)
		}
		if k := s.kill.State(); !k.On() || !strings.HasPrefix(k.Reason, c.want) || len(k.Reason) > apitype.MaxKillReason || strings.Contains(k.Reason, "ghp_") {
			t.Errorf("%+v", k)
		}
		if _, err := s.kill.Resume(t.Context(), gateway.Resumed{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBudgetsOfManyCalls checks that each receipt counts once, even if the index needs several answers to return them
// all.
func TestBudgetsOfManyCalls(t *testing.T) {
	ktest.Long(t)
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	writeReceipts(t, filepath.Join(home, "ledger"), 1500)
	s := &Server{Log: slog.New(slog.DiscardHandler), home: localapi.Home(home), since: time.Now()}
	t.Cleanup(s.Close)
	var err error
	if s.workspaces, err = s.NewGate(s.home, nil); err != nil {
		t.Fatal(err)
	}
	s.budgets.Set([]bailey.Budget{{ID: "ever", Agent: true, Within: 100 * 365 * 24 * time.Hour, Calls: 1}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.rememberBudgets(ctx); err != nil {
		t.Fatal(err)
	}
	if b := s.budgets.State(); len(b) != 1 || b[0].Calls != 1500 {
		t.Errorf("%+v", b)
	}
}

// TestStockKeepsTheRules checks that packs can change while the same rules stay in force. If the rules refer to a
// missing capability, the change must be refused, and nothing may change.
func TestStockKeepsTheRules(t *testing.T) {
	ktest.Long(t)
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	r, err := openPolicyStore(&policyStore{home: localapi.Home(t.TempDir()), catalog: catalog, meter: gateway.NewBudgets(nil), log: slog.New(slog.DiscardHandler)}, apitype.AppliedPolicy{})
	if err != nil {
		t.Fatal(err)
	}
	before := r.Engine()
	if err := r.Stock(catalog, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if r.Engine() == before || r.Engine().Digest() != before.Digest() {
		t.Error("the rules are others, or did not load again")
	}
	before = r.Engine()
	few, err := pack.LoadBuiltin(fstest.MapFS{"t/pack.yaml": {Data: []byte(`name: t
version: 1.0.0
capabilities:
  - {name: put, backend: {type: subprocess, command: "true"}, risk: low, sideEffectClass: readOnly, reversibility: readOnly}
`)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stock(few, func() error { t.Error("it is recorded"); return nil }); !errors.Is(err, bailey.Conflict) || r.Engine() != before {
		t.Errorf("rules about what is gone: %v", err)
	}
}

// TestDecidesByTheManifestThatRuns checks that a call is not decided by the properties of another manifest with the
// same name, if packs changed after the call started.
func TestDecidesByTheManifestThatRuns(t *testing.T) {
	with := func(side string) *pack.Catalog {
		c, err := pack.LoadBuiltin(fstest.MapFS{"t/pack.yaml": {Data: []byte(strings.Replace(`name: t
version: 1.0.0
capabilities:
  - {name: put, backend: {type: subprocess, command: "true"}, risk: low, sideEffectClass: SIDE, reversibility: reversible}
`, "SIDE", side, 1))}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	r := &policyStore{meter: gateway.NewBudgets(nil), log: slog.New(slog.DiscardHandler)}
	in := func(c *pack.Catalog) policyfiles.Edition {
		e, err := policyfiles.Load(policyfiles.Files{Rules: []policy.Source{{Name: "a.cedar", Text: []byte(`@id("look") @reason("it looks") permit (principal, action in Action::"sideEffect:readOnly", resource);`)}}}, c)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	strong, mild := with("destructive"), with("readOnly")
	ask := func(c *pack.Catalog) bailey.Decision {
		m, err := c.Lookup("t.put")
		if err != nil {
			t.Fatal(err)
		}
		return r.Decide(bailey.Request{Capability: m.ID, Manifest: m.Digest, Principal: bailey.Principal{Agent: "a"}, Session: bailey.Session{ID: "s"},
			Target: bailey.Target{Kind: "local"}, Cage: "full", Time: time.Now()})
	}
	r.Use(in(mild))
	if d := ask(mild); d.Effect != bailey.Allow {
		t.Fatal(d)
	}
	if d := ask(strong); d.Effect != bailey.Deny || !strings.Contains(d.Reason, "manifest of t.put was changed") {
		t.Errorf("%+v", d)
	}
}
