//go:build linux || darwin

package broker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
)

func putPrivate(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// eachIssuer runs a test with every adapter that asks a server, and with a new server each.
func eachIssuer(t *testing.T, test func(t *testing.T, c issuerCase, f *fakeIssuer, a Adapter, dir string)) {
	for name, c := range issuerCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, a, dir := c.begin(t)
			test(t, c, f, a, dir)
		})
	}
}

// TestIssuers checks that each adapter gets a value that its issuer made for this loan, and that it ends: it is
// revoked,
// or its end is known.
func TestIssuers(t *testing.T) {
	eachIssuer(t, func(t *testing.T, c issuerCase, f *fakeIssuer, a Adapter, _ string) {
		m, err := a.Mint(t.Context(), time.Minute)
		if err != nil {
			t.Fatal(err, bailey.HintOf(err))
		}
		if !strings.Contains(string(m.Value), value) || !strings.Contains(string(m.Value), c.value) {
			t.Errorf("%q", m.Value)
		}
		stored := strings.Contains(c.entry, "secret/data") || strings.Contains(c.entry, "infisical")
		if !stored && (m.Until.Before(time.Now()) || m.Until.After(time.Now().Add(time.Hour+time.Minute))) {
			t.Errorf("it ends at %v", m.Until)
		}
		shown(t, "the issuer's name", m.ID)
		if c.revocable != (m.Handle != nil) {
			t.Fatalf("handle %v", m.Handle != nil)
		}
		if !c.revocable {
			return
		}
		token := tokenIn(t, f, string(m.Value))
		if err := a.Revoke(t.Context(), m.ID, m.Handle); err != nil {
			t.Fatal(err, bailey.HintOf(err))
		}
		if f.isValid(token) {
			t.Error("the issuer still accepts it")
		}
	})
}

// tokenIn returns the token of the issuer that a value contains.
func tokenIn(t *testing.T, f *fakeIssuer, text string) string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for token := range f.valid {
		if strings.Contains(text, token) && len(token) == len(value)+2 {
			return token
		}
	}
	t.Fatalf("no token of the issuer is in %q", text)
	return ""
}

// TestIssuerFaults checks that each fault of an issuer, and of the broker's own credential, is a refusal that names the
// cause and contains no value.
func TestIssuerFaults(t *testing.T) {
	eachIssuer(t, func(t *testing.T, c issuerCase, f *fakeIssuer, a Adapter, dir string) {
		refused := func(what, says string, kind bailey.Kind) {
			t.Helper()
			m, err := a.Mint(t.Context(), time.Minute)
			if err == nil || len(m.Value) > 0 {
				t.Fatalf("%s: %q, %v", what, m.Value, err)
			}
			if !strings.Contains(err.Error(), says) || bailey.HintOf(err) == "" || !errors.Is(err, kind) {
				t.Errorf("%s: %v, %v (%s)", what, bailey.KindOf(err), err, bailey.HintOf(err))
			}
			silent(t, err)
			shown(t, what, err.Error()+bailey.HintOf(err))
		}
		for what, says := range map[string]string{"a redirection": "status 307", "its own fault": "status 500",
			"another server": "is not that of", "an endless answer": "truncated"} {
			f.setReply(func(w http.ResponseWriter, _ *http.Request) bool { faultyReply(f, what, w); return true })
			refused(what, says, bailey.Unavailable)
		}
		f.setReply(nil)
		own := c.files[c.own]
		for what, text := range map[string]string{"an empty credential": "\n", "a credential of two lines": "a\nb\n"} {
			putPrivate(t, dir, c.own, text)
			refused(what, "own", bailey.Unavailable)
		}
		putPrivate(t, dir, c.own, own)
		os.Chmod(filepath.Join(dir, c.own), 0o644)
		refused("a credential that others can read", "other users can read it", bailey.Denied)
		os.Chmod(filepath.Join(dir, c.own), 0o600)
		if strings.Contains(own, "own-credential") || strings.Contains(own, "root-token") {
			putPrivate(t, dir, c.own, strings.NewReplacer("own-credential", "expired", "root-token", "expired").Replace(own))
			refused("a credential that expired", "status 40", bailey.Denied)
			putPrivate(t, dir, c.own, own)
		}
		if strings.Contains(own, "PRIVATE KEY") {
			text, _ := json.Marshal(revokedKeyPEM())
			for old, text := range map[string]string{appKeyPEM(): revokedKeyPEM(),
				strings.ReplaceAll(appKeyPEM(), "\n", `\n`): strings.Trim(string(text), `"`)} {
				own = strings.ReplaceAll(own, old, text)
			}
			putPrivate(t, dir, c.own, own)
			refused("a key that the issuer has removed", "status 40", bailey.Denied)
			putPrivate(t, dir, c.own, c.files[c.own])
		}
		if !c.unchecked {
			f.mu.Lock()
			f.skew = -2 * time.Hour
			f.mu.Unlock()
			refused("another clock", "status 40", bailey.Denied)
			f.mu.Lock()
			f.skew = 0
			f.mu.Unlock()
		}
		putPrivate(t, dir, "ca.pem", foreign(t))
		refused("another certificate", "cannot reach", bailey.Unavailable)
		putPrivate(t, dir, "ca.pem", f.authority())
		if m, err := a.Mint(t.Context(), time.Minute); err != nil {
			t.Errorf("after all faults: %v", err)
		} else {
			clear(m.Value)
		}
		f.Close()
		refused("a server that is down", "cannot reach", bailey.Unavailable)
	})
}

// faultyReply answers in a way that no issuer should.
func faultyReply(f *fakeIssuer, what string, w http.ResponseWriter) {
	switch what {
	case "a redirection":
		w.Header().Set("Location", f.URL+"/elsewhere")
		w.WriteHeader(http.StatusTemporaryRedirect)
	case "its own fault":
		http.Error(w, value, http.StatusInternalServerError)
	case "another server":
		w.Write([]byte(`{"hello":"` + value + `"}`))
	default:
		w.Write([]byte(strings.Repeat(value, maxReply/len(value)+1)))
	}
}

// TestSlowIssuer checks that an issuer that does not answer ends a call when the caller gives up, and not before.
func TestSlowIssuer(t *testing.T) {
	eachIssuer(t, func(t *testing.T, _ issuerCase, f *fakeIssuer, a Adapter, _ string) {
		asked, release := make(chan struct{}, 8), make(chan struct{})
		defer close(release)
		f.setReply(func(http.ResponseWriter, *http.Request) bool { asked <- struct{}{}; <-release; return true })
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		if m, err := a.Mint(ctx, time.Minute); !errors.Is(err, context.Canceled) || len(m.Value) > 0 {
			t.Errorf("%q, %v", m.Value, err)
		}
	})
}

// TestWiderThanAsked checks that a credential with more rights than were asked for is refused, with what revokes it.
func TestWiderThanAsked(t *testing.T) {
	for name, answer := range map[string]string{
		"github":   `{"token":"TOKEN","expires_at":"2100-01-01T00:00:00Z","permissions":{"contents":"write"},"repository_selection":"selected"}`,
		"exchange": `{"access_token":"TOKEN","token_type":"Bearer","expires_in":60,"scope":"read write"}`,
	} {
		f, a, _ := issuerCases()[name].begin(t)
		var token string
		f.setReply(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete || strings.HasSuffix(r.URL.Path, "/revoke") {
				return false
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			token = f.issue(map[string]string{"github": "github", "exchange": "exchanged"}[name])
			w.Write([]byte(strings.ReplaceAll(answer, "TOKEN", token)))
			return true
		})
		m, err := a.Mint(t.Context(), time.Minute)
		if err == nil || !strings.Contains(err.Error(), "more than was asked for") {
			t.Errorf("%s: %v", name, err)
		}
		if err := a.Revoke(t.Context(), m.ID, m.Handle); err != nil || token == "" || f.isValid(token) {
			t.Errorf("%s: the token cannot be revoked: %v", name, err)
		}
	}
}

// TestEndlessToken checks that a token of Argo CD without an end is refused, with what revokes it.
func TestEndlessToken(t *testing.T) {
	f, a, _ := issuerCases()["argocd"].begin(t)
	for _, claims := range []string{`{"iat":1700000000,"jti":"t-9"}`,
		`{"iat":1700000000,"exp":1600000000,"jti":"t-9"}`} {
		var token string
		f.setReply(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete {
				return false
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			token = f.issue("1700000000 t-9")
			middle := base64.RawURLEncoding.EncodeToString([]byte(claims))
			writeJSON(w, 200, map[string]string{"token": "e30." + middle + "." + token})
			return true
		})
		m, err := a.Mint(t.Context(), time.Minute)
		if err == nil || len(m.Value) > 0 {
			t.Errorf("%s: %+v %v", claims, m, err)
		}
		if err := a.Revoke(t.Context(), m.ID, m.Handle); err != nil || token == "" || f.isValid(token) {
			t.Errorf("%s: the token cannot be revoked: %v", claims, err)
		}
	}
}

// withIssuer returns a house whose lease free comes from an issuer.
func withIssuer(t *testing.T, c issuerCase) (*house, *fakeIssuer) {
	f := newFakeIssuer(t, c.handler)
	h := &house{t: t, dir: t.TempDir()}
	h.config = Config{Dir: h.dir, Program: "test"}
	for name, text := range c.files {
		putPrivate(t, h.dir, name, text)
	}
	putPrivate(t, h.dir, "ca.pem", f.authority())
	return h.begin(t, strings.Replace(table(), `free: {literal: "`+value+`", scope: anything, ttl: 1m`,
		"free: {"+strings.ReplaceAll(c.entry, "URL", f.URL)+`, scope: anything, ttl: 1m`, 1)), f
}

// leftFiles returns how many credentials the broker could still revoke.
func (h *house) leftFiles() int {
	names, err := os.ReadDir(filepath.Join(h.dir, issuedName))
	if err != nil && !os.IsNotExist(err) {
		h.t.Fatal(err)
	}
	return len(names)
}

// TestLeaseIsGoneAfterItsCall checks, with each issuer that can revoke, that the issuer refuses a credential after its
// call, and that the broker keeps nothing of it.
func TestLeaseIsGoneAfterItsCall(t *testing.T) {
	for _, name := range revocableCases() {
		h, f := withIssuer(t, issuerCases()[name])
		lease := h.lend(loanOf("", nil, "free"))
		token := tokenIn(t, f, lease.Secrets[0].Reveal())
		if !f.isValid(token) || h.leftFiles() != 1 {
			t.Errorf("%s: during the call: %v, %d", name, f.isValid(token), h.leftFiles())
		}
		lease.Return()
		h.end()
		if f.isValid(token) || h.leftFiles() != 0 {
			t.Errorf("%s: after the call: %v, %d", name, f.isValid(token), h.leftFiles())
		}
		shown(t, "the journal", h.journal())
	}
}

// TestRevocationFails checks that a failed revocation is in the journal with the remaining life of the credential, and
// that the next start tries again.
func TestRevocationFails(t *testing.T) {
	for _, name := range revocableCases() {
		h, f := withIssuer(t, issuerCases()[name])
		lease := h.lend(loanOf("", nil, "free"))
		token := tokenIn(t, f, lease.Secrets[0].Reveal())
		f.setReply(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true })
		lease.Return()
		h.end()
		if !f.isValid(token) {
			t.Fatalf("%s: not live: it was revoked", name)
		}
		if j := h.journal(); !strings.Contains(j, "; not revoked") || !strings.Contains(j, `"lives":"`) ||
			h.leftFiles() != 1 {
			t.Errorf("%s: %d files, %s", name, h.leftFiles(), j)
		}
		f.setReply(nil)
		h.start(false)
		if f.isValid(token) || h.leftFiles() != 0 {
			t.Errorf("%s: after the next start: %v, %d", name, f.isValid(token), h.leftFiles())
		}
		h.end()
	}
}

// TestKilledBeforeTheLoan checks that a credential of a broker that was killed after the issuer's answer, before or
// after the journal's line, is revoked at the next start.
func TestKilledBeforeTheLoan(t *testing.T) {
	for _, name := range revocableCases() {
		for _, step := range []string{"write", "sync"} {
			h, f := withIssuer(t, issuerCases()[name])
			h.end()
			dir := filepath.Join(t.TempDir(), "then") // the state on the disk at that step
			h.config.Step = func(at string) {
				if at == step {
					copyBroker(t, h.dir, dir)
				}
			}
			h.start(false)
			lease := h.lend(loanOf("", nil, "free"))
			token := tokenIn(t, f, lease.Secrets[0].Reveal())
			f.setReply(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true })
			h.end()
			f.setReply(nil)
			then := &house{t: t, dir: dir, config: h.config}
			then.config.Dir, then.config.Step = then.dir, nil
			then.start(false)
			if f.isValid(token) || then.leftFiles() != 0 {
				t.Errorf("%s, killed before %s: %v, %d files", name, step, f.isValid(token), then.leftFiles())
			}
			then.end()
		}
	}
}

// copyBroker copies the files of a broker's directory with the modes that they must have.
func copyBroker(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		switch {
		case d.IsDir():
			copyBroker(t, filepath.Join(from, d.Name()), filepath.Join(to, d.Name()))
		case d.Type().IsRegular():
			text, err := os.ReadFile(filepath.Join(from, d.Name()))
			if err != nil {
				t.Fatal(err)
			}
			putPrivate(t, to, d.Name(), string(text))
		}
	}
}

// TestTornHandle checks that a broker starts although a file of a credential was not written whole.
func TestTornHandle(t *testing.T) {
	h, f := withIssuer(t, issuerCases()["github"])
	h.end()
	if err := os.MkdirAll(filepath.Join(h.dir, issuedName), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"l-torn": `{"name":"fr`, "l-empty": "",
		"l-gone": `{"name":"gone","mint":"x","handle":"eA=="}`, "other": "{}"} {
		putPrivate(t, filepath.Join(h.dir, issuedName), name, text)
	}
	h.start(false)
	if n := h.leftFiles(); n != 1 { // that of a lease that is no longer in the table
		t.Errorf("%d files are left", n)
	}
	lease := h.lend(loanOf("", nil, "free"))
	token := tokenIn(t, f, lease.Secrets[0].Reveal())
	lease.Return()
	h.end()
	if f.isValid(token) {
		t.Error("not revoked")
	}
}

// TestRevoke checks that the broker's user can end the open loans with a lease, whose credentials the issuer then refuses,
// and that other loans stay.
func TestRevoke(t *testing.T) {
	h, f := withIssuer(t, issuerCases()["github"])
	first, second := h.lend(loanOf("", nil, "free")), h.lend(loanOf("", nil, "free", "other"))
	third := h.lend(loanOf("", nil, "other"))
	tokens := []string{tokenIn(t, f, first.Secrets[0].Reveal()), tokenIn(t, f, second.Secrets[0].Reveal())}
	if n, err := h.client.Revoke(t.Context(), []string{"nothing"}); err != nil || n != 0 {
		t.Error(n, err)
	}
	if n, err := h.client.Revoke(t.Context(), []string{"free"}); err != nil || n != 2 {
		t.Error(n, err)
	}
	for range 1000 {
		if hello, err := h.client.Hello(t.Context()); err != nil || hello.Open == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if hello, err := h.client.Hello(t.Context()); err != nil || hello.Open != 1 || f.isValid(tokens[0]) || f.isValid(tokens[1]) {
		t.Errorf("%+v, %v; valid: %v %v", hello, err, f.isValid(tokens[0]), f.isValid(tokens[1]))
	}
	if n, err := h.client.Revoke(t.Context(), nil); err != nil || n != 1 {
		t.Error(n, err)
	}
	first.Return()
	second.Return()
	third.Return()
	h.end()
	if j := h.journal(); strings.Count(j, `"why":"the operator revoked it"`) != 4 {
		t.Errorf("%s", j)
	}
}

// TestAddEntry checks that an entry is added to a table of any layout, that the rest of the file stays, and that what is
// not one valid entry is refused.
func TestAddEntry(t *testing.T) {
	a := Addition{Lease: "new", Adapter: "vault", Keys: [][2]string{{"server", "https://vault.example"}, {"token", "t"}, {"path", "secret/data/a"}},
		Scope: `read "a"`, TTL: "5m", Approval: "none"}
	for name, old := range map[string]string{
		"none": "", "empty": "leases:\n", "without leases": "admitted: [1]", "a comment": "# of mine\nleases: # all\n  a: {env: A, approval: none}\n",
		"leases first": "leases:\n  a: {env: A, approval: none}\nadmitted: [1]\n", "blocks": "leases:\n  a:\n    env: A\n    approval: none",
	} {
		dir := t.TempDir()
		if name != "none" {
			putPrivate(t, dir, TableName, old)
		}
		text, table, err := AddEntry(dir, a)
		if err != nil || table.Leases["new"].Scope != `read "a"` || table.Leases["new"].TTL != 5*time.Minute {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		for line := range strings.Lines(old) {
			if !strings.Contains(string(text), strings.TrimSuffix(line, "\n")) {
				t.Errorf("%s: %q is gone:\n%s", name, line, text)
			}
		}
		if err := WriteTable(dir, text); err != nil {
			t.Fatal(err)
		}
		if again, err := (&Server{Config: Config{Dir: dir, Adapters: Adapters()}}).ReadTable(); err != nil || len(again.Leases) != len(table.Leases) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := AddEntry(dir, a); !errors.Is(err, bailey.Conflict) {
			t.Errorf("%s, twice: %v", name, err)
		}
	}
	dir := t.TempDir()
	for name, change := range map[string]func(*Addition){
		"a bad name":   func(a *Addition) { a.Lease = "x: {}\n  y" },
		"two lines":    func(a *Addition) { a.Keys[1][1] = "t\n  evil: {env: PATH, approval: none}" },
		"a comment":    func(a *Addition) { a.Keys[1][1] = "t} # " },
		"one entry of": func(a *Addition) { a.Keys[1][1] = "t}, approval: none}, other: {env: {A" },
		"no path":      func(a *Addition) { a.Keys = a.Keys[:2] },
		"no approval":  func(a *Addition) { a.Approval = "soon" },
	} {
		b := a
		b.Keys = [][2]string{a.Keys[0], a.Keys[1], a.Keys[2]}
		change(&b)
		if text, _, err := AddEntry(dir, b); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

// TestRevokedLater checks that a broker that keeps running revokes what its issuer did not revoke at first, and records
// that.
func TestRevokedLater(t *testing.T) {
	h, f := withIssuer(t, issuerCases()["github"])
	h.end()
	h.config.Retry = 5 * time.Millisecond
	h.start(false)
	lease := h.lend(loanOf("", nil, "free"))
	token := tokenIn(t, f, lease.Secrets[0].Reveal())
	asked := make(chan struct{}, 1000)
	f.setReply(func(w http.ResponseWriter, _ *http.Request) bool {
		asked <- struct{}{}
		w.WriteHeader(503)
		return true
	})
	lease.Return()
	for range 3 { // it does not give up
		<-asked
	}
	if !f.isValid(token) || h.leftFiles() != 1 {
		t.Errorf("valid %v, %d files", f.isValid(token), h.leftFiles())
	}
	f.setReply(nil)
	for deadline := time.Now().Add(20 * time.Second); h.leftFiles() > 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	h.end()
	if f.isValid(token) || h.leftFiles() != 0 || !strings.Contains(h.journal(), `"why":"revoked later"`) {
		t.Errorf("valid %v, %d files\n%s", f.isValid(token), h.leftFiles(), h.journal())
	}
}

// TestWiderStaysKnown checks that a credential with more rights than asked for, whose revocation fails, is revoked at the
// next start, and that an issuer that does not answer a revocation does not hold up the broker.
func TestWiderStaysKnown(t *testing.T) {
	h, f := withIssuer(t, issuerCases()["github"])
	var token string
	f.setReply(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(503)
			return true
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		token = f.issue("github")
		fmt.Fprintf(w, `{"token":%q,"expires_at":"2100-01-01T00:00:00Z","permissions":{"contents":"maintain"}}`, token)
		return true
	})
	h.refused("more rights", loanOf("", nil, "free"), bailey.Unavailable, "more than was asked for")
	h.end()
	f.setReply(nil)
	if !f.isValid(token) || h.leftFiles() != 1 {
		t.Fatalf("valid %v, %d files", f.isValid(token), h.leftFiles())
	}
	h.start(false)
	if f.isValid(token) || h.leftFiles() != 0 {
		t.Errorf("after the next start: valid %v, %d files", f.isValid(token), h.leftFiles())
	}
}

// TestAssertionServesSeveralLoans checks that an assertion is signed once for the loans of some minutes, and again after
// a refusal, after its time, when the clock was set back, and for another key, which takes effect at once.
func TestAssertionServesSeveralLoans(t *testing.T) {
	for _, name := range []string{"github", "gcloud"} {
		f, a, dir := issuerCases()[name].begin(t)
		var kept *keptKey
		switch a := a.(type) {
		case *github:
			kept = a.parsed
		case *gcloud:
			kept = a.parsed
		}
		mint := func() (string, error) {
			_, err := a.Mint(t.Context(), time.Minute)
			return kept.jwt, err
		}
		first, err := mint()
		if again, err2 := mint(); first == "" || again != first || errors.Join(err, err2) != nil {
			t.Errorf("%s: signed again: %v, %v, %v", name, again != first, err, err2)
		}
		for what, signed := range map[string]time.Time{"an old one": time.Now().Add(-keepAssertion),
			"one of the future": time.Now().Add(time.Hour)} {
			kept.jwt, kept.signed = "old", signed
			if got, err := mint(); got == "old" || err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		f.setReply(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(401); return true })
		if got, err := mint(); got != "" || !errors.Is(err, bailey.Denied) {
			t.Errorf("%s: after a refusal it is kept: %v", name, err)
		}
		f.setReply(nil)
		if got, err := mint(); got == "" || err != nil {
			t.Errorf("%s: after a refusal: %v", name, err)
		}
		own := issuerCases()[name].files["own"]
		other := strings.Replace(own, "-----BEGIN", "-----BEGIN A FOREIGN KEY-----\\nAA==\\n-----END A FOREIGN KEY-----\\n-----BEGIN", 1)
		putPrivate(t, dir, "own", strings.ReplaceAll(other, "\\n", map[string]string{"github": "\n", "gcloud": "\\n"}[name]))
		if _, err := mint(); err == nil {
			t.Errorf("%s: a file with another key is not read", name)
		}
		putPrivate(t, dir, "own", own)
		if err := os.Remove(filepath.Join(dir, "own")); err != nil {
			t.Fatal(err)
		}
		if _, err := mint(); err == nil {
			t.Errorf("%s: a loan without the key", name)
		}
	}
}
