package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gateway"
	"bailey/pack"
	"bailey/packs"
)

// bookOf is a rulebook with the starter policy, whose notes go to note.
func bookOf(t *testing.T, note func(kind string, data any) error) *rulebook {
	t.Helper()
	catalog, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	r, err := openRulebook(&rulebook{home: gateway.Home(t.TempDir()), catalog: catalog, meter: gateway.NewBudgets(nil), signers: func() []string { return nil },
		note: func(_ context.Context, kind string, data any) error { return note(kind, data) }, log: slog.New(slog.NewTextHandler(io.Discard, nil))}, appliedPolicy{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// policyOf writes a policy that forbids one capability.
func policyOf(t *testing.T, dir, forbidden string) string {
	t.Helper()
	text := `@id("looks") permit (principal, action in Action::"builtin", resource);
@id("not-this") @reason("not ` + forbidden + `") forbid (principal, action == Action::"` + forbidden + `", resource);`
	if err := os.WriteFile(filepath.Join(dir, "own.cedar"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shownOf is the query that applies what a compare has shown.
func (r *rulebook) shownOf(t *testing.T, dir string) gateway.Query {
	t.Helper()
	q := gateway.Query{Verb: policyEvent, Operator: gateway.Env, Args: map[string]any{"dir": dir}}
	got, err := r.compare(t.Context(), q, bailey.Call{})
	if err != nil {
		t.Fatal(err)
	}
	p := got.(proposed)
	q.Args["digest"], q.Args["base"] = p.Digest, p.Applied.Digest
	return q
}

func (r *rulebook) says(id bailey.CapabilityID) bailey.Decision {
	input := map[string]any{}
	if id == "system.echo" {
		input["message"] = "x"
	}
	return r.Decide(bailey.Request{Capability: id, Principal: bailey.Principal{Agent: "a"}, Target: bailey.Target{Kind: "local"}, Cage: "full", Time: time.Now(), Input: input})
}

// TestApplyIsWhatWasShown: of two that were shown against one base the first is applied and the second refused, and so is
// a policy whose files changed since.
func TestApplyIsWhatWasShown(t *testing.T) {
	var noted atomic.Int64
	r := bookOf(t, func(string, any) error { noted.Add(1); return nil })
	a, b := policyOf(t, t.TempDir(), "system.date"), policyOf(t, t.TempDir(), "system.echo")
	shown := []gateway.Query{r.shownOf(t, a), r.shownOf(t, b)}
	var won, lost atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			switch _, err := r.apply(t.Context(), shown[i%2], bailey.Call{}); {
			case err == nil:
				won.Add(1)
			case bailey.KindOf(err) == bailey.Conflict:
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 || lost.Load() != 7 || noted.Load() != 1 {
		t.Errorf("%d applied, %d refused, %d noted", won.Load(), lost.Load(), noted.Load())
	}
	q := r.shownOf(t, a)
	policyOf(t, a, "git.log")
	if _, err := r.apply(t.Context(), q, bailey.Call{}); bailey.KindOf(err) != bailey.Conflict {
		t.Errorf("files that changed since they were shown: %v", err)
	}
}

// TestApplyChangesNothingHalf: what cannot be kept or recorded does not take effect.
func TestApplyChangesNothingHalf(t *testing.T) {
	full := errors.New("the disk is full")
	var fails atomic.Bool
	r := bookOf(t, func(string, any) error {
		if fails.Load() {
			return full
		}
		return nil
	})
	dir := policyOf(t, t.TempDir(), "system.date")
	q := r.shownOf(t, dir)
	before := r.says("system.date")
	if before.Effect != bailey.Allow {
		t.Fatalf("%+v", before)
	}
	unchanged := func(what string, err error) {
		t.Helper()
		if err == nil || r.says("system.date").Policy != before.Policy || r.Applied() != (appliedPolicy{}) {
			t.Errorf("%s: %v; in force %v", what, err, r.says("system.date"))
		}
	}
	fails.Store(true)
	_, err := r.apply(t.Context(), q, bailey.Call{})
	unchanged("not recorded", err)
	fails.Store(false)
	kept := filepath.Join(string(r.home), keptPolicies)
	if err := os.RemoveAll(kept); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = r.apply(t.Context(), q, bailey.Call{})
	unchanged("not kept", err)
	if err := os.Remove(kept); err != nil {
		t.Fatal(err)
	}
	if _, err := r.apply(t.Context(), q, bailey.Call{}); err != nil || r.says("system.date").Effect != bailey.Deny {
		t.Errorf("%v, %+v", err, r.says("system.date"))
	}
}

// TestKeptPolicyIsTheOne: a start uses what was applied, and nothing that somebody put in its place.
func TestKeptPolicyIsTheOne(t *testing.T) {
	r := bookOf(t, func(string, any) error { return nil })
	dir := policyOf(t, t.TempDir(), "system.date")
	if _, err := r.apply(t.Context(), r.shownOf(t, dir), bailey.Call{}); err != nil {
		t.Fatal(err)
	}
	again := func() *rulebook {
		t.Helper()
		n, err := openRulebook(&rulebook{home: r.home, catalog: r.catalog, meter: gateway.NewBudgets(nil), log: r.log}, r.Applied())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if d := again().says("system.date"); d.Effect != bailey.Deny || d.Reason != "not system.date" {
		t.Errorf("after a start: %+v", d)
	}
	file := filepath.Join(string(r.home), keptPolicies, r.Applied().Digest+".json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for what, now := range map[string]string{
		"changed": strings.ReplaceAll(string(text), "system.date", "system.echo"), "cut": string(text[:len(text)/2]), "empty": "", "another form": `{"files":[]}`,
		"a file more": strings.Replace(string(text), "[{", `[{"name":"more.cedar","text":""},{`, 1), "no such file": `[{"name":"../x","text":""}]`,
	} {
		if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, id := range []bailey.CapabilityID{"system.date", "system.echo"} {
			if d := again().says(id); d.Effect != bailey.Deny || !strings.Contains(d.Reason, "so nothing is allowed") || d.Hint == "" {
				t.Errorf("%s: %s: %+v", what, id, d)
			}
		}
	}
	os.Remove(file)
	if d := again().says("system.echo"); d.Effect != bailey.Deny {
		t.Errorf("gone: %+v", d)
	}
}
