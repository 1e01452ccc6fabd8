package control_test

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"bailey/internal/console"

	"github.com/descope/virtualwebauthn"
)

// device is an authenticator with one passkey of an account.
type device struct {
	virtualwebauthn.Authenticator
	key   virtualwebauthn.Credential
	party virtualwebauthn.RelyingParty
}

func (f *fixture) newDevice() *device {
	return &device{virtualwebauthn.NewAuthenticator(), virtualwebauthn.NewCredential(virtualwebauthn.KeyTypeEC2),
		virtualwebauthn.RelyingParty{Name: "Bailey", ID: "localhost", Origin: f.URL}}
}

type begun struct {
	Ceremony string
	Options  json.RawMessage
}

// register answers the options of a registration.
func (d *device) register(t *testing.T, b begun) object {
	t.Helper()
	options, err := virtualwebauthn.ParseAttestationOptions(string(b.Options))
	if err != nil {
		t.Fatal(err)
	}
	d.Options.UserHandle = []byte(options.UserID)
	answer := virtualwebauthn.CreateAttestationResponse(d.party, d.Authenticator, d.key, *options)
	return object{"name": "key", "ceremony": b.Ceremony, "credential": json.RawMessage(answer)}
}

// assert answers the options of a sign-in; the counter grows by step.
func (d *device) assert(t *testing.T, b begun, step int) object {
	t.Helper()
	options, err := virtualwebauthn.ParseAssertionOptions(string(b.Options))
	if err != nil {
		t.Fatal(err)
	}
	d.key.Counter += uint32(step)
	answer := virtualwebauthn.CreateAssertionResponse(d.party, d.Authenticator, d.key, *options)
	return object{"ceremony": b.Ceremony, "credential": json.RawMessage(answer)}
}

const loginOptions, loginPath = "/api/v1/login/passkey/options", "/api/v1/login/passkey"
const keyOptions, keyPath = "/api/v1/me/passkeys/options", "/api/v1/me/passkeys"

// withPasskey registers a passkey of a client.
func (c *client) withPasskey() *device {
	c.t.Helper()
	d := c.f.newDevice()
	want[item](c, "POST", keyPath, d.register(c.t, want[begun](c, "POST", keyOptions, nil)))
	return d
}

func TestPasskeys(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	d := owner.withPasskey()
	for range 2 {
		browser := f.newClient(t)
		got := want[struct{ Account item }](browser, "POST", loginPath,
			d.assert(t, want[begun](browser, "POST", loginOptions, nil), 1))
		if got.Account.ID != owner.account.ID {
			t.Errorf("signed in as %+v", got)
		}
		want[object](browser, "GET", "/api/v1/me", nil)
	}
	keys := want[itemList](owner, "GET", keyPath, nil).Items
	if len(keys) != 1 || keys[0].Name != "key" {
		t.Fatalf("got %+v", keys)
	}
	want[object](owner, "DELETE", keyPath+"/"+keys[0].ID, nil)
	eve := f.newClient(t)
	eve.wantStatus(http.StatusForbidden, "POST", loginPath, d.assert(t, want[begun](eve, "POST", loginOptions, nil), 1))
	f.wantRecorded(t, "add-passkey done", "passkey-login done", "remove-passkey done", "passkey-login denied")
}

// TestAttackPasskeys: answers that are replayed, late, of another site, of a copied or a foreign authenticator, or not
// verified by a person, sign nobody in.
func TestAttackPasskeys(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	d, other := owner.withPasskey(), f.newDevice()
	begin := func() begun { return want[begun](f.newClient(t), "POST", loginOptions, nil) }
	refused := func(name string, answer object) {
		t.Helper()
		eve := f.newClient(t)
		if status, text := eve.send("POST", loginPath, answer); status != http.StatusForbidden &&
			status != http.StatusConflict {
			t.Errorf("%s: got %d %s", name, status, text)
		}
		eve.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	}
	good := d.assert(t, begin(), 1)
	want[object](f.newClient(t), "POST", loginPath, good)
	refused("replayed", good)
	good["ceremony"] = begin().Ceremony
	refused("the answer to another challenge", good)
	refused("a counter that did not grow", d.assert(t, begin(), 0))
	late := d.assert(t, begin(), 1)
	f.advance(6 * time.Minute)
	refused("late", late)
	other.Options.UserHandle = d.Options.UserHandle
	refused("a key that nobody registered", other.assert(t, begin(), 1))
	other.Options.UserHandle = []byte("u-none")
	refused("an account that does not exist", other.assert(t, begin(), 1))
	site := *d
	site.party.Origin = "https://evil.example"
	refused("another site", site.assert(t, begin(), 5))
	site = *d
	site.party.ID = "evil.example"
	refused("another party", site.assert(t, begin(), 6))
	site = *d
	site.Options.UserNotVerified = true
	refused("no verification of the person", site.assert(t, begin(), 7))
	for _, text := range []string{"null", "{}", `"x"`, "[]", `{"id":"` + strings.Repeat("A", 40_000) + `"}`} {
		refused("garbage", object{"ceremony": begin().Ceremony, "credential": json.RawMessage(text)})
	}
	// Registration: not verified, of another account, replayed, or in a session that is not fresh.
	member := owner.join(shop, "member@example.com", "member")
	d2 := f.newDevice()
	d2.Options.UserNotVerified = true
	owner.wantStatus(http.StatusForbidden, "POST", keyPath, d2.register(t, want[begun](owner, "POST", keyOptions, nil)))
	d2.Options.UserNotVerified = false
	member.wantStatus(http.StatusForbidden, "POST", keyPath, d2.register(t, want[begun](owner, "POST", keyOptions, nil)))
	once := d2.register(t, want[begun](owner, "POST", keyOptions, nil))
	want[item](owner, "POST", keyPath, once)
	owner.wantStatus(http.StatusForbidden, "POST", keyPath, once)
	f.advance(16 * time.Minute)
	owner.wantStatus(http.StatusForbidden, "POST", keyOptions, nil)
	if got := want[itemList](owner, "GET", keyPath, nil).Items; len(got) != 2 {
		t.Errorf("got %+v", got)
	}
}

// TestSessionsEnd: a person lists the sessions of the account, ends one or all others, and a new password ends the
// others.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	right := object{"email": "ann@example.com", "password": "password of ann"}
	signIn := func() *client {
		c := f.newClient(t)
		want[object](c, "POST", "/api/v1/login", right)
		return c
	}
	type sessions struct {
		Items []struct {
			ID      string
			Current bool
		}
	}
	idOf := func(c *client) string {
		for _, i := range want[sessions](c, "GET", "/api/v1/me/sessions", nil).Items {
			if i.Current {
				return i.ID
			}
		}
		t.Fatal("the session is not in the list")
		return ""
	}
	a, b := signIn(), signIn()
	want[object](owner, "DELETE", "/api/v1/me/sessions/"+idOf(a), nil)
	a.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	want[object](b, "GET", "/api/v1/me", nil)
	a = signIn()
	if got := want[struct{ Ended int }](owner, "DELETE", "/api/v1/me/sessions", nil); got.Ended != 2 {
		t.Errorf("ended %d", got.Ended)
	}
	for _, c := range []*client{a, b} {
		c.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	}
	a = signIn()
	want[object](owner, "PUT", "/api/v1/me/password", object{"old": "password of ann", "new": "another password"})
	a.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	want[object](owner, "GET", "/api/v1/me", nil)
}

// TestPagesHaveNoInlineScript: the policy allows only scripts of files, and no page has another one.
func TestPagesHaveNoInlineScript(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	owner.withPasskey()
	inline := regexp.MustCompile(`(?i)<script>|<script [^>]*>[^<\n]|\son[a-z]+=|javascript:|style=`)
	for path, wanted := range map[string]string{"/": "Organisations", "/account": `data-path="/api/v1/me/passkeys/`,
		"/login": `src="` + console.Asset("console.js"), "/join?token=x": "Join", "/setup?token=x": "Set up"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", f.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := owner.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(text), wanted) {
			t.Errorf("%s: %d, %v: %s", path, resp.StatusCode, err, text)
		}
		if found := inline.Find(text); found != nil {
			t.Errorf("%s has the inline script %q", path, found)
		}
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "script-src 'self';") ||
			strings.Contains(csp, "unsafe") {
			t.Errorf("%s has the policy %q", path, csp)
		}
	}
	if status, text := owner.send("GET", console.Asset("console.js"), nil); status != http.StatusOK ||
		!strings.Contains(string(text), "navigator.credentials.get") {
		t.Errorf("the script: %d %.60s", status, text)
	}
}

// TestSessionLimits: a session ends after three days without use and after two weeks, and signing in again replaces it.
func TestSessionLimits(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	right := object{"email": "ann@example.com", "password": "password of ann"}
	for range 4 { // in use
		f.advance(71 * time.Hour)
		want[object](owner, "GET", "/api/v1/me", nil)
	}
	f.advance(73 * time.Hour)
	owner.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	want[object](owner, "POST", "/api/v1/login", right)
	for range 6 {
		f.advance(55 * time.Hour)
		want[object](owner, "GET", "/api/v1/me", nil)
	}
	f.advance(55 * time.Hour)
	owner.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	want[object](owner, "POST", "/api/v1/login", right)
	before := owner.http.Jar.Cookies(mustURL(t, f.URL))
	want[object](owner, "POST", "/api/v1/login", right)
	old := f.newClient(t)
	old.http.Jar.SetCookies(mustURL(t, f.URL), before)
	old.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
	member := owner.join(shop, "member@example.com", "member")
	admin := owner.join(shop, "admin@example.com", "admin")
	base := "/api/v1/organisations/" + shop + "/members/"
	admin.wantStatus(http.StatusForbidden, "DELETE", base+owner.account.ID+"/sessions", nil)
	want[object](admin, "DELETE", base+member.account.ID+"/sessions", nil)
	member.wantStatus(http.StatusUnauthorized, "GET", "/api/v1/me", nil)
}

// TestNoPasswords: if the server says so, a password alone signs nobody in, and a passkey does.
func TestNoPasswords(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	d := owner.withPasskey()
	f.NoPasswords = true
	c := f.newClient(t)
	c.wantStatus(http.StatusForbidden, "POST", "/api/v1/login", object{"email": "ann@example.com",
		"password": "password of ann"})
	c.wantStatus(http.StatusForbidden, "POST", "/api/v1/login", object{"email": "nobody@example.com", "password": "x"})
	want[object](c, "POST", loginPath, d.assert(t, want[begun](c, "POST", loginOptions, nil), 1))
}

// TestGuessablePasswords: a new password is not one of the most frequent, nor a name of the account.
func TestGuessablePasswords(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	for _, password := range []string{"password", "PASSWORD", "12345678", "qwertyuiop", "bailey2026", "Bailey-bailey!", "x"} {
		owner.wantStatus(http.StatusUnprocessableEntity, "PUT", "/api/v1/me/password",
			object{"old": "password of ann", "new": password})
	}
	f.newClient(t).wantStatus(http.StatusUnprocessableEntity, "POST", "/api/v1/signup", object{"name": "Robert Tables",
		"token": owner.invite(shop, "bobby@example.com"), "password": "RobertBobby1"})
	for _, password := range []string{strings.Repeat("ä", 36), "        ", "bailey is not all of it",
		"~!@#$%^&*()_+|;'<>"} {
		want[object](owner, "PUT", "/api/v1/me/password", object{"old": "password of ann", "new": password})
		c := f.newClient(t)
		want[object](c, "POST", "/api/v1/login", object{"email": "ann@example.com", "password": password})
		c.wantStatus(http.StatusUnauthorized, "POST", "/api/v1/login", object{"email": "ann@example.com",
			"password": strings.ToUpper(password) + "x"})
		want[object](owner, "PUT", "/api/v1/me/password", object{"old": password, "new": "password of ann"})
		f.advance(time.Minute)
	}
}
