package control_test

import (
	"bufio"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/internal/store"
)

// addProvider adds a provider with the secret that the test's providers want.
func (f *fixture) addProvider(t *testing.T, name, kind, issuer string) {
	t.Helper()
	p := store.Provider{Name: name, Kind: kind, Issuer: issuer, Client: "bailey"}
	var err error
	if p.Secret, err = f.keys.Seal(p.SealedAs(), clientSecret); err != nil {
		t.Fatal(err)
	}
	if err := f.store.AddProvider(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

const clientSecret = "the client secret of the test"

// get opens a page without following a redirect.
func (c *client) get(address string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), "GET", address, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", c.address)
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

// follow opens a page and follows redirects, until the callback of the server, whose address it returns unopened.
func (c *client) follow(path string) string {
	c.t.Helper()
	address := c.f.URL + path
	for range 10 {
		resp := c.get(address)
		next, err := resp.Location()
		if err != nil {
			c.t.Fatalf("%s: %s", address, resp.Status)
		}
		address = next.String()
		if strings.HasPrefix(address, c.f.URL+"/login/callback") {
			return address
		}
	}
	c.t.Fatal("too many redirects")
	return ""
}

// openProvider goes through a provider and back, and returns the status of the last page.
func (c *client) openProvider(path string) int { return c.get(c.follow(path)).StatusCode }

// invite returns the token of an invitation.
func (c *client) invite(organisation, email string) string {
	c.t.Helper()
	_, token, _ := strings.Cut(want[item](c, "POST", "/api/v1/organisations/"+organisation+"/invitations",
		object{"email": email, "role": "member"}).Link, "token=")
	return token
}

func (c *client) email() string {
	c.t.Helper()
	return want[store.Account](c, "GET", "/api/v1/me", nil).Email
}

// TestRealProvider signs in at npm's oidc-provider: an invitation makes an account, which signs in again without one; an
// account that exists is linked only by its own session.
func TestRealProvider(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	ktest.Require(t, "node")
	modules, err := findModule("oidc-provider", "BAILEY_OIDC_PROVIDER")
	if err != nil {
		ktest.Missing(t, "oidc-provider", err)
	}
	f := startServer(t)
	owner, shop := f.setUp(t)
	start := func(name, subject string) {
		cmd := exec.CommandContext(t.Context(), "node", "testdata/provider.mjs", modules, f.URL+"/login/callback")
		cmd.Env, cmd.Stderr = append(os.Environ(), "SUBJECT="+subject, "NODE_ENV=test"), t.Output()
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		f.addProvider(t, name, store.OIDC, strings.TrimSpace(line))
	}
	start("first", "bob")
	start("second", "ann")
	start("third", "unverified")
	bob := f.newClient(t)
	if status := bob.openProvider("/login/with/first"); status != http.StatusForbidden {
		t.Errorf("without an invitation: %d", status)
	}
	if status := bob.openProvider("/login/with/first?invitation=" + owner.invite(shop, "eve@example.com")); status !=
		http.StatusForbidden {
		t.Errorf("with the invitation of another address: %d", status)
	}
	if status := bob.openProvider("/login/with/first?invitation=" + owner.invite(shop, "bob@example.com")); status !=
		http.StatusOK || bob.email() != "bob@example.com" {
		t.Errorf("with an invitation: %d", status)
	}
	again := f.newClient(t)
	if status := again.openProvider("/login/with/first"); status != http.StatusOK || again.email() != "bob@example.com" {
		t.Errorf("the second time: %d", status)
	}
	again.wantStatus(http.StatusConflict, "DELETE", "/api/v1/me/identities/"+
		want[itemList](again, "GET", "/api/v1/me/identities", nil).Items[0].ID, nil) // the only way to sign in
	unverified := f.newClient(t)
	if status := unverified.openProvider("/login/with/third?invitation=" +
		owner.invite(shop, "unverified@example.com")); status != http.StatusForbidden {
		t.Errorf("an address that is not verified: %d", status)
	}
	ann := f.newClient(t) // the address of the owner, verified by the provider: it takes over nothing
	if status := ann.openProvider("/login/with/second"); status != http.StatusForbidden {
		t.Errorf("the address of an account signs in to it: %d", status)
	}
	if status := owner.openProvider("/link/second"); status != http.StatusOK {
		t.Errorf("linking: %d", status)
	}
	if status := ann.openProvider("/login/with/second"); status != http.StatusOK || ann.email() != "ann@example.com" {
		t.Errorf("after linking: %d", status)
	}
	if status := again.openProvider("/link/second"); status != http.StatusConflict {
		t.Errorf("linking the identity of another account: %d", status)
	}
	f.wantRecorded(t, "provider-login denied", "provider-login done")
}

// findModule returns the directory into which npm installed a module, as test/cedar does for its module: the value of a
// variable, or a directory on PATH.
func findModule(name, variable string) (string, error) {
	for _, dir := range append([]string{os.Getenv(variable)}, filepath.SplitList(os.Getenv("PATH"))...) {
		if filepath.Base(dir) == ".bin" {
			dir = filepath.Dir(dir)
		}
		if _, err := os.Stat(filepath.Join(dir, name, "package.json")); dir != "" && err == nil {
			return filepath.Abs(dir)
		}
	}
	return "", errors.New(name + " is missing: npm install it, and set " + variable + " to its node_modules directory")
}

// hostile is a provider that answers as a test wants.
type hostile struct {
	*httptest.Server
	key *rsa.PrivateKey
	mu  sync.Mutex
	// change changes the ID token before it is signed.
	change func(header, claims object)
	sign   func(signed string) []byte
	asked  url.Values
	nonce  string
}

func startHostile(t *testing.T, now func() time.Time) *hostile {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{key: key}
	mux := http.NewServeMux()
	h.Server = httptest.NewServer(mux)
	t.Cleanup(h.Close)
	encode := base64.RawURLEncoding.EncodeToString
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(object{"issuer": h.URL, "authorization_endpoint": h.URL + "/authorize",
			"token_endpoint": h.URL + "/token", "jwks_uri": h.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"RS256", "none", "HS256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(object{"keys": []object{{"kty": "RSA", "kid": "1", "alg": "RS256", "use": "sig",
			"n": encode(key.N.Bytes()), "e": "AQAB"}}})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.asked, h.nonce = r.URL.Query(), r.URL.Query().Get("nonce")
		http.Redirect(w, r, h.asked.Get("redirect_uri")+"?code=c&state="+h.asked.Get("state"), http.StatusFound)
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		verifier := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if encode(verifier[:]) != h.asked.Get("code_challenge") || h.asked.Get("code_challenge_method") != "S256" {
			http.Error(w, "no PKCE", http.StatusBadRequest)
			return
		}
		header := object{"alg": "RS256", "kid": "1", "typ": "JWT"}
		claims := object{"iss": h.URL, "sub": "bob", "aud": "bailey", "exp": now().Add(time.Hour).Unix(),
			"iat": now().Unix(), "nonce": h.nonce, "email": "bob@example.com", "email_verified": true, "name": "Bob"}
		h.change(header, claims)
		a, _ := json.Marshal(header)
		b, _ := json.Marshal(claims)
		signed := encode(a) + "." + encode(b)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(object{"access_token": "x", "token_type": "Bearer",
			"id_token": signed + "." + encode(h.sign(signed))})
	})
	h.reset()
	return h
}

func (h *hostile) reset() {
	h.change = func(object, object) {}
	h.sign = func(signed string) []byte {
		sum := sha256.Sum256([]byte(signed))
		signature, _ := rsa.SignPKCS1v15(rand.Reader, h.key, crypto.SHA256, sum[:])
		return signature
	}
}

// TestAttackProvider: answers of a hostile provider, of another one, and those that are replayed sign nobody in.
func TestAttackProvider(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	h := startHostile(t, f.Now)
	f.addProvider(t, "idp", store.OIDC, h.URL)
	bob := f.newClient(t)
	if status := bob.openProvider("/login/with/idp?invitation=" + owner.invite(shop, "bob@example.com")); status !=
		http.StatusOK || bob.email() != "bob@example.com" {
		t.Fatalf("an honest answer: %d", status)
	}
	set := func(name string, value any) func(object, object) {
		return func(_, claims object) { claims[name] = value }
	}
	past := f.Now().Add(-time.Hour).Unix()
	for name, change := range map[string]func(header, claims object){
		"another issuer":       set("iss", "https://evil.example"),
		"another audience":     set("aud", "another"),
		"another party":        set("azp", "another"),
		"two audiences":        set("aud", []string{"another", "bailey"}),
		"another nonce":        set("nonce", "another"),
		"no nonce":             func(_, claims object) { delete(claims, "nonce") },
		"expired":              set("exp", past),
		"no expiry":            func(_, claims object) { delete(claims, "exp") },
		"no subject":           set("sub", ""),
		"a subject of a list":  set("sub", []string{"bob"}),
		"not valid yet":        set("nbf", f.Now().Add(time.Hour).Unix()),
		"an unknown key":       func(header, _ object) { header["kid"] = "2" },
		"algorithm none":       func(header, _ object) { header["alg"] = "none" },
		"algorithm HS256":      func(header, _ object) { header["alg"] = "HS256" },
		"claims of another":    set("sub", "ann"),
		"an embedded key":      func(header, _ object) { header["jwk"] = object{"kty": "RSA"}; header["kid"] = "3" },
		"an address of a list": set("email", []string{"bob@example.com"}),
	} {
		h.reset()
		h.change = change
		if name == "algorithm none" {
			h.sign = func(string) []byte { return nil }
		}
		eve := f.newClient(t)
		if status := eve.openProvider("/login/with/idp"); status != http.StatusForbidden {
			t.Errorf("%s: %d", name, status)
		}
		eve.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	}
	h.reset()
	h.sign = func(string) []byte { return []byte("not a signature") }
	if status := f.newClient(t).openProvider("/login/with/idp"); status != http.StatusForbidden {
		t.Errorf("a wrong signature: %d", status)
	}
	h.reset()
	checkStates(t, f)
}

// checkStates: a state works once, in the browser that began it, for ten minutes, at its own provider.
func checkStates(t *testing.T, f *fixture) {
	t.Helper()
	a, b := f.newClient(t), f.newClient(t)
	back := a.follow("/login/with/idp")
	if status := b.get(back).StatusCode; status != http.StatusForbidden {
		t.Errorf("another browser: %d", status)
	}
	jar := a.http.Jar.Cookies(mustURL(t, f.URL+"/login/callback"))
	if len(jar) != 1 || len(jar[0].Value) < 43 {
		t.Fatalf("the cookies are %v", jar)
	}
	if status := a.get(back + "&iss=https://evil.example").StatusCode; status != http.StatusForbidden {
		t.Errorf("another issuer in the answer: %d", status)
	}
	back = a.follow("/login/with/idp")
	state := a.http.Jar.Cookies(mustURL(t, f.URL+"/login/callback"))
	if status := a.get(back).StatusCode; status != http.StatusOK {
		t.Errorf("the answer: %d", status)
	}
	b.http.Jar.SetCookies(mustURL(t, f.URL), state)
	if status := b.get(back).StatusCode; status != http.StatusForbidden {
		t.Errorf("replayed with its cookie: %d", status)
	}
	b = f.newClient(t)
	back = b.follow("/login/with/idp")
	f.advance(601 * time.Second)
	if status := b.get(back).StatusCode; status != http.StatusForbidden {
		t.Errorf("after ten minutes: %d", status)
	}
	b = f.newClient(t)
	if status := b.get(f.URL + "/login/callback?state=&code=c").StatusCode; status != http.StatusForbidden {
		t.Errorf("an empty state: %d", status)
	}
	resp := f.newClient(t).get(f.URL + "/login/with/idp")
	c := resp.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.MaxAge != 600 || c.Domain != "" {
		t.Errorf("the cookie is %+v", c)
	}
}

// TestLinkOfEndedSession: a link that a session began is not made after the session has ended.
func TestLinkOfEndedSession(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	f.addProvider(t, "idp", store.OIDC, startHostile(t, f.Now).URL)
	back := owner.follow("/link/idp")
	want[object](owner, "POST", "/api/v1/logout", nil)
	if status := owner.get(back).StatusCode; status != http.StatusForbidden {
		t.Errorf("got %d", status)
	}
}

// TestGitHub signs in with the OAuth of GitHub, in the form that GitHub Enterprise Server has.
func TestGitHub(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	verified := true
	mux := http.NewServeMux()
	hub := httptest.NewServer(mux)
	t.Cleanup(hub.Close)
	mux.HandleFunc("GET /login/oauth/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=c&state="+q.Get("state"), http.StatusFound)
	})
	mux.HandleFunc("POST /login/oauth/access_token", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("client_secret") != clientSecret || r.PostFormValue("code_verifier") == "" {
			w.WriteHeader(http.StatusForbidden)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token": "hub", "token_type": "bearer"}`)
	})
	mux.HandleFunc("GET /api/v3/user", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hub" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, `{"id": 7, "login": "bob", "name": null}`)
	})
	mux.HandleFunc("GET /api/v3/user/emails", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode([]object{{"email": "ann@example.com", "verified": true},
			{"email": "Bob@example.com", "primary": true, "verified": verified}})
	})
	f.addProvider(t, "hub", store.GitHub, hub.URL)
	bob := f.newClient(t)
	token := owner.invite(shop, "bob@example.com")
	verified = false
	if status := bob.openProvider("/login/with/hub?invitation=" + token); status != http.StatusForbidden {
		t.Errorf("an address that is not verified: %d", status)
	}
	verified = true
	if status := bob.openProvider("/login/with/hub?invitation=" + token); status != http.StatusOK ||
		bob.email() != "bob@example.com" {
		t.Errorf("got %d", status)
	}
}
