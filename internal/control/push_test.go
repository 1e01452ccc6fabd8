package control_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"bailey/internal/console"
	"bailey/internal/fleet"
	"bailey/internal/ktest/pushtest"
	"bailey/internal/store"
)

type pushItems struct {
	Key   string
	Items []struct{ ID, Client string }
}

const pushPath = "/api/v1/me/push"

// subscribe has a new browser of a push service told of questions.
func (c *client) subscribe(p *pushtest.Service) string {
	c.t.Helper()
	endpoint, p256dh, auth := p.Subscribe(c.t, want[pushItems](c, "GET", pushPath, nil).Key)
	return want[item](c, "POST", pushPath, object{"endpoint": endpoint, "keys": object{"p256dh": p256dh, "auth": auth}}).ID
}

// TestNotices: each browser of the members gets the link to a new question, and nothing of what is asked. A browser that has
// gone is removed.
func TestNotices(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	p := pushtest.New(t)
	f.PushClient = p.Client()
	owner, shop := f.setUp(t)
	member := owner.join(shop, "member@example.com", "member")
	stranger := owner.join(shop, "s@example.com", "member")
	for _, c := range []*client{owner, member, stranger} {
		c.subscribe(p)
	}
	want[object](stranger, "DELETE", "/api/v1/organisations/"+shop+"/members/"+stranger.account.ID, nil)
	g := f.connectGateway(t, owner.addGateway(shop, "laptop"), t.TempDir(), fleet.Handlers{})
	question := fullQuestion("a-1", "", f.Now())
	g.tell(t, fleet.ApprovalAsked, question)
	paths := map[string]bool{}
	for range 2 {
		select {
		case m := <-p.Messages:
			paths[m.Path] = true
			if m.Text != `{"url":"/o/`+shop+`/approvals/a-1"}` || m.Subject != f.URL {
				t.Errorf("got %+v", m)
			}
		case err := <-p.Faults:
			t.Fatal(err)
		case <-time.After(20 * time.Second):
			t.Fatal("no notice")
		}
	}
	if !paths["/push/0"] || !paths["/push/1"] {
		t.Errorf("told: %v", paths)
	}
	// The same question again, as after a restart of the gateway, is no news.
	f.advance(2 * time.Minute)
	g.tell(t, fleet.ApprovalAsked, question)
	p.AnswerWith(http.StatusGone)
	next := fullQuestion("a-2", "", f.Now())
	g.tell(t, fleet.ApprovalAsked, next)
	f.until(t, "browsers that have gone are removed", func() bool {
		return len(want[pushItems](owner, "GET", pushPath, nil).Items)+len(want[pushItems](member, "GET", pushPath, nil).Items) == 0
	})
	select {
	case m := <-p.Messages:
		t.Errorf("told again: %+v", m)
	default:
	}
}

// TestNoticeSettings: a person sees and ends the notices of its own devices only, and their number is limited.
func TestNoticeSettings(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	p := pushtest.New(t)
	f.PushClient = p.Client()
	owner, shop := f.setUp(t)
	member := owner.join(shop, "member@example.com", "member")
	id := owner.subscribe(p)
	if page := owner.open("/account/notices", http.StatusOK); !strings.Contains(page, `data-path="/api/v1/me/push/`+id) ||
		!strings.Contains(page, `data-key="`+want[pushItems](owner, "GET", pushPath, nil).Key+`"`) {
		t.Errorf("the page: %s", page)
	}
	if page := member.open("/account/notices", http.StatusOK); strings.Contains(page, id) || !strings.Contains(page, "No device is told") {
		t.Errorf("the page of another person: %s", page)
	}
	member.wantStatus(http.StatusNotFound, "DELETE", pushPath+"/"+id, nil)
	want[object](owner, "DELETE", pushPath+"/"+id, nil)
	for range 10 {
		owner.subscribe(p)
	}
	endpoint, p256dh, auth := p.Subscribe(t, "x")
	owner.wantStatus(http.StatusConflict, "POST", pushPath, object{"endpoint": endpoint, "keys": object{"p256dh": p256dh, "auth": auth}})
	// A browser at which another person signs in is that person's.
	last := want[pushItems](owner, "GET", pushPath, nil).Items
	want[item](member, "POST", pushPath, object{"endpoint": p.URL + "/push/2", "keys": object{"p256dh": p256dh, "auth": auth}})
	if now := want[pushItems](owner, "GET", pushPath, nil).Items; len(now) != len(last)-1 {
		t.Errorf("%d devices, want %d", len(now), len(last)-1)
	}
	sealed, err := f.store.PushKey(t.Context())
	if err != nil || !strings.Contains(sealed, ":") && len(sealed) < 60 {
		t.Errorf("the key is stored as %q, %v", sealed, err)
	}
	key, err := f.keys.Open(store.PushKeySealedAs, sealed)
	if err != nil || strings.Contains(sealed, key) {
		t.Errorf("the key is not sealed: %v", err)
	}
	f.PushClient = nil
	for _, endpoint := range []string{"https://127.0.0.1/x", "https://10.0.0.1/x", "http://push.example.net/x", "https://localhost/x", "x"} {
		member.wantStatus(http.StatusUnprocessableEntity, "POST", pushPath,
			object{"endpoint": endpoint, "keys": object{"p256dh": p256dh, "auth": auth}})
	}
	member.wantStatus(http.StatusUnprocessableEntity, "POST", pushPath,
		object{"endpoint": "https://push.example.net/x", "keys": object{"p256dh": "AA", "auth": auth}})
}

// TestInstallable: the pages name a manifest and icons that exist, and the service worker caches nothing.
func TestInstallable(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	c := f.newClient(t)
	if page := c.open("/login", http.StatusOK); !strings.Contains(page, `rel="manifest" href="/manifest.webmanifest"`) {
		t.Errorf("the page: %s", page)
	}
	m := want[struct {
		Icons []struct{ Src, Type string }
		Start string `json:"start_url"`
	}](c, "GET", "/manifest.webmanifest", nil)
	if len(m.Icons) != 3 || m.Start != "/" {
		t.Errorf("got %+v", m)
	}
	for _, i := range m.Icons {
		if resp := c.get(f.URL + i.Src); resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != i.Type {
			t.Errorf("%s: %d %s", i.Src, resp.StatusCode, resp.Header.Get("Content-Type"))
		}
	}
	status, worker := c.send("GET", "/service-worker.js", nil)
	if text := string(worker); status != http.StatusOK || !strings.Contains(text, "showNotification") || strings.Contains(text, "caches.") ||
		strings.Contains(text, `"fetch"`) {
		t.Errorf("%d %s", status, text)
	}
	if data, _ := console.File("service-worker.js"); string(data) != string(worker) {
		t.Error("another file is served")
	}
}

// TestApproverLine: the account page has the line with which a gateway accepts a passkey.
func TestApproverLine(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, _ := f.setUp(t)
	owner.withPasskey()
	if page := owner.open("/account", http.StatusOK); !strings.Contains(page, "<pre>passkey "+f.URL+" ") {
		t.Errorf("the page: %s", page)
	}
}
