package control_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/ktest/chromium"
)

// evilSite serves a page of another site, and returns its URL. Browsers count 127.0.0.1 and localhost as two sites.
func evilSite(t *testing.T, html string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/favicon.ico" {
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, "<!doctype html><title>Evil</title>"+html)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestAttackForms: no form of the pages can be sent from another site, neither by a browser with its cookies nor by one
// that would send them always, and nothing is recorded.
func TestAttackForms(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	w := newWorld(t, plainTexts)
	before := len(w.events(t))
	forms := 0
	for _, r := range w.Routes() {
		if !r.Page || r.Method == http.MethodGet {
			continue
		}
		forms++
		path := strings.ReplaceAll(w.path(r.Path), "{id}", w.host)
		for _, headers := range [][]string{{"Origin", "http://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"}} {
			sender := *w.owner
			sender.address = w.newClient(t).address
			if resp := sender.form(path, url.Values{"confirm": {"yes"}, "reason": {"x"}, "scope": {"everything"}}, headers...); resp.StatusCode !=
				http.StatusForbidden {
				t.Errorf("%s with %q: got %d", r.Operation, headers, resp.StatusCode)
			}
		}
	}
	if forms < 10 {
		t.Errorf("%d forms: this test does not see them", forms)
	}
	p := chromium.Open(t)
	p.SetCookies(w.URL, w.owner.cookies())
	stops := w.URL + "/o/" + w.shop + "/stops"
	p.Go(evilSite(t, `<form id=f method=post action="`+stops+`"><input name=scope value=everything><input name=confirm value=yes>
<input name=reason value=evil></form><button onclick="f.submit()">You have won</button>`))
	p.Find("button", "You have won").Click()
	p.Until("location.pathname.endsWith('/stops')")
	if text := p.Text(); !strings.Contains(text, "another site") {
		t.Errorf("a form of another site gets %q", text)
	}
	p.Faults()
	if after := len(w.events(t)); after != before {
		t.Errorf("%d changes are recorded", after-before)
	}
	if stops, err := w.Store.Stops(t.Context(), w.shop); err != nil || len(stops) != 2 {
		t.Errorf("%d stops, %v", len(stops), err)
	}
}

// TestAttackFrames: no page can be shown inside a page of another site, or of its own.
func TestAttackFrames(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	w := newWorld(t, plainTexts)
	for _, r := range w.Routes() {
		row := pageRows[r.Operation]
		if !r.Page || r.Method != http.MethodGet || row.not != "" {
			continue
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", w.urlOf(r, row), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.owner.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") ||
			!strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || resp.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s can be framed: %q", r.Operation, csp)
		}
	}
	p := chromium.Open(t)
	p.SetCookies(w.URL, w.owner.cookies())
	p.Go(evilSite(t, `<iframe src="`+w.URL+w.path("/o/{organisation}/hosts")+`" title="frame"></iframe>`))
	if faults := strings.Join(p.Faults(), "\n"); !strings.Contains(faults, "frame-ancestors") {
		t.Errorf("the frame was shown: %s", faults)
	}
}

// TestAttackRedirect: after signing in, the browser stays on this server, whatever the link to the login says.
func TestAttackRedirect(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	f.setUp(t)
	for _, next := range []string{"https://evil.example/", "//evil.example", `/\evil.example`, `\\evil.example`, "/\t/evil.example",
		"javascript:alert(1)", "http:evil.example", "/%09/evil.example", "/../..//evil.example", "/o/x\r\nSet-Cookie: a=b", "///evil.example"} {
		c := f.newClient(t)
		resp := c.form("/login?next="+url.QueryEscape(next), url.Values{"email": {"ann@example.com"}, "password": {"password of ann"},
			"next": {next}})
		to, err := resp.Location()
		if err != nil || resp.StatusCode != http.StatusSeeOther {
			t.Errorf("%q: got %d, %v", next, resp.StatusCode, err)
			continue
		}
		if to.Host != mustURL(t, f.URL).Host || strings.HasPrefix(to.Path, "//") || strings.ContainsAny(to.Path, "\\\t\r\n") {
			t.Errorf("%q leads to %s", next, to)
		}
		if len(resp.Cookies()) != 1 {
			t.Errorf("%q sets %v", next, resp.Cookies())
		}
	}
}

// TestAttackFixation: a person who signs in in a browser that has the session of an attacker, or an invented one, gets a
// new session, and the one that was there has ended.
func TestAttackFixation(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	w := newWorld(t, plainTexts)
	eve := w.stranger
	planted := eve.cookies()
	p := chromium.Open(t)
	p.SetCookies(w.URL, planted)
	p.Go(w.URL + "/login")
	p.Find("textbox", "E-mail address").Fill("bob@example.com")
	p.Find("textbox", "Password").Fill("password of bob@example.com")
	p.Find("button", "Sign in").Click()
	p.Until("location.pathname !== '/login'")
	after := p.Cookies(w.URL)
	if len(after) != 1 || after[0].Value == planted[0].Value || !after[0].HTTPOnly || after[0].SameSite != "Strict" {
		t.Fatalf("the cookies after the login are %+v", after)
	}
	if status, text := eve.send("GET", "/api/v1/me", nil); status != http.StatusUnauthorized {
		t.Errorf("the planted session still answers: %d %s", status, text)
	}
	invented := w.newClient(t)
	invented.http.Jar.SetCookies(mustURL(t, w.URL), []*http.Cookie{{Name: planted[0].Name, Value: strings.Repeat("A", 43)}})
	resp := invented.form("/login", url.Values{"email": {"carol@example.com"}, "password": {"password of carol@example.com"}})
	if !slices.ContainsFunc(resp.Cookies(), func(c *http.Cookie) bool { return c.Value != strings.Repeat("A", 43) && c.Value != "" }) {
		t.Errorf("an invented session stays: %v", resp.Cookies())
	}
}

// TestConsoleForms does the work of the pages of hosts, members, tokens and settings with their forms, and sees it refused
// to lower roles and to strangers.
func TestConsoleForms(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	w := newWorld(t, plainTexts)
	base := "/o/" + w.shop
	spare, _ := addGateway(w.owner, w.shop, "spare")
	id := w.owner.join(w.shop, "frank@example.com", "member").account.ID
	for _, one := range []struct {
		path   string
		form   url.Values
		status int    // for an owner
		shows  string // after it
	}{
		{"/stops", url.Values{"scope": {"host"}, "host": {w.host}, "reason": {"looks odd"}, "confirm": {"yes"}, "from": {"host"}}, 303, ""},
		{"/stops", url.Values{"scope": {"agent"}, "agent": {"coder"}, "reason": {"looks odd"}, "confirm": {"yes"}, "from": {"//evil.example"}}, 303, ""},
		{"/stops", url.Values{"scope": {"everything"}, "reason": {"drill"}, "confirm": {"yes"}}, 303, ""},
		{"/stops", url.Values{"scope": {"everything"}, "reason": {"drill"}}, 422, "was not confirmed"},
		{"/stops", url.Values{"scope": {"agent"}, "reason": {"drill"}, "confirm": {"yes"}}, 422, "agent is missing"},
		{"/stops", url.Values{"scope": {"host"}, "reason": {"drill"}, "confirm": {"yes"}}, 422, "gateway is missing"},
		{"/stops", url.Values{"scope": {"everything"}, "agent": {"x"}, "reason": {"drill"}, "confirm": {"yes"}}, 422, ""},
		{"/stops", url.Values{"agent": {"x"}, "reason": {"drill"}, "confirm": {"yes"}}, 422, "not known"},
		{"/stops", url.Values{"scope": {"agent"}, "agent": {"x"}, "confirm": {"yes"}}, 422, "reason"},
		{"/hosts/" + spare + "/remove", url.Values{}, 422, "was not confirmed"},
		{"/hosts/" + spare + "/remove", url.Values{"confirm": {"yes"}}, 303, ""},
		{"/hosts", url.Values{"name": {"new one"}, "kind": {"gateway"}, "days": {"7"}}, 200, "not shown again"},
		{"/hosts", url.Values{"name": {"other"}, "kind": {"king"}, "days": {"7"}}, 422, "kind"},
		{"/hosts", url.Values{"name": {"other"}, "kind": {"gateway"}, "days": {"0"}}, 422, "days"},
		{"/hosts", url.Values{"name": {"other"}, "kind": {"gateway"}, "days": {"many"}}, 422, "days"},
		{"/members/" + id + "/role", url.Values{"role": {"admin"}}, 303, ""},
		{"/members/" + id + "/role", url.Values{"role": {"god"}}, 422, ""},
		{"/members/" + id + "/role", url.Values{"role": {"member"}}, 303, ""},
		{"/members", url.Values{"email": {"new@example.com"}, "role": {"admin"}}, 200, "not shown again"},
		{"/members", url.Values{"email": {"not an address"}, "role": {"admin"}}, 422, "e-mail address"},
		{"/invitations/" + w.invitation + "/remove", url.Values{}, 303, ""},
		{"/settings/name", url.Values{"name": {"Shop & Co"}}, 303, ""},
		{"/settings/name", url.Values{"name": {""}}, 422, "name"},
	} {
		status, text := w.submit(t, w.owner, base+one.path, one.form)
		if status != one.status || !strings.Contains(text, one.shows) {
			t.Errorf("%s %v: got %d %s, want %d with %q", one.path, one.form, status, text, one.status, one.shows)
		}
		if status, text := w.submit(t, w.member, base+one.path, one.form); status != http.StatusForbidden {
			t.Errorf("%s as a member: got %d %s", one.path, status, text)
		}
		if status, text := w.submit(t, w.stranger, base+one.path, one.form); status != http.StatusNotFound {
			t.Errorf("%s as a stranger: got %d %s", one.path, status, text)
		}
	}
	w.wantRecorded(t, "add-stop done", "remove-host done", "add-host done", "set-role done", "invite done", "uninvite done",
		"rename-organisation done")
	w.checkOwnForms(t, base)
}

// checkOwnForms: forms that a member may send for itself.
func (w *world) checkOwnForms(t *testing.T, base string) {
	t.Helper()
	status, text := w.submit(t, w.member, base+"/tokens", url.Values{"name": {"mine"}, "role": {"member"}, "days": {"3"}})
	if status != http.StatusOK || !strings.Contains(text, "not shown again") {
		t.Errorf("a token: got %d %s", status, text)
	}
	if _, text := w.member.send("GET", base+"/tokens", nil); strings.Contains(string(text), "not shown again") {
		t.Error("the secret of the token is shown again")
	}
	for path, form := range map[string]url.Values{"/tokens": {"name": {"x"}, "role": {"owner"}, "days": {"3"}},
		"/settings/delete": {"name": {"Shop & Co"}}} {
		if status, text := w.submit(t, w.member, base+path, form); status != http.StatusForbidden {
			t.Errorf("%s as a member: got %d %s", path, status, text)
		}
	}
	if status, text := w.submit(t, w.member, base+"/tokens/"+w.token+"/remove", nil); status != http.StatusNotFound {
		t.Errorf("the token of another person: got %d %s", status, text)
	}
	if status, text := w.submit(t, w.member, base+"/members/"+w.member.account.ID+"/remove", url.Values{"confirm": {"yes"}}); status != http.StatusSeeOther {
		t.Errorf("leaving: got %d %s", status, text)
	}
	if status, text := w.submit(t, w.admin, base+"/settings/delete", url.Values{"name": {"Shop & Co"}}); status != http.StatusForbidden {
		t.Errorf("an admin deletes the organisation: got %d %s", status, text)
	}
	if status, text := w.submit(t, w.owner, base+"/settings/delete", url.Values{"name": {"Shop"}}); status != http.StatusUnprocessableEntity {
		t.Errorf("another name: got %d %s", status, text)
	}
	if status, text := w.submit(t, w.owner, base+"/settings/delete", url.Values{"name": {"Shop & Co"}}); status != http.StatusSeeOther {
		t.Errorf("deleting the organisation: got %d %s", status, text)
	}
}

// submit sends a form, and returns the status and the text of the answer. A redirection must stay on this server.
func (w *world) submit(t *testing.T, c *client, path string, form url.Values) (int, string) {
	t.Helper()
	sender := *c
	sender.address = w.newClient(t).address
	resp := sender.form(path, form)
	if to, err := resp.Location(); err == nil && to.Host != mustURL(t, w.URL).Host {
		t.Errorf("%s leads to %s", path, to)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
