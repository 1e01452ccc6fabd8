package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
)

// gate is a Gate for tests. It records its calls and answers by capability.
type gate struct {
	tools []Tool

	mu     sync.Mutex
	listed int // number of requests for its tools
	calls  []bailey.Call
	do     map[bailey.CapabilityID]func(context.Context, bailey.Call) bailey.Result
}

func (g *gate) Tools(context.Context, bailey.Principal) []Tool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.listed++
	return g.tools
}

func (g *gate) Question(context.Context, bailey.Call, bailey.ApprovalID) (Question, error) {
	return Question{}, &bailey.Error{Kind: bailey.NotFound, Message: "no such question is open"}
}

// Search returns the tools with words in their description, and one tool that must not be shown.
func (g *gate) Search(_ context.Context, words string) []bailey.CapabilityID {
	ids := []bailey.CapabilityID{"hidden.thing"}
	for _, t := range g.tools {
		if strings.Contains(t.Description, words) {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// Receipts returns two receipts for the session s-1, and none for any other.
func (g *gate) Receipts(_ context.Context, of bailey.SessionID, most int) ([]Receipt, error) {
	if of != "s-1" || most < 1 {
		return nil, nil
	}
	return []Receipt{{ID: "r-one", Capability: "system.echo", Status: bailey.OK, Started: time.Unix(0, 0)}, {ID: "r-two", Capability: "git.push", Started: time.Unix(0, 0)}}, nil
}

func (g *gate) Receipt(_ context.Context, of bailey.SessionID, id bailey.ReceiptID) (json.RawMessage, error) {
	if of != "s-1" || id != "r-one" {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: "no such receipt"}
	}
	return json.RawMessage(`{"id":"r-one"}`), nil
}

func (g *gate) AnswerSession(context.Context, bailey.Call, bailey.ApprovalID, string) error {
	return nil
}

func (g *gate) Answer(context.Context, bailey.Call, bailey.ApprovalID, string, bool, string) error {
	return &bailey.Error{Kind: bailey.NotFound, Message: "no such question is open"}
}

func (g *gate) Do(ctx context.Context, call bailey.Call) bailey.Result {
	g.mu.Lock()
	g.calls = append(g.calls, call)
	do := g.do[call.Capability]
	g.mu.Unlock()
	if do != nil {
		return do(ctx, call)
	}
	return bailey.Result{Receipt: "r-none", Status: bailey.Failed, Err: &bailey.Error{
		Kind: bailey.NotFound, Message: "there is no capability " + string(call.Capability), Hint: "see tools/list"}}
}

func (g *gate) got() []bailey.Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]bailey.Call(nil), g.calls...)
}

// yard returns the gate that most tests use.
func yard() *gate {
	g := &gate{do: map[bailey.CapabilityID]func(context.Context, bailey.Call) bailey.Result{}}
	g.tools = []Tool{
		{ID: "system.echo", Description: "says it again", ReadOnly: true, Idempotent: true,
			InputSchema: json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}},"required":["message"],"additionalProperties":false}`)},
		{ID: "git.branch-list", Description: "lists branches", InputSchema: json.RawMessage(`{"type":"object"}`)},
		{ID: "git.push", Description: "publishes", Destructive: true, OpenWorld: true},
	}
	g.do["system.echo"] = func(_ context.Context, c bailey.Call) bailey.Result {
		m, ok := c.Input["message"].(string)
		if !ok {
			return bailey.Result{Receipt: "r-bad", Status: bailey.Failed, Err: &bailey.Error{
				Kind: bailey.Invalid, Message: "message: a string is wanted", Hint: "send message as a string"}}
		}
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: []byte(m),
			Decision: bailey.Decision{Effect: bailey.Allow}}
	}
	g.do["git.push"] = func(context.Context, bailey.Call) bailey.Result {
		return bailey.Result{Receipt: "r-no", Status: bailey.Refused, Err: &bailey.Error{
			Kind: bailey.Denied, Message: "push to main is released by a person", Hint: "push to a branch"},
			Decision: bailey.Decision{Reason: "forbidden"}}
	}
	return g
}

func config(g Gate) Config {
	return Config{Gate: g, Hide: hidden, Principal: bailey.Principal{Agent: "tester"}, Session: bailey.Session{ID: "s-1"},
		Dir: "/src", Version: "0.1"}
}

// hasty is config with little time for open requests after the peer's last byte.
func hasty(g Gate) Config {
	c := config(g)
	c.Grace = 50 * time.Millisecond
	return c
}

// serve starts Serve on one end of a pipe and returns the other. The test fails if Serve does not end soon after the
// connection.
func serve(t testing.TB, g Gate) (net.Conn, <-chan error) {
	t.Helper()
	return serveAs(t, config(g))
}

func serveAs(t testing.TB, cfg Config) (net.Conn, <-chan error) {
	t.Helper()
	near, far := net.Pipe()
	ended := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		ended <- Serve(context.Background(), cfg, far)
		close(done)
	}()
	t.Cleanup(func() {
		near.Close()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Error("Serve did not end with its connection")
		}
	})
	return near, ended
}

// wire is a raw client that sends and receives lines.
type wire struct {
	t  testing.TB
	c  io.ReadWriteCloser
	in chan string
}

func dial(t testing.TB, g Gate) *wire {
	c, _ := serve(t, g)
	return listen(t, c)
}

func listen(t testing.TB, c io.ReadWriteCloser) *wire {
	w := &wire{t: t, c: c, in: make(chan string, 1024)}
	go func() {
		defer close(w.in)
		s := bufio.NewScanner(c)
		s.Buffer(nil, 64<<20)
		for s.Scan() {
			w.in <- s.Text()
		}
	}()
	return w
}

func (w *wire) send(lines ...string) {
	w.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(w.c, l+"\n"); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *wire) recv() string {
	w.t.Helper()
	select {
	case l, ok := <-w.in:
		if !ok {
			w.t.Fatal("the connection ended")
		}
		return l
	case <-time.After(time.Minute):
		w.t.Fatal("no answer")
	}
	return ""
}

// ask sends one line and returns the next answer.
func (w *wire) ask(line string) string {
	w.t.Helper()
	w.send(line)
	return w.recv()
}

// hello initializes the connection in a revision.
func (w *wire) hello(revision string) {
	w.t.Helper()
	got := w.ask(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"` + revision +
		`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
	if !strings.Contains(got, `"protocolVersion":"`+revision+`"`) {
		w.t.Fatalf("initialize in %s: %s", revision, got)
	}
	w.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// pipe returns the two ends of a unix socket. Unlike net.Pipe it has a buffer and can be half closed.
func pipe(t testing.TB) (near, far *net.UnixConn) {
	t.Helper()
	l, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return c.(*net.UnixConn), s.(*net.UnixConn)
}
