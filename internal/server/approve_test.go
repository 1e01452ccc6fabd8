//go:build linux

package server

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/approve"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/settings"
	"bailey/pack"
)

// fields encodes strings, each preceded by its length (RFC 4251, section 5).
func fields(list ...string) (out []byte) {
	for _, s := range list {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(s))), s...)
	}
	return out
}

// holder owns a key and signs in the format of ssh-keygen -Y sign.
type holder struct {
	name  string
	key   ed25519.PrivateKey
	roles []string
}

func newHolder(name string, roles ...string) holder {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	return holder{name, ed25519.NewKeyFromSeed(seed), roles}
}

func (h holder) public() []byte {
	return fields("ssh-ed25519", string(h.key.Public().(ed25519.PublicKey)))
}

func (h holder) sign(text, namespace string) string {
	return enveloped(h.public(), text, namespace, func(data []byte) []byte { return fields("ssh-ed25519", string(ed25519.Sign(h.key, data))) })
}

// enveloped returns an SSHSIG of text (PROTOCOL.sshsig). sign creates the signature inside the envelope.
func enveloped(public []byte, text, namespace string, sign func(data []byte) []byte) string {
	sum := sha512.Sum512([]byte(text))
	sig := sign(append([]byte("SSHSIG"), fields(namespace, "", "sha512", string(sum[:]))...))
	raw := slices.Concat([]byte("SSHSIG\x00\x00\x00\x01"), fields(string(public), namespace, "", "sha512", string(sig)))
	var b strings.Builder
	b.WriteString("-----BEGIN SSH SIGNATURE-----\n")
	for l := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 70) {
		fmt.Fprintf(&b, "%s\n", l)
	}
	return b.String() + "-----END SSH SIGNATURE-----\n"
}

// approvers returns settings that trust these key holders.
func approvers(list ...holder) []byte {
	text := "approvers:\n"
	for _, h := range list {
		text += fmt.Sprintf("  - name: %s\n    key: ssh-ed25519 %s\n    roles: [%s]\n", h.name, base64.StdEncoding.EncodeToString(h.public()), strings.Join(h.roles, ", "))
	}
	return []byte(text)
}

// asking is a gate whose rules require approval for system.date, and whose settings can be applied.
type asking struct {
	*Server
	catalog *pack.Catalog
}

func askingFor(t *testing.T, rules string) asking {
	t.Helper()
	ktest.Require(t, "userns", "netns")
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	a := asking{catalog: catalog}
	a.Server = SpineOf(t, &Server{Catalog: catalog, Rules: FixedRules(a.engine(t, rules))})
	if a.settings, err = gateway.OpenSettings(a.home, a.workspaces, a.redaction, settings.Applied{}, a.scribe.recordEvent, a.Log); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a asking) engine(t *testing.T, rules string) *policy.Engine {
	t.Helper()
	e, err := policy.Load(policy.Config{Actions: policyfiles.Actions(a.catalog), Sources: []policy.Source{policy.Starter(), {Name: "own.cedar", Text: []byte(rules)}}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// trust applies settings with these approvers.
func (a asking) trust(t *testing.T, list ...holder) {
	t.Helper()
	if _, err := a.settings.Apply(t.Context(), a.settings.Digest(), approvers(list...), settings.Applied{Operator: localapi.Env}); err != nil {
		t.Fatal(err)
	}
}

// waiting makes a call that requires approval. It returns the question and a channel for the result.
func (a asking) waiting(t *testing.T, input map[string]any) (bailey.Question, <-chan bailey.Result) {
	t.Helper()
	known := map[bailey.ApprovalID]bool{}
	for _, q := range a.Queue.Open() {
		known[q.ID] = true
	}
	done := make(chan bailey.Result, 1)
	go func() { done <- a.Calls(t, "system.date", "/", input) }()
	var q bailey.Question
	until(t, "a call waits", func() bool {
		for _, o := range a.Queue.Open() {
			if !known[o.ID] {
				q = o.Question
			}
		}
		return q.ID != ""
	})
	return q, done
}

// answer calls the handler of the operator command approve.
func (a asking) answer(t *testing.T, q bailey.Question, signature string) (approve.Tally, error) {
	return a.approveQuestion(t.Context(), apitype.QuestionApproval{ID: q.ID, Digest: q.Digest, Signature: signature},
		gateway.Caller{Call: bailey.Call{Principal: bailey.Principal{Person: "me"}}, Operator: localapi.Env})
}

const sreAsks = `
@id("dates-ask") @reason("a person has to know what day it is") @approval("role=sre,count=2,ttl=10m")
forbid (principal, action == Action::"system.date", resource)
unless { context.approvals.contains("dates-ask") };`

// TestAnswersByKey checks that a signature counts only if it is by an approver in the current settings with the
// required role, over the text of this question, and for answers.
func TestAnswersByKey(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, sreAsks)
	ada, bob, eve := newHolder("ada", "sre", "dev"), newHolder("bob", "sre"), newHolder("eve", "dev")
	q, done := a.waiting(t, nil)
	if _, err := a.answer(t, q, ada.sign(q.Text, approvaltext.Namespace)); !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "no key is trusted") {
		t.Errorf("before anybody is trusted: %v", err)
	}
	if _, err := a.answer(t, q, ""); !errors.Is(err, bailey.Denied) || !strings.Contains(err.Error(), "does not have the role sre") {
		t.Errorf("an unsigned answer where a role is wanted: %v", err)
	}
	a.trust(t, ada, bob, eve)
	other, _ := a.waiting(t, map[string]any{"format": "%s"})
	for name, signature := range map[string]string{
		"no signature": "", "of another namespace": ada.sign(q.Text, "git"), "of a policy's namespace": ada.sign(q.Text, policyfiles.SignatureNamespace),
		"of a call with other arguments": ada.sign(other.Text, approvaltext.Namespace), "by nobody known": newHolder("mallory").sign(q.Text, approvaltext.Namespace),
		"without the role": eve.sign(q.Text, approvaltext.Namespace), "over the digest": ada.sign(q.Digest, approvaltext.Namespace), "of no form": "x",
	} {
		if _, err := a.answer(t, q, signature); err == nil || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.answer(t, q, ""); err == nil || !strings.Contains(err.Error(), "this answer is not signed") {
		t.Errorf("an unsigned answer beside approvers: %v", err)
	}
	if got, err := a.answer(t, q, ada.sign(q.Text, approvaltext.Namespace)); err != nil || got.Settled {
		t.Errorf("the first: %+v, %v", got, err)
	}
	if _, err := a.answer(t, q, ada.sign(q.Text, approvaltext.Namespace)); !errors.Is(err, bailey.Conflict) {
		t.Errorf("twice by one name: %v", err)
	}
	a.trust(t, bob, eve) // ada is not an approver any more
	if got, err := a.answer(t, q, bob.sign(q.Text, approvaltext.Namespace)); err != nil || got.Settled || len(got.Names) != 1 {
		t.Errorf("with the first revoked: %+v, %v", got, err)
	}
	a.trust(t, ada, bob)
	events := a.Queue.Open()[0].Answers
	if len(events) != 2 || events[0].Level != bailey.SignedSoftware || !strings.HasPrefix(events[0].Key, "SHA256:") || events[0].Signature == "" || events[0].Name != "ada" {
		t.Errorf("answers %+v", events)
	}
	zoe := newHolder("zoe", "sre")
	a.trust(t, ada, bob, zoe)
	if got, err := a.answer(t, q, zoe.sign(q.Text, approvaltext.Namespace)); err != nil || !got.Granted {
		t.Fatalf("the last: %+v, %v", got, err) // the call would not end
	}
	if r := <-done; r.Status != bailey.OK || !r.Executed || r.Approval != q.ID {
		t.Errorf("%+v", r)
	}
}

// TestPolicyWhileWaiting checks that the policy at the time after the answer decides. If a rule was rewritten, a grant
// for the old rule must not count, even if the id is the same.
func TestPolicyWhileWaiting(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for name, c := range map[string]struct{ rules, want string }{
		"nothing changed":     {asksForDates, ""},
		"a comment more":      {"// new\n" + asksForDates, ""},
		"the rule is gone":    {"", ""},
		"rewritten":           {strings.Replace(asksForDates, "what day it is", "what night it is", 1), "rule dates-ask was changed"},
		"wants more by now":   {strings.Replace(asksForDates, "count=1", "count=3", 1), "rule dates-ask was changed"},
		"another rule asks":   {strings.ReplaceAll(asksForDates, "dates-ask", "other"), "another approval"},
		"forbidden meanwhile": {`@id("night") @reason("night has fallen") forbid (principal, action == Action::"system.date", resource);`, "night has fallen"},
	} {
		t.Run(name, func(t *testing.T) {
			a := askingFor(t, asksForDates)
			q, done := a.waiting(t, nil)
			a.Rules.Use(policyfiles.Edition{Engine: a.engine(t, c.rules)})
			if got, err := a.answer(t, q, ""); err != nil || !got.Granted {
				t.Fatalf("%+v, %v", got, err)
			}
			r := <-done
			if c.want == "" && (r.Status != bailey.OK || !r.Executed) {
				t.Errorf("%+v", r)
			}
			if c.want != "" && (r.Status != bailey.Refused || r.Executed || !strings.Contains(r.Err.Error(), c.want)) {
				t.Errorf("%+v, want %q", r, c.want)
			}
		})
	}
}

// TestKilledWhileWaiting checks that an answer after the kill switch was used has no effect.
func TestKilledWhileWaiting(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, asksForDates)
	q, done := a.waiting(t, nil)
	if _, err := a.kill.Kill(t.Context(), "enough", "ada"); err != nil {
		t.Fatal(err)
	}
	a.answer(t, q, "") // may be accepted or not, because it may arrive before the call has ended
	if r := <-done; r.Status != bailey.Killed && r.Status != bailey.Refused || r.Executed {
		t.Errorf("%+v", r)
	}
	if _, err := a.answer(t, q, ""); !errors.Is(err, bailey.NotFound) {
		t.Errorf("later: %v", err)
	}
}

// TestAgentsCannotApprove checks that only an operator can grant: no capability or MCP tool has that name, and it is
// not a query without operator rights.
func TestAgentsCannotApprove(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	a := askingFor(t, asksForDates)
	q, _ := a.waiting(t, nil)
	for _, verb := range []string{apitype.ApproveQuestion.Name, apitype.DenyQuestion.Name, apitype.ListQuestions.Name} {
		if r := a.Calls(t, bailey.CapabilityID(verb), "/", map[string]any{"id": string(q.ID), "digest": q.Digest}); !errors.Is(r.Err, bailey.NotFound) || r.Executed {
			t.Errorf("a call of %s: %+v", verb, r)
		}
	}
	for _, tool := range (mcpBackend{s: a.Server}).Tools(t.Context(), bailey.Principal{}) {
		if id := string(tool.ID); strings.Contains(id, apitype.ApproveQuestion.Name) || strings.Contains(id, apitype.DenyQuestion.Name) {
			t.Errorf("an agent has the tool %s", tool.ID)
		}
	}
	commands := map[string]bool{}
	for _, h := range a.handlers() {
		commands[h.Name] = h.Command
	}
	if !commands[apitype.ApproveQuestion.Name] {
		t.Error("granting merely looks")
	}
	if open := a.Queue.Open(); len(open) != 1 || len(open[0].Answers) != 0 {
		t.Errorf("open: %+v", open)
	}
	if command, known := commands[apitype.DenyQuestion.Name]; command || !known {
		t.Error("only an operator can deny")
	}
	if _, err := a.denyQuestion(t.Context(), apitype.QuestionDenial{ID: q.ID}, gateway.Caller{}); err != nil {
		t.Error(err)
	}
}

// TestSalt checks that the salt of the home is kept. If the file is truncated or not regular (for example a pipe), it
// must be rejected.
func TestSalt(t *testing.T) {
	home := localapi.Home(t.TempDir())
	a, err := openSalt(home)
	if err != nil || len(a) != saltSize {
		t.Fatal(a, err)
	}
	if b, err := openSalt(home); err != nil || string(a) != string(b) {
		t.Error(b, err)
	}
	name := filepath.Join(string(home), saltName)
	if err := errors.Join(os.Remove(name), syscall.Mkfifo(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := openSalt(home); bailey.KindOf(err) != bailey.Unavailable {
		t.Error(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openSalt(home); bailey.KindOf(err) != bailey.Unavailable || bailey.HintOf(err) == "" {
		t.Error(err)
	}
}
