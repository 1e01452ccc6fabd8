package control_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/fleet"
	"bailey/internal/store"
)

// asked returns a question as a gateway tells it.
func asked(id, text string, now time.Time) fleet.Asked {
	return fleet.Asked{ID: bailey.ApprovalID(id), Text: text, Digest: store.Hash(text), Agent: "coder", Person: "ann",
		Capability: "git.push", Impact: "external", Rules: []fleet.AskedRule{{ID: "push-asks"}}, Roles: []string{"release"},
		Count: 1, At: now, Expires: now.Add(10 * time.Minute)}
}

// addGateway makes a gateway of an organisation.
func (c *client) addGateway(shop, name string) store.Host {
	c.t.Helper()
	made := want[struct{ ID, Secret string }](c, "POST", "/api/v1/organisations/"+shop+"/hosts",
		object{"name": name, "kind": "gateway", "days": 1})
	h, err := c.f.Store.HostByHash(c.t.Context(), store.Hash(made.Secret))
	if err != nil {
		c.t.Fatal(err)
	}
	return h
}

var numbers struct {
	sync.Mutex
	n int
}

// askQuestion stores a question of a gateway that is not connected.
func askQuestion(c *client, shop string) string {
	c.t.Helper()
	numbers.Lock()
	numbers.n++
	id := "a-" + strconv.Itoa(numbers.n)
	numbers.Unlock()
	h := c.addGateway(shop, "of "+id)
	a := asked(id, "text of "+id, c.f.Now())
	body, err := json.Marshal(a)
	if err == nil {
		err = c.f.Store.Change(c.t.Context(), func(tx *store.Tx) error {
			return c.f.Store.AskQuestion(c.t.Context(), tx, h, store.Question{ID: id, Asked: a.At, Expires: a.Expires, Body: body})
		})
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

// pair is both ends of a stream in memory.
type pair struct {
	ctx     context.Context
	in, out chan *fleet.Frame
}

func newPair(ctx context.Context) (host, server pair) {
	up, down := make(chan *fleet.Frame), make(chan *fleet.Frame)
	return pair{ctx, down, up}, pair{ctx, up, down}
}

func (p pair) Send(f *fleet.Frame) error {
	select {
	case p.out <- f:
		return nil
	case <-p.ctx.Done():
		return io.EOF
	}
}

func (p pair) Recv() (*fleet.Frame, error) {
	select {
	case f := <-p.in:
		return f, nil
	case <-p.ctx.Done():
		return nil, io.EOF
	}
}

// gateway is a connected host of a test, with the real queue, record of commands and client.
type gateway struct {
	host  store.Host
	queue *fleet.Queue
	stop  func()
}

// connectGateway connects a gateway until stop is called or the test ends.
func (f *fixture) connectGateway(t *testing.T, h store.Host, dir string, handlers fleet.Handlers) *gateway {
	t.Helper()
	q, err := fleet.OpenQueue(dir)
	if err != nil {
		t.Fatal(err)
	}
	commands, err := fleet.OpenCommands(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	c := &fleet.Client{Queue: q, Commands: commands, Handlers: handlers, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Register: func(context.Context) (fleet.Register, error) {
			return fleet.Register{Kind: fleet.Gateway, Version: "test", Queue: q.ID()}, nil
		},
		Dial: func(ctx context.Context) (fleet.Stream, error) {
			host, server := newPair(ctx)
			go f.Hosts.ServeHost(ctx, h, server)
			return host, nil
		}}
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	g := &gateway{host: h, queue: q, stop: sync.OnceFunc(func() {
		cancel()
		<-done
		q.Close()
		commands.Close()
	})}
	t.Cleanup(g.stop)
	f.until(t, "the gateway is connected", func() bool { return f.Hosts.Connected(h.ID) })
	return g
}

func (f *fixture) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatal("not within 20 s:", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (g *gateway) tell(t *testing.T, kind string, v any) {
	t.Helper()
	body, err := json.Marshal(v)
	if err == nil {
		err = g.queue.Append(kind, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type approvals struct {
	Version int64
	Items   []struct{ ID, State, Reason, HostName, Agent, Text, Digest string }
}

// TestApprovals follows a question from its gateway to a person and back. A program that waits learns of it within a
// second.
func TestApprovals(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	member := owner.join(shop, "member@example.com", "member")
	base := "/api/v1/organisations/" + shop + "/approvals"
	got := make(chan fleet.Answer, 1)
	g := f.connectGateway(t, owner.addGateway(shop, "laptop"), t.TempDir(), fleet.Handlers{
		fleet.ApprovalAnswer: func(_ context.Context, body []byte) ([]byte, error) {
			var a fleet.Answer
			err := json.Unmarshal(body, &a)
			got <- a
			if a.Signature == "forged" {
				return nil, bailey.Denied.New("the signature is not valid", "sign again")
			}
			return []byte(`{"settled":true,"granted":true,"names":["ann"],"count":1}`), err
		}})
	question := asked("a-abc", "bailey approval 1\n", f.Now())
	g.tell(t, fleet.ApprovalAsked, question)
	g.tell(t, fleet.ApprovalAsked, question) // as after a restart
	f.until(t, "the question is listed", func() bool {
		return len(want[approvals](member, "GET", base+"?state=open", nil).Items) == 1
	})
	all := want[approvals](member, "GET", base, nil)
	if i := all.Items[0]; i.HostName != "laptop" || i.Agent != "coder" || i.Text != "" || i.State != "open" {
		t.Errorf("got %+v", i)
	}
	if i := want[struct{ Text, Digest string }](member, "GET", base+"/a-abc", nil); i.Text != question.Text ||
		i.Digest != question.Digest {
		t.Errorf("got %+v", i)
	}

	waiting := make(chan time.Time, 1)
	go func() {
		member.send("GET", base+"?since="+strconv.FormatInt(all.Version, 10), nil)
		waiting <- time.Now()
	}()
	status, text := member.send("POST", base+"/a-abc/answer", object{"grant": true, "digest": question.Digest,
		"signature": "forged"})
	if status != http.StatusForbidden || <-got == (fleet.Answer{}) {
		t.Errorf("a forged answer: got %d %s", status, text)
	}
	settled := want[struct{ Granted bool }](member, "POST", base+"/a-abc/answer", object{"grant": true,
		"digest": question.Digest, "signature": "signed"})
	if a := <-got; !settled.Granted || a.Signature != "signed" || a.Digest != question.Digest || !a.Grant {
		t.Errorf("the gateway got %+v", a)
	}
	told := time.Now()
	g.tell(t, fleet.ApprovalDecided, fleet.Decided{ID: "a-abc", Granted: true, Reason: "granted by ann"})
	if late := (<-waiting).Sub(told); late > time.Second {
		t.Errorf("a waiting program learned of the end after %v", late)
	}
	f.until(t, "the question is granted", func() bool {
		i := want[approvals](member, "GET", base+"?state=granted", nil).Items
		return len(i) == 1 && i[0].Reason == "granted by ann"
	})
	f.wantRecorded(t)
}

// TestAttackQuestions checks what a hostile host or member cannot do with questions.
func TestAttackQuestions(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop + "/approvals"
	one := f.connectGateway(t, owner.addGateway(shop, "one"), t.TempDir(), nil)
	two := f.connectGateway(t, owner.addGateway(shop, "two"), t.TempDir(), nil)
	one.tell(t, fleet.ApprovalAsked, asked("a-one", "one", f.Now()))
	f.until(t, "the question is listed", func() bool { return len(want[approvals](owner, "GET", base, nil).Items) == 1 })
	other := asked("a-other", "shown", f.Now())
	other.Text = "bound"
	two.tell(t, fleet.ApprovalAsked, other)                                          // its digest is of another text
	two.tell(t, fleet.ApprovalAsked, asked("a-one", "replaced", f.Now()))            // of another host
	two.tell(t, fleet.ApprovalDecided, fleet.Decided{ID: "a-one", Granted: true})    // likewise
	two.tell(t, fleet.ApprovalAsked, asked("a-two", "two", f.Now()))                 // comes after the others
	two.tell(t, fleet.BundleState, json.RawMessage(`{"serial":"x"}`))                // malformed
	two.tell(t, fleet.ApprovalAsked, asked("a-old", "old", f.Now().Add(-time.Hour))) // has expired
	f.until(t, "the last question is stored", func() bool { return len(want[approvals](owner, "GET", base, nil).Items) == 3 })
	if i := want[struct{ Text, State, HostName string }](owner, "GET", base+"/a-one", nil); i.Text != "one" ||
		i.State != "open" || i.HostName != "one" {
		t.Errorf("another host changed a question: %+v", i)
	}
	for name, c := range map[string]struct {
		id     string
		body   object
		status int
	}{
		"unsigned grant":  {"a-one", object{"grant": true, "digest": store.Hash("one")}, http.StatusUnprocessableEntity},
		"expired":         {"a-old", object{"grant": true, "digest": store.Hash("old"), "signature": "x"}, http.StatusConflict},
		"unknown":         {"a-other", object{"grant": true, "digest": "x", "signature": "x"}, http.StatusNotFound},
		"gateway refuses": {"a-one", object{"grant": true, "digest": store.Hash("one"), "signature": "x"}, 0},
	} {
		status, text := owner.send("POST", base+"/"+c.id+"/answer", c.body)
		if c.status != 0 && status != c.status || status < 400 {
			t.Errorf("%s: got %d %s, want %d", name, status, text, c.status)
		}
	}
	member := owner.join(shop, "member@example.com", "member")
	if status, _ := member.send("POST", base+"/a-one/answer", object{"grant": false}); status != http.StatusForbidden {
		t.Errorf("a member denied a question: %d", status)
	}
	one.stop()
	f.until(t, "the gateway has left", func() bool { return !f.Hosts.Connected(one.host.ID) })
	if status, _ := owner.send("POST", base+"/a-one/answer", object{"grant": false}); status != http.StatusServiceUnavailable {
		t.Errorf("an answer to a gateway that is away: %d", status)
	}
}

// ordered keeps the newest orders, as a gateway does.
type ordered struct {
	mu  sync.Mutex
	now fleet.Orders
}

func (o *ordered) handlers() fleet.Handlers {
	take := func(_ context.Context, body []byte) ([]byte, error) {
		var got fleet.Orders
		err := json.Unmarshal(body, &got)
		o.mu.Lock()
		defer o.mu.Unlock()
		if got.Revision > o.now.Revision {
			o.now = got
		}
		return nil, err
	}
	return fleet.Handlers{fleet.Kill: take, fleet.Unkill: take}
}

// reasons returns what is stopped, in the order of the agents: stops of the same moment have no order.
func (o *ordered) reasons() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var words []string
	for _, k := range o.now.Kills {
		words = append(words, k.Agent+":"+k.Reason)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// TestStops checks that what is stopped reaches the gateways that it is for, also one that was away, and is recorded.
func TestStops(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop + "/stops"
	var one, two ordered
	a, b := owner.addGateway(shop, "one"), owner.addGateway(shop, "two")
	dir := t.TempDir()
	first := f.connectGateway(t, a, dir, one.handlers())
	f.connectGateway(t, b, t.TempDir(), two.handlers())
	want[item](owner, "POST", base, object{"agent": "coder", "reason": "agent"})
	host := want[item](owner, "POST", base, object{"host": a.ID, "reason": "host"})
	f.until(t, "both have their orders", func() bool {
		return one.reasons() == ":host coder:agent" && two.reasons() == "coder:agent"
	})
	first.stop()
	f.until(t, "the gateway has left", func() bool { return !f.Hosts.Connected(a.ID) })
	want[item](owner, "POST", base, object{"reason": "all"})
	want[object](owner, "DELETE", base+"/"+host.ID, nil)
	f.connectGateway(t, a, dir, one.handlers())
	f.until(t, "the gateway that was away has its orders", func() bool {
		return one.reasons() == ":all coder:agent" && two.reasons() == ":all coder:agent"
	})
	if status, _ := owner.send("POST", base, object{"host": "h-none", "reason": "x"}); status != http.StatusNotFound {
		t.Errorf("a host that does not exist: %d", status)
	}
	if status, _ := owner.send("DELETE", base+"/"+host.ID, nil); status != http.StatusNotFound {
		t.Errorf("what was resumed before: %d", status)
	}
	f.wantRecorded(t)
}

// TestBundles checks that gateways get the bytes that were signed, and that the state of each is shown.
func TestBundles(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop + "/bundles"
	got := make(chan fleet.Bundle, 10)
	h := owner.addGateway(shop, "one")
	g := f.connectGateway(t, h, t.TempDir(), fleet.Handlers{fleet.BundleOffer: func(_ context.Context, body []byte) ([]byte, error) {
		var b fleet.Bundle
		err := json.Unmarshal(body, &b)
		got <- b
		return []byte("{}"), err
	}})
	files := []object{{"name": "a.cedar", "text": "permit (principal, action, resource); // <&> \u2028 é\n"}}
	want[object](owner, "POST", base, object{"serial": 7, "files": files, "signature": "signed", "hosts": []string{h.ID}})
	if b := <-got; b.Serial != 7 || b.Signature != "signed" || len(b.Files) != 1 || b.Files[0].Text != files[0]["text"] {
		t.Errorf("the gateway got %+v", b)
	}
	g.tell(t, fleet.BundleState, fleet.BundleResult{Serial: 7, Applied: true, Changes: []string{"+ git.push"}})
	f.until(t, "the state is shown", func() bool {
		l := want[struct {
			Items []struct {
				Serial int
				States []struct {
					Name    string
					Applied bool
					Changes []string
				}
			}
		}](owner, "GET", base, nil).Items
		return len(l) == 1 && len(l[0].States) == 1 && l[0].States[0].Applied && l[0].States[0].Name == "one" &&
			l[0].States[0].Changes[0] == "+ git.push"
	})
	for _, serial := range []int{7, 3} {
		if status, _ := owner.send("POST", base, object{"serial": serial, "files": files, "signature": "x"}); status !=
			http.StatusConflict {
			t.Errorf("serial number %d after 7: %d", serial, status)
		}
	}
	if status, _ := owner.send("POST", base, object{"serial": 8, "files": files, "signature": "x",
		"hosts": []string{"h-none"}}); status != http.StatusNotFound {
		t.Errorf("a host that does not exist: %d", status)
	}
}

// farTime has a form in JSON, which it does not have in UTC.
var farTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -(23*3600+59*60)))

// TestAttackTimes checks that a host cannot spoil the lists of its organisation with times that cannot be shown.
func TestAttackTimes(t *testing.T) {
	t.Parallel()
	f := startServer(t)
	owner, shop := f.setUp(t)
	base := "/api/v1/organisations/" + shop
	g := f.connectGateway(t, owner.addGateway(shop, "one"), t.TempDir(), nil)
	for id, change := range map[string]func(*fleet.Asked){
		"a-far":   func(a *fleet.Asked) { a.At = farTime },
		"a-late":  func(a *fleet.Asked) { a.Expires = f.Now().Add(366 * 24 * time.Hour) },
		"a-early": func(a *fleet.Asked) { a.At = f.Now().Add(-366 * 24 * time.Hour) },
	} {
		a := asked(id, id, f.Now())
		change(&a)
		g.tell(t, fleet.ApprovalAsked, a)
	}
	g.tell(t, fleet.ApprovalAsked, asked("a-good", "good", f.Now()))
	f.until(t, "the good question is stored", func() bool {
		status, _ := owner.send("GET", base+"/approvals/a-good", nil)
		return status == http.StatusOK
	})
	if all := want[approvals](owner, "GET", base+"/approvals", nil).Items; len(all) != 1 || all[0].ID != "a-good" {
		t.Errorf("got %+v", all)
	}

	_, token := addGateway(owner, shop, "two")
	b := newBook(t)
	w, _ := f.register(t, token, fleet.Register{Queue: fleet.NewID(), Ledger: b.registration()})
	b.callAt("far", farTime)
	b.call("near")
	w.say(&fleet.Frame{Receipts: b.after(0)})
	if c := w.hear().Cosigned; c == nil || c.Forked {
		t.Fatalf("%+v", c)
	}
	all := want[struct{ Items []store.Receipt }](owner, "GET", base+"/receipts", nil).Items
	if len(all) != 2 || all[0].Agent != "near" || !all[1].Started.IsZero() {
		t.Errorf("got %+v", all)
	}
}
