package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/policy"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/internal/wire"
	"bailey/pack"
)

// policyEvent is the kind of the ledger entry for a policy that took effect. Its data is an [appliedPolicy].
const policyEvent = "policy.apply"

// appliedPolicy is the policy that an operator applied last. The zero value is the built-in starter policy.
type appliedPolicy struct {
	Digest   string        `json:"digest"`        // of all its files, see policyFiles
	Policy   string        `json:"policy"`        // digest of the rules, as in receipts
	Dir      string        `json:"dir,omitempty"` // where they were
	Rules    int           `json:"rules"`         // number of rules
	Tests    int           `json:"tests"`         // number that passed
	Budgets  int           `json:"budgets"`
	Signer   *policySigner `json:"signer,omitempty"` // signer of the digest
	At       time.Time     `json:"at,omitzero"`
	Since    []budgetSince `json:"budgetsSince,omitempty"`
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// budgetSince is the time at which a budget began to count in its current way.
type budgetSince struct {
	ID string    `json:"id"`
	At time.Time `json:"at"`
}

// policySigner is the owner of the SSH key that signed a policy.
type policySigner struct {
	Name  string `json:"name"`
	Key   string `json:"key"`   // its fingerprint, SHA256:…
	Touch bool   `json:"touch"` // it was touched
}

// edition is a policy that was loaded completely.
type edition struct {
	files   policyFiles
	catalog *pack.Catalog // the catalog whose actions engine knows
	engine  *policy.Engine
	budgets []bailey.Budget
	tests   int
	fault   error // why nothing is allowed
}

// rulebook is the policy in force. The files of a policy are read only when an operator applies them, never because
// they changed. The applied policy is stored outside the ledger under its digest, and the ledger contains the digest.
type rulebook struct {
	home    wire.Home
	catalog *pack.Catalog   // guarded by mu after openRulebook returns
	actions []policy.Action // of catalog
	bare    bool
	meter   *gateway.Budgets
	signers func() []string // trusted signers; if there are none, no signature is required
	note    func(ctx context.Context, kind string, data any) error
	log     *slog.Logger

	now atomic.Pointer[edition]

	mu      sync.Mutex // serializes commands; guards applied
	applied appliedPolicy
}

// openRulebook puts the policy that was applied last into use. If it is missing or does not load with the current
// packs, the gateway starts and denies everything, because a running gateway is needed to apply another policy.
func openRulebook(r *rulebook, last appliedPolicy) (*rulebook, error) {
	r.applied, r.actions = last, actions(r.catalog)
	e, err := r.last()
	if last.Digest == "" && err != nil {
		return nil, err
	}
	if err != nil {
		e.fault = &bailey.Error{Kind: bailey.Unavailable, Message: noPolicy, Err: err,
			Hint: "bailey policy check and bailey policy apply, or bailey policy apply --starter"}
		e.engine, _ = policy.Load(policy.Config{Actions: r.actions}) // without rules it denies everything
		r.log.Error("the policy is not used", "why", err)
	}
	if e.engine == nil {
		return nil, e.fault
	}
	r.use(e)
	return r, nil
}

// last loads the policy that was applied last.
func (r *rulebook) last() (edition, error) {
	if r.applied.Digest == "" {
		return r.load(policyFiles{Rules: rules(r.bare)})
	}
	files, err := r.kept(r.applied.Digest)
	if err != nil {
		return edition{}, err
	}
	return r.load(files)
}

func (r *rulebook) use(e edition) {
	for i := range e.budgets {
		for _, s := range r.applied.Since {
			if s.ID == e.budgets[i].ID {
				e.budgets[i].Since = s.At
			}
		}
	}
	r.now.Store(&e)
	r.meter.Set(e.budgets)
}

// Stock puts other packs into use for the rules in force. The rules must load with these packs: rules about a missing
// capability would no longer mean what the operator intended. After that check Stock calls first, which must record the
// reason. If first fails, nothing changes.
func (r *rulebook) Stock(c *pack.Catalog, first func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	then := &rulebook{home: r.home, catalog: c, actions: actions(c), bare: r.bare, applied: r.applied}
	e, err := then.last()
	if err != nil {
		return &bailey.Error{Kind: bailey.Conflict, Message: "the policy in use does not load with these packs", Err: err,
			Hint: "bailey policy apply one that does, first"}
	}
	if err := first(); err != nil {
		return err
	}
	r.catalog, r.actions = c, then.actions
	r.use(e)
	return nil
}

// load makes an edition from files. The rules and budgets must be valid, and the tests must pass.
func (r *rulebook) load(f policyFiles) (edition, error) { return loadPolicy(f, r.catalog, r.actions) }

func loadPolicy(f policyFiles, catalog *pack.Catalog, acts []policy.Action) (e edition, err error) {
	e.files, e.catalog = f, catalog
	if e.engine, err = policy.Load(policy.Config{Sources: f.Rules, Actions: acts}); err != nil {
		return e, err
	}
	for _, s := range f.Budgets {
		if e.budgets, err = e.engine.Budgets(s); err != nil {
			return e, err
		}
	}
	var tests []policy.Test
	for _, s := range f.Tests {
		list, err := policy.ParseTests(s)
		if err != nil {
			return e, err
		}
		tests = append(tests, list...)
	}
	e.tests = len(tests)
	return e, failed(e.engine.Test(tests, fitting(catalog)))
}

// fitting checks the input of a test like that of a call.
func fitting(catalog *pack.Catalog) policy.Fit {
	return func(id bailey.CapabilityID, input map[string]any) (map[string]any, bool, []string, error) {
		m, err := catalog.Lookup(id)
		if err != nil {
			return nil, false, nil, err
		}
		typed, err := m.Check(input, false)
		if err != nil {
			return nil, false, nil, err
		}
		egress, err := m.Egress(typed)
		return typed, m.Writes(), egress, err
	}
}

// failed returns an error that lists the failed tests, or nil.
func failed(tests []policy.Failure) error {
	if len(tests) == 0 {
		return nil
	}
	const shown = 50
	var lines []string
	for i, f := range tests {
		if i == shown {
			lines = append(lines, fmt.Sprintf("and %d more", len(tests)-shown))
			break
		}
		lines = append(lines, strings.ReplaceAll(f.String(), "\n  ", "; "))
	}
	return &bailey.Error{Kind: bailey.Invalid, Message: "the policy does not do what its tests say:\n  " + strings.Join(lines, "\n  "),
		Hint: "correct the rule or the test; bailey policy check runs them again"}
}

const noPolicy = "the policy that was applied last cannot be used, so nothing is allowed"

// Decide implements the gate's policy. If no policy could be loaded, the denial names no rule. It omits the load error,
// which quotes rules at length and is meant for operators.
func (r *rulebook) Decide(q bailey.Request) bailey.Decision {
	e := r.now.Load()
	if e.fault != nil {
		return bailey.Decision{Reason: noPolicy, Hint: bailey.HintOf(e.fault)}
	}
	if e.other(q) {
		return bailey.Decision{Reason: fmt.Sprintf("another manifest of %s came while this call was under way", q.Capability), Hint: "call again"}
	}
	return e.engine.Decide(q)
}

// other reports whether the call uses another manifest than the one whose class the rules examine, because packs were
// replaced after the lookup of the capability.
func (e *edition) other(q bailey.Request) bool {
	if e.catalog == nil || q.Manifest == "" {
		return false
	}
	m, err := e.catalog.Lookup(q.Capability)
	return err == nil && m.Digest != q.Manifest
}

// Engine returns the rules in force.
func (r *rulebook) Engine() *policy.Engine { return r.now.Load().engine }

// Applied returns the policy that an operator applied last.
func (r *rulebook) Applied() appliedPolicy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// keptPolicies is the directory in the home that keeps every applied policy under its digest.
const keptPolicies = "policies"

// kept reads a policy that was applied. It returns an error if the content does not match the digest.
func (r *rulebook) kept(digest string) (f policyFiles, err error) {
	if len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "" {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%q is no digest of a policy", digest)}
	}
	text, err := os.ReadFile(filepath.Join(string(r.home), keptPolicies, digest+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return f, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no policy %.12s is kept", digest), Hint: "the files of " + keptPolicies + " in the home are named by the digests of those there are"}
	}
	if err != nil {
		return f, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var list []keptFile
	if err := d.Decode(&list); err != nil {
		return f, fmt.Errorf("%s/%s.json: %w", keptPolicies, digest, err)
	}
	for _, k := range list {
		if err := f.add(policy.Source{Name: k.Name, Text: []byte(k.Text)}); err != nil {
			return f, err
		}
	}
	if f.digest() != digest {
		return f, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the policy kept as %.12s is another one", digest), Hint: "somebody changed " + keptPolicies + " in the home"}
	}
	return f, nil
}

type keptFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// keep stores the files under their digest. They are durable before the ledger names them.
func (r *rulebook) keep(f policyFiles) error {
	var list []keptFile
	for _, s := range f.all() {
		list = append(list, keptFile{s.Name, string(s.Text)})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	root, err := safefile.OpenDir(string(r.home), keptPolicies)
	if err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the policy cannot be kept", Err: err, Hint: "look at the home's mode and the disk's space"}
	}
	defer root.Close()
	return safefile.Replace(root, f.digest()+".json", text, 0o600, func() error { return nil })
}

// status fills in the policy in force.
func (r *rulebook) status(s *status) {
	if applied := r.Applied(); applied.Policy != "" {
		s.Applied = &applied
	}
	if e := r.now.Load(); e.fault != nil {
		s.Fault = withHint(e.fault)
	}
	s.Drift = r.drift()
}

func (s status) policyWords() string {
	words := s.Policy
	switch {
	case s.Fault != "":
		return "NOTHING IS ALLOWED: " + terminal.Shown(s.Fault)
	case s.Applied == nil || s.Applied.Dir == "":
		words += ", built in"
	default:
		words += fmt.Sprintf(", %s of %s, applied %s by %s", counts(s.Applied.Rules, "rule"), terminal.Shown(s.Applied.Dir), s.Applied.At.Format(time.RFC3339), cell(s.Applied.Person))
	}
	if s.Applied != nil && s.Applied.Signer != nil {
		words += ", signed by " + cell(s.Applied.Signer.Name)
	}
	return words
}
