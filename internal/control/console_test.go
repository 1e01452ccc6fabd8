package control_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"bailey/internal/fleet"
)

// open opens a page, which must have a status, and returns its text.
func (c *client) open(path string, status int) string {
	c.t.Helper()
	got, text := c.send("GET", path, nil)
	if got != status {
		c.t.Fatalf("%s: %d, want %d: %s", path, got, status, text)
	}
	return string(text)
}

// TestOverview: it shows what waits, runs and was denied, and to a stranger the same as for an organisation that does
// not exist.
func TestOverview(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	member := owner.join(shop, "member@example.com", "member")
	page := owner.open("/o/"+shop, http.StatusOK)
	for _, text := range []string{"<h1>Overview</h1>", "Nothing waits", "No gateway belongs", "Nothing was denied", `action="/logout"`} {
		if !strings.Contains(page, text) {
			t.Errorf("the empty page lacks %q: %s", text, page)
		}
	}
	askQuestion(owner, shop)
	page = owner.open("/o/"+shop, http.StatusOK)
	for _, text := range []string{"git.push", "coder", "0 of 1 gateway is connected", "No call is running"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page lacks %q: %s", text, page)
		}
	}
	if page := member.open("/o/"+shop, http.StatusOK); !strings.Contains(page, "shown to admins") ||
		strings.Contains(page, "No call is running") {
		t.Errorf("a member sees %s", page)
	}
	stranger := owner.join(shop, "s@example.com", "member")
	want[object](stranger, "DELETE", "/api/v1/organisations/"+shop+"/members/"+stranger.account.ID, nil)
	none := stranger.open("/o/o-none", http.StatusNotFound)
	if other := stranger.open("/o/"+shop, http.StatusNotFound); other != none || !strings.Contains(none, "no such organisation") {
		t.Errorf("the answers differ: %s and %s", none, other)
	}
	if status, _ := owner.program(shop, "owner").send("GET", "/o/"+shop, nil); status != http.StatusForbidden {
		t.Errorf("an API token opens a page: %d", status)
	}
}

// TestSignInReturns: signing in leads to the page that was asked for, and never to another site.
func TestSignInReturns(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	_, shop := f.setUp(t)
	wanted := "/o/" + shop + "?x=1"
	c := f.newClient(t)
	if to := c.get(f.URL + wanted).Header.Get("Location"); to != "/login?next="+url.QueryEscape(wanted) {
		t.Errorf("sent to %q", to)
	}
	if page := c.open("/login?next="+url.QueryEscape(wanted), http.StatusOK); !strings.Contains(page, `name="next" value="`+wanted) {
		t.Errorf("the form: %s", page)
	}
	resp := c.form("/login", url.Values{"email": {"ann@example.com"}, "password": {"password of ann"}, "next": {wanted}})
	if to := resp.Header.Get("Location"); to != wanted {
		t.Errorf("signing in led to %q", to)
	}
	for _, next := range []string{"https://evil.example/o/x", "//evil.example/o/x", "/\\evil.example", "/o/../../evil", "javascript:alert(1)",
		"/o/x\r\nSet-Cookie: a=b", "/account", "o/x", "/o/x/live", "/o/x#y", "/o//evil"} {
		f.advance(10 * time.Second)
		resp := f.newClient(t).form("/login", url.Values{"email": {"ann@example.com"}, "password": {"password of ann"}, "next": {next}})
		if to := resp.Header.Get("Location"); to != "/" {
			t.Errorf("%q led to %q", next, to)
		}
		if page := c.open("/login?next="+url.QueryEscape(next), http.StatusOK); strings.Contains(page, `name="next"`) {
			t.Errorf("%q is in the form", next)
		}
	}
	// A link of another site brings no cookie, so the page is asked for again from here.
	if status, page := f.newClient(t).send("GET", wanted, nil, "Sec-Fetch-Site", "cross-site"); status != http.StatusOK ||
		!strings.Contains(string(page), `content="0;url=`+wanted) {
		t.Errorf("from another site: %d %s", status, page)
	}
}

// stream reads the events of an organisation.
type stream struct {
	lines chan string
	close func()
}

func (c *client) listen(shop string) *stream {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), "GET", c.f.URL+"/o/"+shop+"/live", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		c.t.Fatalf("events: %d %s", resp.StatusCode, text)
	}
	s := &stream{make(chan string, 100), func() { resp.Body.Close() }}
	c.t.Cleanup(s.close)
	go func() {
		defer close(s.lines)
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				s.lines <- name
			}
		}
	}()
	return s
}

// next returns the next event, or "" at the end.
func (s *stream) next(t *testing.T) string {
	t.Helper()
	select {
	case name := <-s.lines:
		return name
	case <-time.After(20 * time.Second):
		t.Fatal("no event")
		return ""
	}
}

// TestLiveEvents: an open page learns of questions, hosts and receipts of its own organisation, until the session or the
// role of the person ends.
func TestLiveEvents(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	other := want[item](owner, "POST", "/api/v1/organisations", object{"name": "Other"}).ID
	here, there := owner.listen(shop), owner.listen(other)
	g := f.connectGateway(t, owner.addGateway(shop, "g"), t.TempDir(), fleet.Handlers{})
	if got := here.next(t); got != "hosts" {
		t.Errorf("got %q", got)
	}
	g.tell(t, fleet.ApprovalAsked, asked("a-live", "text", f.Now()))
	if got := here.next(t); got != "approvals" {
		t.Errorf("got %q", got)
	}
	member := owner.join(shop, "member@example.com", "member")
	leaves, ends := member.listen(shop), signInAgain(t, f, "member@example.com").listen(shop)
	want[object](owner, "DELETE", "/api/v1/organisations/"+shop+"/members/"+member.account.ID, nil)
	g.tell(t, fleet.ApprovalDecided, fleet.Decided{ID: "a-live", Reason: "no"})
	for _, s := range []*stream{leaves, ends} {
		if got := s.next(t); got != "" {
			t.Errorf("a person who is no longer a member learns of %q", got)
		}
	}
	if got := here.next(t); got != "approvals" {
		t.Errorf("got %q", got)
	}
	want[object](owner, "POST", "/api/v1/logout", nil)
	g.tell(t, fleet.ApprovalAsked, asked("a-later", "text", f.Now()))
	if got := here.next(t); got != "" {
		t.Errorf("after the sign-out: %q", got)
	}
	there.close()
	if got := there.next(t); got != "" {
		t.Errorf("another organisation learns of %q", got)
	}
}

// TestLiveIsNoUse: a page that is left open does not keep its session alive.
func TestLiveIsNoUse(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	owner.join(shop, "member@example.com", "member")
	left := signInAgain(t, f, "member@example.com")
	open := left.listen(shop)
	for i := range 3 { // each event and each refresh checks the session
		f.advance(25 * time.Hour)
		want[object](owner, "GET", "/api/v1/me", nil)
		g := f.connectGateway(t, owner.addGateway(shop, fmt.Sprint("g", i)), t.TempDir(), fleet.Handlers{})
		if open.next(t) == "" {
			break
		}
		g.stop()
		left.send("GET", "/o/"+shop, nil, "Bailey-Unattended", "1")
	}
	if resp := left.get(f.URL + "/o/" + shop); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("after 75 hours: %d", resp.StatusCode)
	}
	if resp := owner.get(f.URL + "/o/" + shop); resp.StatusCode != http.StatusOK {
		t.Errorf("a session in use: %d", resp.StatusCode)
	}
}

// TestStopsWithOpenPages: the server does not wait for pages that are open.
func TestStopsWithOpenPages(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, l, nil) }()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/o/"+shop+"/live", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = mustURL(t, f.URL).Host
	for _, c := range owner.http.Jar.Cookies(mustURL(t, f.URL)) {
		req.AddCookie(c)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the server waits for an open page")
	}
}

// TestLiveLimit: an account has a limited number of open pages.
func TestLiveLimit(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	var open []*stream
	for range 20 {
		open = append(open, owner.listen(shop))
	}
	if resp := owner.get(f.URL + "/o/" + shop + "/live"); resp.StatusCode != http.StatusConflict {
		t.Errorf("one more: %d", resp.StatusCode)
	}
	open[0].close()
	f.until(t, "a place is free", func() bool { return owner.get(f.URL+"/o/"+shop+"/live").StatusCode == http.StatusOK })
}

// TestPolicyReports: a report of a browser is accepted without a session, whatever it contains.
func TestPolicyReports(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	for _, body := range []any{object{"csp-report": object{"document-uri": "http://x/\nlevel=ERROR", "blocked-uri": "inline"}}, "x", 7} {
		if status, text := f.newClient(t).send("POST", "/csp-report", body); status != http.StatusNoContent || len(text) > 0 {
			t.Errorf("%v: %d %s", body, status, text)
		}
	}
}
