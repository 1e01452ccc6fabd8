package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// asker is a gate that asks about system.date like the real one: the question outlives the waiting call, and a grant is
// used once.
type asker struct {
	*gate
	local bool // an unsigned answer counts

	stands  bool // an answer can count for the session
	session bool // one was given

	mu       sync.Mutex
	question *bailey.Question
	asked    int // opened questions
	granted  bool
	denied   string
	ran      int
	left     int // calls whose caller disconnected
	settled  chan struct{}
	reasons  []string
}

const askedDigest = "da39a3ee5e6b4b0d3255bfef95601890afd80709da39a3ee5e6b4b0d3255bfef"

func newAsker() *asker {
	a := &asker{gate: yard(), local: true}
	a.gate.do["system.date"] = a.date
	a.tools = append(a.tools, Tool{ID: "system.date", Description: "tells the date"})
	return a
}

func (a *asker) open(c bailey.Call) (bailey.Question, chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.question == nil {
		a.asked++
		a.settled = make(chan struct{})
		a.question = &bailey.Question{ID: bailey.ApprovalID(fmt.Sprintf("a-%d", a.asked)), Session: c.Session.ID, Principal: c.Principal, Call: c.Capability,
			Digest: askedDigest, Expires: time.Unix(1e9, 0), Impact: "readOnly, readOnly", Inputs: []bailey.Input{{Name: "message", Shown: bailey.Shown{Text: `"go\u202eon"`}}}, Contents: bailey.NotBound, Dir: bailey.Shown{Text: "/src"},
			Argv: []bailey.Shown{{Text: "date"}, {Text: "--utc\n\x1b[2J"}}, Rules: []bailey.Rule{{ID: "dates-ask", Reason: "somebody looks first", Count: 1}},
			Preview: bailey.Preview{Argv: []bailey.Shown{{Text: "cal"}}, Output: bailey.Shown{Text: "Mo Tu\n 1 \x1b[31m2\n"}}}
	}
	return *a.question, a.settled
}

func (a *asker) use() (bailey.Result, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.granted:
		a.granted, a.question = false, nil
		a.ran++
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: []byte("today"), Decision: bailey.Decision{Effect: bailey.Allow}}, true
	case a.denied != "":
		return bailey.Result{Receipt: "r-no", Status: bailey.Refused, Err: &bailey.Error{Kind: bailey.Denied, Message: a.denied}}, true
	}
	return bailey.Result{}, false
}

func (a *asker) date(ctx context.Context, c bailey.Call) bailey.Result {
	if r, ok := a.use(); ok {
		return r
	}
	q, settled := a.open(c)
	if c.Patience > 0 {
		waits, left := context.WithCancel(ctx)
		defer left()
		if c.Asked != nil {
			go c.Asked(waits, q)
		}
		select {
		case <-settled:
			left()
			if r, ok := a.use(); ok {
				return r
			}
		case <-time.After(c.Patience):
		case <-ctx.Done():
			a.mu.Lock()
			a.left++
			a.mu.Unlock()
			return bailey.Result{Receipt: "r-gone", Status: bailey.Killed, Err: ctx.Err()}
		}
	}
	return bailey.Result{Receipt: "r-wait", Status: bailey.Pending, Approval: q.ID, Err: &bailey.Error{Kind: bailey.Denied, Message: "a person must approve this"}}
}

func (a *asker) Question(_ context.Context, from bailey.Call, id bailey.ApprovalID) (Question, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.question == nil || a.question.ID != id || a.question.Session != from.Session.ID {
		return Question{}, &bailey.Error{Kind: bailey.NotFound, Message: "no such question is open"}
	}
	return Question{*a.question, a.local, a.stands}, nil
}

func (a *asker) AnswerSession(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string) error {
	a.session = true
	return a.Answer(ctx, from, id, digest, true, "")
}

func (a *asker) Answer(ctx context.Context, from bailey.Call, id bailey.ApprovalID, digest string, grant bool, reason string) error {
	q, err := a.Question(ctx, from, id)
	switch {
	case err != nil:
		return err
	case digest != q.Digest:
		return &bailey.Error{Kind: bailey.Conflict, Message: "another text"}
	}
	a.settle(grant, reason)
	return nil
}

func (a *asker) settle(grant bool, reason string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.granted, a.reasons = grant, append(a.reasons, reason)
	if !grant {
		a.denied, a.question = "denied: "+reason, nil
	}
	close(a.settled)
}

func (a *asker) runs() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ran
}

// host is a client that shows forms.
type host struct {
	session *sdk.ClientSession

	mu       sync.Mutex
	shown    []*sdk.ElicitParams
	progress []*sdk.ProgressNotificationParams
}

// newHost connects a client that answers questions with say; nil: it cannot be asked. newer selects the newest
// revision.
func newHost(t *testing.T, g Gate, patience time.Duration, say func(context.Context, *sdk.ElicitParams) *sdk.ElicitResult, newer bool) *host {
	t.Helper()
	h := &host{}
	opts := &sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
		h.mu.Lock()
		h.progress = append(h.progress, r.Params)
		h.mu.Unlock()
	}}
	if say != nil {
		opts.ElicitationHandler = func(ctx context.Context, r *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			h.mu.Lock()
			h.shown = append(h.shown, r.Params)
			h.mu.Unlock()
			return say(ctx, r.Params), nil
		}
	}
	near, far := net.Pipe()
	cfg := config(g)
	cfg.Patience = patience
	done := make(chan struct{})
	go func() { Serve(context.Background(), cfg, far); close(done) }()
	t.Cleanup(func() { near.Close(); <-done })
	client := sdk.NewClient(&sdk.Implementation{Name: "host", Version: "1"}, opts)
	version := "2025-11-25"
	if newer {
		version = "2026-07-28"
	}
	var err error
	h.session, err = client.Connect(t.Context(), &sdk.IOTransport{Reader: near, Writer: near}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.session.Close() })
	return h
}

func (h *host) asked() []*sdk.ElicitParams {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*sdk.ElicitParams(nil), h.shown...)
}

// says answers every question with one word.
func says(action, word string) func(context.Context, *sdk.ElicitParams) *sdk.ElicitResult {
	return func(_ context.Context, p *sdk.ElicitParams) *sdk.ElicitResult {
		r := &sdk.ElicitResult{Action: action}
		if word != "" {
			r.Content = map[string]any{keyOf(p): word}
		}
		return r
	}
}

// keyOf returns the only property of the form.
func keyOf(p *sdk.ElicitParams) string {
	b, _ := json.Marshal(p.RequestedSchema)
	var s struct{ Properties map[string]any }
	json.Unmarshal(b, &s)
	for k := range s.Properties {
		return k
	}
	return ""
}

// TestPending checks that a call without an answer stays pending and says how to continue, and that the same call
// continues it.
func TestPending(t *testing.T) {
	a := newAsker()
	h := newHost(t, a, time.Millisecond, nil, false)
	res := callTool(t, h.session, "system_date", nil)
	f := metaOf(t, res)
	if !res.IsError || f.Approval != "a-1" || !f.ApprovalRequired || !f.CallAgain || f.Expires != "2001-09-09T01:46:40Z" || f.Wants == nil || f.Wants.Count != 1 || f.Wants.Signed {
		t.Errorf("%+v", f)
	}
	text := first(t, res)
	for _, want := range []string{"waiting for approval", "approval: a-1", "open until: 2001-09-09T01:46:40Z", "bailey approve a-1", "call again with the same arguments in this session", "runs once", "executed: no"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if b, _ := json.Marshal(res.StructuredContent); !strings.Contains(string(b), `"callAgain":true`) {
		t.Errorf("structured: %s", b)
	}
	a.settle(true, "")
	if res := callTool(t, h.session, "system_date", nil); res.IsError || first(t, res) != "today" || a.runs() != 1 || a.asked != 1 {
		t.Errorf("taken up: %v, ran %d times, asked %d times", first(t, res), a.runs(), a.asked)
	}
}

// TestWhoAnswers checks that the text names the approvers and the command that is needed.
func TestWhoAnswers(t *testing.T) {
	for want, c := range map[string]struct {
		rules []bailey.Rule
		local bool
	}{
		"a person: bailey approve a-1":                          {[]bailey.Rule{{Count: 1}}, true},
		"an approver, who signs: bailey approve a-1 --key FILE": {[]bailey.Rule{{Count: 1}}, false},
		"an approver, who signs with a key that requires a touch, with the role sre: bailey approve a-1 --key FILE": {[]bailey.Rule{{Level: bailey.SignedTouch, Role: "sre"}}, false},
		"2 approvers, who each sign, with the role lead and sre: bailey approve a-1 --key FILE":                     {[]bailey.Rule{{Count: 2, Role: "sre"}, {Role: "lead"}}, false},
	} {
		f := factsOf(bailey.Result{Status: bailey.Pending, Approval: "a-1"}, &Question{bailey.Question{Rules: c.rules}, c.local, false})
		if got := f.approversText(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestPatience checks that a client may shorten its waiting time and cannot extend it.
func TestPatience(t *testing.T) {
	a := newAsker()
	w := listen(t, func() net.Conn { c, _ := serve(t, a); return c }())
	w.hello("2025-06-18")
	for meta, want := range map[string]time.Duration{
		``: DefaultPatience, `"bailey/patienceMs":0`: 0, `"bailey/patienceMs":1500`: 1500 * time.Millisecond,
		`"bailey/patienceMs":45000`: DefaultPatience, `"bailey/patienceMs":1e300`: DefaultPatience,
	} {
		before := len(a.got())
		w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"m"},"_meta":{` + meta + `}}}`)
		if got := a.got(); len(got) != before+1 || got[before].Patience != want || got[before].Asked == nil {
			t.Errorf("%s: %+v", meta, got[before:])
		}
	}
	for _, bad := range []string{`-1`, `1.5`, `"1"`, `null`, `true`, `{}`} {
		before := len(a.got())
		got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"m"},"_meta":{"bailey/patienceMs":` + bad + `}}}`)
		if !strings.Contains(got, "-32602") || !strings.Contains(got, "patienceMs") || len(a.got()) != before {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

// TestProgress checks that a client that sent a token is told that its call waits, and gets no progress after the
// answer.
func TestProgress(t *testing.T) {
	a := newAsker()
	near, far := net.Pipe()
	c := newConn(far, hidden, DefaultGrace)
	s := &session{Config: config(a), conn: c, page: 1000, beat: time.Millisecond}
	s.Log = discard()
	s.Patience = time.Minute
	server := sdk.NewServer(&sdk.Implementation{Name: "bailey"}, &sdk.ServerOptions{Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}})
	server.AddReceivingMiddleware(s.dispatchMiddleware)
	if _, err := server.Connect(t.Context(), c, nil); err != nil {
		t.Fatal(err)
	}
	w := listen(t, near)
	defer near.Close()
	w.hello("2025-06-18")
	w.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"system_date","_meta":{"progressToken":"tok"}}}`)
	var last float64 = -1
	for n := range 3 {
		var p struct {
			Method string
			Params struct {
				ProgressToken   string
				Progress, Total float64
				Message         string
			}
		}
		line := w.recv()
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Method != "notifications/progress" || p.Params.ProgressToken != "tok" || p.Params.Progress <= last || p.Params.Total != 60 ||
			!strings.Contains(p.Params.Message, "a-1") {
			t.Fatalf("%d: %s", n, line)
		}
		last = p.Params.Progress
	}
	a.settle(true, "")
	for line := w.recv(); !strings.Contains(line, `"id":7`); line = w.recv() {
		if !strings.Contains(line, "notifications/progress") {
			t.Fatal(line)
		}
	}
	if got := w.ask(`{"jsonrpc":"2.0","id":8,"method":"ping"}`); !strings.Contains(got, `"id":8`) {
		t.Errorf("after the answer: %s", got)
	}
}

// TestCancelParks checks that if a client gives up, only its waiting ends. The question stays, and the call can be
// continued.
func TestCancelParks(t *testing.T) {
	a := newAsker()
	h := newHost(t, a, time.Hour, nil, false)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := h.session.CallTool(ctx, &sdk.CallToolParams{Name: "system_date"})
		done <- err
	}()
	waitFor(t, "the question", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.question != nil })
	cancel()
	if err := <-done; err == nil {
		t.Fatal("it was answered")
	}
	waitFor(t, "the call to be over", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.left == 1 })
	a.settle(true, "")
	if res := callTool(t, h.session, "system_date", nil); res.IsError || a.runs() != 1 || a.asked != 1 {
		t.Errorf("taken up: %v, ran %d, asked %d", first(t, res), a.runs(), a.asked)
	}
}

func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for nothing: %s", what)
		}
	}
}
