//go:build linux

package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/descope/virtualwebauthn"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/approve"
	"bailey/internal/enrol"
	"bailey/internal/fleet"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/ktest/browser"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policyfiles"
	"bailey/internal/settings"
)

// reportedEvents keeps what a gateway tells its control plane.
type reportedEvents struct {
	mu     sync.Mutex
	events []fleet.Event
}

func (o *reportedEvents) Report(kind string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fleet.Event{Kind: kind, Body: body})
	return nil
}

// last returns the last event of a kind.
func (o *reportedEvents) last(t *testing.T, kind string, into any) bool {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.events) - 1; i >= 0; i-- {
		if o.events[i].Kind == kind {
			if err := json.Unmarshal(o.events[i].Body, into); err != nil {
				t.Fatal(err)
			}
			return true
		}
	}
	return false
}

// command sends a command as the control plane does.
func command[O any](t *testing.T, s *Server, kind string, body any) (out O, err error) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	result, err := s.fleetHandlers()[kind](t.Context(), text)
	if err == nil {
		err = json.Unmarshal(result, &out)
	}
	return out, err
}

const pages = "https://bailey.example.com"

func newPasskey(t *testing.T, name string, o virtualwebauthn.AuthenticatorOptions) *browser.Passkey {
	t.Helper()
	return browser.NewPasskey(t, name, pages, virtualwebauthn.KeyTypeEC2, o)
}

// trustPasskeys applies settings with these approvers.
func (a asking) trustPasskeys(t *testing.T, list ...*browser.Passkey) {
	t.Helper()
	text := "approvers:\n"
	for _, p := range list {
		text += fmt.Sprintf("  - {name: %s, key: %q, roles: [sre]}\n", p.Key.Name, p.Key.Line())
	}
	if _, err := a.settings.Apply(t.Context(), a.settings.Digest(), []byte(text),
		settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
}

const oneSreAsks = `
@id("dates-ask") @reason("a person has to know what day it is") @approval("role=sre,count=1,ttl=10m")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`

// TestPolicyIsReported checks that the control plane learns which rules are in use.
func TestPolicyIsReported(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a, up := askingFor(t, oneSreAsks), &reportedEvents{}
	a.reports = up
	a.reportQuestions()
	var p fleet.Policy
	if !up.last(t, fleet.PolicyState, &p) || p.Count != a.Rules.Engine().Len() || p.Fault != "" {
		t.Fatalf("%+v", p)
	}
	for _, r := range p.Rules {
		if r.ID == "dates-ask" && r.Effect == "ask" && r.Reason == "a person has to know what day it is" && r.Source != "" {
			return
		}
	}
	t.Errorf("%+v", p)
}

// TestAnswerByPasskey follows a question through the control plane to a passkey and back.
func TestAnswerByPasskey(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a, up := askingFor(t, oneSreAsks), &reportedEvents{}
	ada := newPasskey(t, "ada", virtualwebauthn.AuthenticatorOptions{})
	a.trustPasskeys(t, ada)
	a.reports = up
	q, done := a.waiting(t, nil)
	var asked fleet.Asked
	until(t, "the control plane is told", func() bool { return up.last(t, fleet.ApprovalAsked, &asked) })
	if asked.ID != q.ID || asked.Text != q.Text || asked.Digest != q.Digest || len(asked.Roles) != 1 ||
		asked.Capability != "system.date" || !asked.Expires.Equal(q.Expires) {
		t.Errorf("told %+v of %+v", asked, q)
	}
	got, err := command[approve.Tally](t, a.Server, fleet.ApprovalAnswer, fleet.Answer{Question: asked.ID,
		Digest: asked.Digest, Grant: true, Signature: ada.Answer(t, asked.Text), Person: "mallory"})
	if err != nil || !got.Granted || got.Names[0] != "ada" {
		t.Fatalf("%+v, %v", got, err)
	}
	if r := <-done; r.Status != bailey.OK || !r.Executed || r.Approval != q.ID {
		t.Errorf("%+v", r)
	}
	var decided fleet.Decided
	until(t, "the control plane is told of the end", func() bool { return up.last(t, fleet.ApprovalDecided, &decided) })
	if decided.ID != q.ID || !decided.Granted || decided.Reason != "granted by ada" {
		t.Errorf("told %+v", decided)
	}

	q, done = a.waiting(t, nil)
	if got, err := command[approve.Tally](t, a.Server, fleet.ApprovalAnswer, fleet.Answer{Question: q.ID,
		Reason: "not\nnow", Person: "bob"}); err != nil || !got.Settled || got.Granted {
		t.Errorf("denied: %+v, %v", got, err)
	}
	if r := <-done; r.Executed || !strings.Contains(r.Err.Error(), "denied by bob, through the control plane: not now") {
		t.Errorf("%+v", r)
	}
}

// TestControlPlanePages checks that an answer on pages of the control plane counts only if the settings accept it, that
// the question says so beforehand, and that the record names it.
func TestControlPlanePages(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a, up := askingFor(t, oneSreAsks), &reportedEvents{}
	ada := newPasskey(t, "ada", virtualwebauthn.AuthenticatorOptions{})
	a.trustPasskeys(t, ada)
	a.reports = up
	a.enrolled.Store(enrolledAt(ada.Origin+":8443", "h-1"))
	q, _ := a.waiting(t, nil)
	var asked fleet.Asked
	until(t, "the control plane is told", func() bool { return up.last(t, fleet.ApprovalAsked, &asked) })
	answer := func(q bailey.Question) error {
		_, err := command[approve.Tally](t, a.Server, fleet.ApprovalAnswer, fleet.Answer{Question: q.ID,
			Digest: q.Digest, Grant: true, Signature: ada.Answer(t, q.Text), Person: "ada"})
		return err
	}
	if err := answer(q); asked.Pages || !errors.Is(err, bailey.Denied) ||
		!strings.Contains(bailey.HintOf(err), "controlPlanePages") {
		t.Errorf("by default: %v, %v", asked.Pages, err)
	}
	text := fmt.Sprintf("controlPlanePages: true\napprovers: [{name: ada, key: %q, roles: [sre]}]\n", ada.Key.Line())
	if _, err := a.settings.Apply(t.Context(), a.settings.Digest(), []byte(text),
		settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
	second, done := a.waiting(t, map[string]any{"format": "%s"})
	until(t, "the control plane is told", func() bool { return up.last(t, fleet.ApprovalAsked, &asked) && asked.ID == second.ID })
	if err := answer(second); err != nil || !asked.Pages {
		t.Fatalf("with the setting: %v, %v", asked.Pages, err)
	}
	if r := <-done; r.Status != bailey.OK || !r.Executed {
		t.Errorf("%+v", r)
	}
	if text := ledgerText(t, a.Server); !strings.Contains(text, `"operator":"control-plane-pages"`) {
		t.Error("the record does not say that the answer was made on pages of the control plane")
	}
}

// ledgerText returns all lines of the gateway's ledger.
func ledgerText(t *testing.T, s *Server) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(s.home.Ledger(), "*.jsonl"))
	if err != nil || len(names) == 0 {
		t.Fatal("no segments", err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// TestAttackControlPlaneAnswers checks that a control plane, or a thief of one passkey's answer, cannot grant a call.
func TestAttackControlPlaneAnswers(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a, other := askingFor(t, oneSreAsks), askingFor(t, oneSreAsks)
	ada := newPasskey(t, "ada", virtualwebauthn.AuthenticatorOptions{})
	blind := newPasskey(t, "bob", virtualwebauthn.AuthenticatorOptions{UserNotVerified: true})
	servers := newPasskey(t, "ada", virtualwebauthn.AuthenticatorOptions{}) // registered by the server alone
	q, done := a.waiting(t, nil)
	second, _ := a.waiting(t, map[string]any{"format": "%s"})
	elsewhere, _ := other.waiting(t, nil)
	send := func(question bailey.Question, digest, signature string) error {
		_, err := command[approve.Tally](t, a.Server, fleet.ApprovalAnswer, fleet.Answer{Question: question.ID,
			Digest: digest, Grant: true, Signature: signature, Person: "ada"})
		return err
	}
	if err := send(q, q.Digest, ada.Answer(t, q.Text)); !errors.Is(err, bailey.Denied) {
		t.Errorf("without approvers: %v", err)
	}
	if err := send(q, q.Digest, ""); !errors.Is(err, bailey.Denied) {
		t.Errorf("unsigned, without approvers: %v", err)
	}
	a.trustPasskeys(t, ada, blind)
	other.trustPasskeys(t, ada)
	for name, err := range map[string]error{
		"unsigned":              send(q, q.Digest, ""),
		"another question":      send(q, q.Digest, ada.Answer(t, second.Text)),
		"the digest of another": send(q, second.Digest, ada.Answer(t, second.Text)),
		"of another origin":     send(q, q.Digest, ada.AnswerOn(t, "https://bailey.evil.example", q.Text)),
		"without verification":  send(q, q.Digest, blind.Answer(t, q.Text)),
		"by the server's key":   send(q, q.Digest, servers.Answer(t, q.Text)),
		"by an SSH key":         send(q, q.Digest, newHolder("ada", "sre").sign(q.Text, approvaltext.Namespace)),
		"for another gateway":   send(elsewhere, elsewhere.Digest, ada.Answer(t, elsewhere.Text)),
		"no JSON":               send(q, q.Digest, "{"),
		"unknown field": func() error {
			_, err := a.fleetHandlers()[fleet.ApprovalAnswer](context.Background(),
				fmt.Appendf(nil, `{"question":%q,"grant":true,"local":true}`, q.ID))
			return err
		}(),
	} {
		if !errors.Is(err, bailey.Denied) && !errors.Is(err, bailey.Invalid) && !errors.Is(err, bailey.Conflict) &&
			!errors.Is(err, bailey.NotFound) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	right := ada.Answer(t, q.Text)
	a.enrolled.Store(enrolledAt(ada.Origin+":8443", "h-1"))
	if err := send(q, q.Digest, right); !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "pages of the control plane") {
		t.Errorf("on pages of the control plane: %v", err)
	}
	a.enrolled.Store(enrolledAt("https://control.example.com", "h-1"))
	if err := send(q, q.Digest, right); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.Status != bailey.OK {
		t.Errorf("%+v", r)
	}
	if err := send(q, q.Digest, right); !errors.Is(err, bailey.NotFound) {
		t.Errorf("replayed: %v", err)
	}
	ada.Counter = 0
	if err := send(second, second.Digest, ada.Answer(t, second.Text)); !errors.Is(err, bailey.Denied) ||
		!strings.Contains(err.Error(), "counted") {
		t.Errorf("with a counter that went back: %v", err)
	}
	if n := a.scribe.lore.Asked.Counters[ada.Key.Fingerprint()]; n == 0 {
		t.Error("the next gateway would not know the counter")
	}
}

// TestAnswerAfterExpiry checks that a signed answer that a control plane kept back counts no more.
func TestAnswerAfterExpiry(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, strings.Replace(oneSreAsks, "ttl=10m", "ttl=1s", 1))
	ada := newPasskey(t, "ada", virtualwebauthn.AuthenticatorOptions{})
	a.trustPasskeys(t, ada)
	q, done := a.waiting(t, nil)
	kept := ada.Answer(t, q.Text)
	if r := <-done; r.Executed {
		t.Errorf("%+v", r)
	}
	_, err := command[approve.Tally](t, a.Server, fleet.ApprovalAnswer, fleet.Answer{Question: q.ID, Digest: q.Digest,
		Grant: true, Signature: kept, Person: "ada"})
	if !errors.Is(err, bailey.NotFound) && !errors.Is(err, bailey.Denied) {
		t.Errorf("got %v, want a refusal", err)
	}
}

// TestOrders checks that the control plane stops an agent or everything, that older orders change nothing, and that the
// operator of the gateway can resume.
func TestOrders(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, oneSreAsks)
	q, done := a.waiting(t, nil)
	agent, at := q.Principal.Agent, time.Now()
	send := func(kind string, revision uint64, agents ...string) {
		t.Helper()
		o := fleet.Orders{Revision: revision, Kills: []fleet.Order{}}
		for _, name := range agents {
			o.Kills = append(o.Kills, fleet.Order{ID: "k-" + name, Agent: name, Reason: "runs\nwild", Person: "ann", At: at})
		}
		if _, err := command[apitype.Orders](t, a.Server, kind, o); err != nil {
			t.Fatal(err)
		}
	}
	decide := func(agent string) bailey.Decision {
		return a.guardPolicy(a.Rules).Decide(bailey.Request{Principal: bailey.Principal{Agent: agent}})
	}
	send(fleet.Kill, 5, "other")
	if len(a.Queue.Open()) != 1 {
		t.Error("the question of an agent ended with another agent")
	}
	if d := decide("other"); !strings.Contains(d.Reason, "the agent other is stopped by the control plane") ||
		!strings.Contains(d.Reason, "runs wild") {
		t.Errorf("a stopped agent: %+v", d)
	}
	send(fleet.Kill, 7, "other", agent)
	if r := <-done; r.Executed || r.Status == bailey.OK {
		t.Errorf("a call that waited: %+v", r)
	}
	send(fleet.Unkill, 6)
	if d := decide(agent); !strings.Contains(d.Reason, "is stopped") {
		t.Errorf("after older orders: %+v", d)
	}
	if got := a.scribe.lore.Orders; got.Revision != 7 || len(got.Kills) != 2 {
		t.Errorf("the next gateway would follow %+v", got)
	}
	send(fleet.Unkill, 8)
	if d := decide(agent); strings.Contains(d.Reason, "is stopped") {
		t.Errorf("resumed: %+v", d)
	}
	send(fleet.Kill, 9, "")
	if d := decide("anybody"); !strings.Contains(d.Reason, "everything is stopped by the control plane") {
		t.Errorf("everything: %+v", d)
	}
	if _, err := a.kill.Resume(t.Context(), gateway.Resumed{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
	send(fleet.Kill, 9, "") // sent again when the gateway connects
	if d := decide("anybody"); strings.Contains(d.Reason, "is stopped") {
		t.Errorf("resumed by the operator: %+v", d)
	}
}

func enrolledAt(url, host string) *enrol.Enrolment {
	e := &enrol.Enrolment{Host: host}
	e.URL = url
	return e
}

// TestAttackOrders checks that a control plane cannot fill the ledger or the memory of a gateway with orders, nor hold the
// revisions of another control plane.
func TestAttackOrders(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, oneSreAsks)
	at := time.Now()
	send := func(host string, revision uint64, kills ...fleet.Order) (apitype.Orders, error) {
		a.enrolled.Store(enrolledAt("https://control.example.com", host))
		return command[apitype.Orders](t, a.Server, fleet.Kill, fleet.Orders{Revision: revision, Kills: kills})
	}
	stop := fleet.Order{ID: "k-1", Agent: "other", Reason: "r", At: at}
	far := stop
	far.At = time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -23*3600))
	if _, err := send("h-1", 1, far); err != nil {
		t.Errorf("a time that no ledger can hold: %v", err)
	}
	if _, err := send("h-1", 2, fleet.Order{ID: "k-2", Agent: strings.Repeat("a", 201), At: at}); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a long agent: %v", err)
	}
	if _, err := send("h-1", 1<<63, stop); !errors.Is(err, bailey.Invalid) {
		t.Errorf("a revision in the future: %v", err)
	}
	many := make([]fleet.Order, 100)
	for i := range many {
		many[i] = fleet.Order{ID: fmt.Sprint(i), Agent: strings.Repeat("<", 200), Reason: strings.Repeat("<", 200), At: at}
	}
	got, err := send("h-1", 3, many...)
	if err != nil || len(got.Kills) != 1 || got.All() == nil {
		t.Errorf("orders that no entry can hold do not stop everything: %d, %v", len(got.Kills), err)
	}
	if _, err := send("h-1", 4, stop); err != nil {
		t.Fatal(err)
	}
	entries, _, _, _ := a.ledger.Extent()
	for revision := range uint64(20) {
		if got, err := send("h-1", 5+revision, stop); err != nil || got.Revision != 5+revision {
			t.Errorf("the same orders: %+v, %v", got, err)
		}
	}
	if n, _, _, _ := a.ledger.Extent(); n != entries {
		t.Errorf("orders that change nothing wrote %d entries", n-entries)
	}
	if got, err := send("h-2", 1); err != nil || len(got.Kills) != 0 || got.Host != "h-2" {
		t.Errorf("the orders of another control plane: %+v, %v", got, err)
	}
}

// TestAttackBundles checks that a control plane can neither change a signed policy nor bring back an older one.
func TestAttackBundles(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	r, _ := bookForTest(t, apitype.AppliedPolicy{})
	ann := newHolder("ann")
	signers := []string{"ann ssh-ed25519 " + base64.StdEncoding.EncodeToString(ann.public())}
	sign := func(serial uint64, text string) fleet.Bundle {
		t.Helper()
		b := fleet.Bundle{Serial: serial, Files: []fleet.BundleFile{{Name: "own.cedar", Text: text}}}
		files, _, _ := (&policyStore{signers: func() []string { return nil }}).readBundle(b)
		b.Signature = ann.sign(string(policyfiles.BundleText(serial, files.Digest())), policyfiles.BundleNamespace)
		return b
	}
	narrow := `@id("dates") permit (principal, action == Action::"system.date", resource);`
	wide := `@id("all") permit (principal, action, resource);`
	refuse := func(name string, b fleet.Bundle) {
		t.Helper()
		before := r.Engine().Digest()
		out, err := r.applyBundle(t.Context(), b)
		if err == nil || out.Applied || r.Engine().Digest() != before {
			t.Errorf("%s: got %+v, %v, want a refusal", name, out, err)
		}
	}
	r.signers = func() []string { return nil }
	refuse("without signers", sign(1, narrow))
	r.signers = func() []string { return signers }
	old := sign(1, wide)
	if out, err := r.applyBundle(t.Context(), sign(2, narrow)); err != nil || !out.Applied || out.Signer != "ann" ||
		r.Applied().Bundle != 2 || len(out.Changes) == 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	refuse("an older one", old)
	b := sign(3, narrow)
	b.Files[0].Text = strings.Replace(narrow, `action == Action::"system.date"`, "action", 1)
	refuse("a changed text", b)
	b = sign(3, narrow)
	b.Serial = 4
	refuse("a changed serial number", b)
	b = sign(3, narrow)
	b.Files[0].Name = "other.cedar"
	refuse("a changed name", b)
	b = sign(3, narrow)
	b.Files = append(b.Files, fleet.BundleFile{Name: "more.cedar", Text: wide})
	refuse("one more file", b)
	b = sign(3, narrow)
	files, _, _ := r.readBundle(b)
	b.Signature = ann.sign(string(policyfiles.SignedText(files.Digest())), policyfiles.SignatureNamespace)
	refuse("the signature of a policy that is applied here", b)
	b.Signature = newHolder("mallory").sign(string(policyfiles.BundleText(3, files.Digest())), policyfiles.BundleNamespace)
	refuse("of another key", b)
	refuse("rules that do not load", sign(5, "permit ("))
	if out, err := r.applyBundle(t.Context(), sign(6, wide)); err != nil || !strings.HasPrefix(out.Changes[0], "+ ") {
		t.Errorf("what may run now is not shown first: %+v, %v", out, err)
	}
	if out, err := r.applyBundle(t.Context(), sign(6, wide)); err != nil || !out.Applied {
		t.Errorf("offered again: %+v, %v", out, err)
	}
}
