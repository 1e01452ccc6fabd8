package server

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

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/safefile"
	"bailey/pack"
)

// policyStore is the policy in force. The files of a policy are read only when an operator applies them, never because
// they changed. The applied policy is stored outside the ledger under its digest, and the ledger contains the digest.
type policyStore struct {
	home    localapi.Home
	catalog *pack.Catalog   // guarded by mu after openRulebook returns
	actions []policy.Action // of catalog
	bare    bool
	meter   *gateway.Budgets
	signers func() []string // trusted signers; if there are none, no signature is required
	note    func(ctx context.Context, kind string, data any) error
	log     *slog.Logger

	now atomic.Pointer[policyfiles.Edition]

	mu      sync.Mutex // serializes commands; guards applied
	applied apitype.AppliedPolicy
}

// openPolicyStore puts the policy that was applied last into use. If it is missing or does not load with the current
// packs, the gateway starts and denies everything, because a running gateway is needed to apply another policy.
func openPolicyStore(r *policyStore, last apitype.AppliedPolicy) (*policyStore, error) {
	r.applied, r.actions = last, policyfiles.Actions(r.catalog)
	e, err := r.last()
	if last.Digest == "" && err != nil {
		return nil, err
	}
	if err != nil {
		e.Fault = &bailey.Error{Kind: bailey.Unavailable, Message: noPolicy, Err: err,
			Hint: "bailey policy check and bailey policy apply, or bailey policy apply --starter"}
		e.Engine, _ = policy.Load(policy.Config{Actions: r.actions}) // without rules it denies everything
		r.log.Error("the policy is not used", "why", err)
	}
	if e.Engine == nil {
		return nil, e.Fault
	}
	r.Use(e)
	return r, nil
}

// last loads the policy that was applied last.
func (r *policyStore) last() (policyfiles.Edition, error) {
	if r.applied.Digest == "" {
		return r.load(policyfiles.Files{Rules: Rules(r.bare)})
	}
	files, err := r.kept(r.applied.Digest)
	if err != nil {
		return policyfiles.Edition{}, err
	}
	return r.load(files)
}

func (r *policyStore) Use(e policyfiles.Edition) {
	for i := range e.Budgets {
		for _, s := range r.applied.Since {
			if s.ID == e.Budgets[i].ID {
				e.Budgets[i].Since = s.At
			}
		}
	}
	r.now.Store(&e)
	r.meter.Set(e.Budgets)
}

// Stock puts other packs into use for the rules in force. The rules must load with these packs: rules about a missing
// capability would no longer mean what the operator intended. After that check Stock calls first, which must record the
// reason. If first fails, nothing changes.
func (r *policyStore) Stock(c *pack.Catalog, first func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	then := &policyStore{home: r.home, catalog: c, actions: policyfiles.Actions(c), bare: r.bare, applied: r.applied}
	e, err := then.last()
	if err != nil {
		return &bailey.Error{Kind: bailey.Conflict, Message: "the policy in use does not load with these packs", Err: err,
			Hint: "bailey policy apply one that does, first"}
	}
	if err := first(); err != nil {
		return err
	}
	r.catalog, r.actions = c, then.actions
	r.Use(e)
	return nil
}

// load makes an edition from files. The rules and budgets must be valid, and the tests must pass.
func (r *policyStore) load(f policyfiles.Files) (policyfiles.Edition, error) {
	return policyfiles.Load(f, r.catalog, r.actions)
}

const noPolicy = "the policy that was applied last cannot be used, so nothing is allowed"

// Decide implements the gate's policy. If no policy could be loaded, the denial names no rule. It omits the load error,
// which quotes rules at length and is meant for operators.
func (r *policyStore) Decide(q bailey.Request) bailey.Decision {
	e := r.now.Load()
	if e.Fault != nil {
		return bailey.Decision{Reason: noPolicy, Hint: bailey.HintOf(e.Fault)}
	}
	if e.Other(q) {
		return bailey.Decision{Reason: fmt.Sprintf("another manifest of %s came while this call was under way", q.Capability), Hint: "call again"}
	}
	return e.Engine.Decide(q)
}

// Engine returns the rules in force.
func (r *policyStore) Engine() *policy.Engine { return r.now.Load().Engine }

// Applied returns the policy that an operator applied last.
func (r *policyStore) Applied() apitype.AppliedPolicy {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.applied
}

// keptPolicies is the directory in the home that keeps every applied policy under its digest.
const keptPolicies = "policies"

// kept reads a policy that was applied. It returns an error if the content does not match the digest.
func (r *policyStore) kept(digest string) (f policyfiles.Files, err error) {
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
	var list []apitype.KeptFile
	if err := d.Decode(&list); err != nil {
		return f, fmt.Errorf("%s/%s.json: %w", keptPolicies, digest, err)
	}
	for _, k := range list {
		if err := f.Add(policy.Source{Name: k.Name, Text: []byte(k.Text)}); err != nil {
			return f, err
		}
	}
	if f.Digest() != digest {
		return f, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the policy kept as %.12s is another one", digest), Hint: "somebody changed " + keptPolicies + " in the home"}
	}
	return f, nil
}

// keep stores the files under their digest. They are durable before the ledger names them.
func (r *policyStore) keep(f policyfiles.Files) error {
	var list []apitype.KeptFile
	for _, s := range f.All() {
		list = append(list, apitype.KeptFile{Name: s.Name, Text: string(s.Text)})
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
	return safefile.Replace(root, f.Digest()+".json", text, 0o600, func() error { return nil })
}

// status fills in the policy in force.
func (r *policyStore) status(s *apitype.Status) {
	if applied := r.Applied(); applied.Policy != "" {
		s.Applied = &applied
	}
	if e := r.now.Load(); e.Fault != nil {
		s.Fault = apitype.WithHint(e.Fault)
	}
	s.Drift = r.drift()
}

// FixedRules returns rules that do not change, for benchmarks and tests.
func FixedRules(e *policy.Engine) *policyStore {
	r := &policyStore{meter: gateway.NewBudgets(nil)}
	r.Use(policyfiles.Edition{Engine: e})
	return r
}
