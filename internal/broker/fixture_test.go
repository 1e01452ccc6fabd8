//go:build linux || darwin

package broker

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

// value must appear nowhere except in a lease.
const value = "hunter2-the-value"

// fields returns byte strings, each after its length (RFC 4251, section 5).
func fields(list ...string) (out []byte) {
	for _, s := range list {
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(s))), s...)
	}
	return out
}

// holder is a person with a key. Signatures have the form of ssh-keygen -Y sign.
type holder struct {
	name string
	key  ed25519.PrivateKey
	sk   bool // the key is on a security key
}

func newHolder(name string) holder {
	seed := sha256.Sum256([]byte(name))
	return holder{name: name, key: ed25519.NewKeyFromSeed(seed[:])}
}

func (h holder) kind() string {
	if h.sk {
		return "sk-ssh-ed25519@openssh.com"
	}
	return "ssh-ed25519"
}

func (h holder) blob() string {
	parts := []string{h.kind(), string(h.key.Public().(ed25519.PublicKey))}
	if h.sk {
		parts = append(parts, "ssh:")
	}
	return string(fields(parts...))
}

// sign signs in the namespace of approvals.
func (h holder) sign(text string) string { return h.signFor(approvaltext.Namespace, text, 1) }

// signFor signs in any namespace, with the flags of a security key (PROTOCOL.u2f). The lowest bit means a touch.
func (h holder) signFor(namespace, text string, flags byte) string {
	sum := sha512.Sum512([]byte(text))
	signed := string(append([]byte("SSHSIG"), fields(namespace, "", "sha512", string(sum[:]))...))
	rest := ""
	if h.sk {
		app, msg := sha256.Sum256([]byte("ssh:")), sha256.Sum256([]byte(signed))
		rest = string([]byte{flags, 0, 0, 0, 7})
		signed = string(app[:]) + rest + string(msg[:])
	}
	sig := string(fields(h.kind(), string(ed25519.Sign(h.key, []byte(signed))))) + rest
	raw := slices.Concat([]byte("SSHSIG\x00\x00\x00\x01"), fields(h.blob(), namespace, "", "sha512", sig))
	var b strings.Builder
	b.WriteString("-----BEGIN SSH SIGNATURE-----\n")
	for l := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(raw)), 70) {
		fmt.Fprintf(&b, "%s\n", l)
	}
	return b.String() + "-----END SSH SIGNATURE-----\n"
}

// approver returns the table entry of the holder.
func (h holder) approver(roles ...string) string {
	return fmt.Sprintf("  - name: %s\n    key: %s %s\n    roles: [%s]\n", h.name, h.kind(), base64.StdEncoding.EncodeToString([]byte(h.blob())), strings.Join(roles, ", "))
}

var (
	ada, bob, eve = newHolder("ada"), newHolder("bob"), newHolder("eve")
	kim           = holder{name: "kim", key: newHolder("kim").key, sk: true}
)

// house is a broker in its own directory, with a client.
type house struct {
	t      *testing.T
	dir    string
	config Config
	client Client
	stop   func()
	s      *Server
}

// table names the approvers ada, bob and kim. The leases free and other need no answer, the others do.
func table() string {
	return fmt.Sprintf("admitted: [%d]\napprovers:\n", os.Geteuid()) + ada.approver("sre", "dev") + bob.approver("sre") + kim.approver("sre") + `leases:
  free: {literal: "` + value + `", scope: anything, ttl: 1m, approval: none}
  other: {literal: "` + value + `2", ttl: 1m, approval: none}
  one: {literal: "` + value + `", scope: read packages, ttl: 5m, approval: {level: signed-software}}
  two: {literal: "` + value + `", scope: deploy, ttl: 5m, approval: {level: signed-software, roles: [sre], count: 2}}
  dev: {literal: "` + value + `", ttl: 5m, approval: {level: signed-software, roles: [dev]}}
  touch: {literal: "` + value + `", ttl: 5m, approval: {level: signed-touch}}
`
}

func newHouse(t *testing.T, text string) *house {
	t.Helper()
	h := &house{t: t, dir: t.TempDir()}
	h.config = Config{Dir: h.dir, Program: "test"}
	return h.begin(t, text)
}

func (h *house) begin(t *testing.T, text string) *house {
	t.Helper()
	if err := os.Chmod(h.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.client = Client{Socket: filepath.Join(h.dir, SocketName), UID: os.Geteuid()}
	h.write(text)
	h.start(true)
	t.Cleanup(func() { h.end() })
	return h
}

func (h *house) write(text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.dir, TableName), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// start starts the broker. If apply is set, it first applies the table.
func (h *house) start(apply bool) {
	h.t.Helper()
	ready := make(chan error, 1)
	c := h.config
	c.Ready = func(string) { ready <- nil }
	s, err := New(c)
	if err != nil {
		h.t.Fatal(err)
	}
	if apply {
		t, err := s.ReadTable()
		if err != nil {
			h.t.Fatal(err)
		}
		if err := s.Apply(t.Digest); err != nil {
			h.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil {
			ready <- err
		}
	}()
	if err := <-ready; err != nil {
		h.t.Fatal(err)
	}
	h.s = s
	h.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		s.Close()
	})
}

func (h *house) end() { h.stop() }

// reapply changes the table of the running broker.
func (h *house) reapply(text string) {
	h.t.Helper()
	h.write(text)
	t, err := LoadTable(h.dir)
	if err == nil {
		err = h.client.Apply(h.t.Context(), t.Digest)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) journal() string {
	b, err := os.ReadFile(filepath.Join(h.dir, journalName))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// question returns a question about a call that requests the named leases of the broker's table.
func (h *house) question(names ...string) bailey.Question {
	h.t.Helper()
	scopes, err := h.client.Scope(h.t.Context(), wants(names...))
	if err != nil {
		h.t.Fatal(err)
	}
	return question(scopes)
}

func question(scopes []bailey.LeaseScope) bailey.Question {
	sum := sha256.Sum256([]byte(bailey.NewApprovalID()))
	return bailey.Question{
		ID: bailey.NewApprovalID(), Receipt: bailey.NewReceiptID(), Principal: bailey.Principal{Agent: "a"}, Session: "s-1", Call: "git.push",
		Manifest: "00", Impact: "mutating, irreversible", Resource: bailey.Target{Kind: "local"}, Dir: bailey.Shown{Text: "/w"}, Contents: bailey.NoContents,
		Leases: scopes, Rules: []bailey.Rule{{ID: "r", Digest: "00"}}, Nonce: hex.EncodeToString(sum[:16]), AskedAt: time.Now(), Expires: time.Now().Add(-time.Second), Until: time.Now().Add(time.Minute),
	}
}

func textOf(q bailey.Question) string { return approvaltext.Text(q, []byte("key")) }

func wants(names ...string) (list []bailey.Want) {
	for _, n := range names {
		list = append(list, bailey.Want{Name: n, Env: strings.ToUpper(n) + "_TOKEN"})
	}
	return list
}

func loanOf(text string, sigs []string, names ...string) bailey.Loan {
	return bailey.Loan{Receipt: bailey.NewReceiptID(), Capability: "git.push", Wants: wants(names...), Text: text, Signatures: sigs}
}

// lend borrows and fails the test if the broker refuses.
func (h *house) lend(l bailey.Loan) bailey.Lease {
	h.t.Helper()
	lease, err := h.client.Lend(h.t.Context(), l)
	if err != nil {
		h.t.Fatalf("%v (%s)", err, bailey.HintOf(err))
	}
	return lease
}

// refused checks that a loan gives no value, but an error of the given kind with the given text and a hint.
func (h *house) refused(what string, l bailey.Loan, kind bailey.Kind, says string) {
	h.t.Helper()
	lease, err := h.client.Lend(h.t.Context(), l)
	if bailey.KindOf(err) != kind || err == nil || !strings.Contains(err.Error(), says) || bailey.HintOf(err) == "" {
		h.t.Errorf("%s: %v (%s)", what, err, bailey.HintOf(err))
	}
	if lease.Return == nil || len(lease.IDs)+len(lease.Env)+len(lease.Secrets)+len(lease.Files) > 0 {
		h.t.Errorf("%s: %v was lent", what, lease)
	}
	silent(h.t, err)
}
