package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
	"bailey/internal/workspace"
)

// echoGate answers every call with its input, waits if the capability says so, and counts.
type echoGate struct {
	mu      sync.Mutex
	ended   []bailey.SessionID
	called  []bailey.Session
	started chan struct{}
	killed  chan error
}

func (g *echoGate) Do(ctx context.Context, c bailey.Call) bailey.Result {
	g.mu.Lock()
	g.called = append(g.called, c.Session)
	g.mu.Unlock()
	if c.Capability == "asks" {
		c.Asked(ctx, bailey.Question{ID: "a-1", Digest: "d", Expires: time.Unix(0, 0).UTC()})
		c.Asked(ctx, bailey.Question{ID: "a-2"})
	}
	if c.Capability == "wait" {
		close(g.started)
		<-ctx.Done()
		g.killed <- ctx.Err()
		return bailey.Result{Status: bailey.Killed, Err: ctx.Err()}
	}
	text := fmt.Sprintf("%s %v %s", c.Dir, c.Input, c.Principal.Agent)
	res := bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true}
	if c.Stdout != nil {
		io.WriteString(c.Stdout, text)
	} else {
		res.Stdout = []byte(text)
	}
	return res
}

func (g *echoGate) EndSession(_ context.Context, id bailey.SessionID) error {
	g.mu.Lock()
	g.ended = append(g.ended, id)
	g.mu.Unlock()
	return nil
}

func (g *echoGate) sessions() []bailey.Session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]bailey.Session(nil), g.called...)
}

func (g *echoGate) endings() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.ended)
}

var (
	ping    = localapi.NewQuery[localapi.None, string]("ping")
	failing = localapi.NewQuery[localapi.None, string]("error")
)

func start(t *testing.T, set func(*Config)) (*echoGate, *localapi.Client, chan error) {
	t.Helper()
	g := &echoGate{started: make(chan struct{}), killed: make(chan error, 1)}
	home := localapi.Home(t.TempDir())
	os.Chmod(string(home), 0o700)
	c := Config{Home: home, Gate: g, Workspaces: workspace.NewWorkspaces(nil, nil), Redaction: NewRedaction(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Handlers: []Handler{
			Handle(ping, func(context.Context, localapi.None, Caller) (string, error) { return "pong", nil }),
			Handle(failing, func(context.Context, localapi.None, Caller) (string, error) {
				return "", &bailey.Error{Kind: bailey.NotFound, Message: "m", Hint: "h"}
			}),
		},
		MCP: func(_ context.Context, from bailey.Call, conn io.ReadWriteCloser) error {
			_, err := io.Copy(conn, conn)
			return err
		},
		Note:  func(context.Context, string, any) error { return nil },
		Means: func([]string, string) (Meant, error) { return Meant{}, errors.New("no words mean anything here") },
		Begin: func(context.Context, bailey.Call) error { return nil }, End: func(context.Context, bailey.Call) {},
		Live: &Live{}, TokenRequired: func() bool { return false },
	}
	c.Sessions, c.Agents = NewSessions(nil, c.Note), NewAgents(KnownAgents{}, c.Note)
	if set != nil {
		set(&c)
	}
	gw, err := Listen(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gw.Run(ctx) }()
	t.Cleanup(cancel)
	client := &localapi.Client{Home: home, Start: func(localapi.Home, *os.File) (*os.Process, error) {
		return nil, errors.New("no gateway may be started here")
	}}
	return g, client, done
}

// TestHugeAnswer checks that an answer that is too large for a frame is an error that says so.
func TestHugeAnswer(t *testing.T) {
	_, client, _ := start(t, func(c *Config) {
		c.Handlers = []Handler{Handle(ping, func(context.Context, localapi.None, Caller) (string, error) {
			return strings.Repeat("x", peer.MaxFrame), nil
		})}
	})
	_, err := ping.Ask(t.Context(), client, localapi.None{})
	if bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), "the answer") || bailey.HintOf(err) == "" {
		t.Errorf("%v; %s", err, bailey.HintOf(err))
	}
}

func TestCallsAndLooks(t *testing.T) {
	g, client, _ := start(t, nil)
	r, err := client.Call(t.Context(), localapi.CallQuery{Capability: "x", Input: map[string]any{"a": "b"}}, nil, nil)
	dir, _ := os.Getwd()
	if err != nil || !r.OK || r.Result.Stdout != dir+" map[a:b] local" {
		t.Fatalf("%+v, %v", r, err)
	}
	var out bytes.Buffer
	if r, err = client.Call(t.Context(), localapi.CallQuery{Capability: "x"}, &out, &out); err != nil || r.Result.Stdout != "" || out.Len() == 0 {
		t.Fatalf("streamed %q, %+v, %v", out.String(), r, err)
	}
	if pong, err := ping.Ask(t.Context(), client, localapi.None{}); err != nil || pong != "pong" {
		t.Fatalf("%q, %v", pong, err)
	}
	if _, err := failing.Ask(t.Context(), client, localapi.None{}); !errors.Is(err, bailey.NotFound) || bailey.HintOf(err) != "h" {
		t.Fatalf("an error crossed as %v", err)
	}
	if _, err := localapi.NewQuery[localapi.None, string]("no such").Ask(t.Context(), client, localapi.None{}); !errors.Is(err, bailey.Invalid) {
		t.Fatalf("an unknown verb: %v", err)
	}
	for deadline := time.Now().Add(time.Minute); g.endings() < 5 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // a session ends after its answer is sent
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.ended) != 5 || g.ended[0] == g.ended[1] {
		t.Errorf("sessions ended: %v", g.ended)
	}
}

// TestNotice checks that a waiting call is told once, before its result, which approval it waits for.
func TestNotice(t *testing.T) {
	_, client, _ := start(t, nil)
	var told []localapi.Notice
	client.Waits = func(n localapi.Notice) { told = append(told, n) }
	r, err := client.Call(t.Context(), localapi.CallQuery{Capability: "asks", Wait: true}, nil, nil)
	if err != nil || !r.OK || len(told) != 1 || told[0] != (localapi.Notice{Approval: "a-1", Digest: "d", Expires: time.Unix(0, 0).UTC()}) {
		t.Errorf("told %v; %+v, %v", told, r, err)
	}
	client.Waits = nil
	if r, err := client.Call(t.Context(), localapi.CallQuery{Capability: "asks", Wait: true}, nil, nil); err != nil || !r.OK {
		t.Errorf("nobody is told: %+v, %v", r, err)
	}
}

// TestHangUpKills checks that a call ends if its caller disconnects.
func TestHangUpKills(t *testing.T) {
	g, client, _ := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-g.started; cancel() }()
	if _, err := client.Call(ctx, localapi.CallQuery{Capability: "wait"}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the client got %v", err)
	}
	select {
	case err := <-g.killed:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the call ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the call went on without its caller")
	}
}

// TestHangUpEndsALook checks that a long query ends if its client disconnects, and that a command does not.
func TestHangUpEndsALook(t *testing.T) {
	begun, ended := make(chan string, 2), make(chan string, 2)
	long := func(name string, length time.Duration) func(context.Context, localapi.None, Caller) (localapi.None, error) {
		return func(ctx context.Context, _ localapi.None, _ Caller) (localapi.None, error) {
			begun <- name
			select {
			case <-ctx.Done():
				ended <- name + " ended"
			case <-time.After(length):
				ended <- name + " done"
			}
			return localapi.None{}, nil
		}
	}
	look := localapi.NewQuery[localapi.None, localapi.None]("look")
	act := localapi.NewCommand[localapi.None, localapi.None]("act")
	_, client, _ := start(t, func(c *Config) {
		c.Handlers = []Handler{Handle(look, long("look", time.Minute)), Handle(act, long("act", 200*time.Millisecond))}
	})
	for e, want := range map[localapi.Endpoint[localapi.None, localapi.None]]string{look: "look ended", act: "act done"} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-begun; cancel() }()
		if _, err := e.Do(ctx, client, localapi.Env, localapi.None{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the client got %v", e.Name, err)
		}
		if got := <-ended; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestHostileQueries(t *testing.T) {
	_, client, _ := start(t, nil)
	for name, frame := range map[string][]byte{
		"garbage":         []byte("\x00\xff{]"),
		"other protocol":  []byte(`{"protocol":99,"verb":"ping","dir":"/"}`),
		"relative dir":    []byte(`{"protocol":5,"verb":"ping","dir":"x"}`),
		"call of nothing": []byte(`{"protocol":5,"verb":"call","dir":"/"}`),
		"many values":     []byte(`{"protocol":5,"verb":"ping","dir":"/","args":{"x":[` + strings.Repeat("1,", 1<<17) + `1]}}`),
		"deep":            append(append([]byte(`{"protocol":5,"dir":"/","args":{"x":`), bytes.Repeat([]byte("["), 1<<19)...), '}'),
	} {
		conn, err := peer.Dial(client.Home.Socket())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.WriteFrame(localapi.FrameQuery, frame); err != nil {
			t.Fatal(err)
		}
		kind, b, err := conn.ReadFrame()
		if err != nil || kind != localapi.FrameError {
			t.Errorf("%s: kind %q %s, %v", name, kind, b, err)
		}
		conn.Close()
	}
	conn, err := net.Dial("unix", client.Home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	conn.Write([]byte{'q', 0xff, 0xff, 0xff, 0xff})
	if b, _ := io.ReadAll(conn); !bytes.Contains(b, []byte("at most 1572864")) {
		t.Errorf("a frame that promises 4 GiB: %q", b)
	}
	if _, err := ping.Ask(t.Context(), client, localapi.None{}); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// TestSilentConnectionEnds checks that a connection without a query is closed and does not keep its place.
func TestSilentConnectionEnds(t *testing.T) {
	_, client, _ := start(t, func(c *Config) { c.QueryPatience = 20 * time.Millisecond })
	conn, err := net.Dial("unix", client.Home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Errorf("it stays: %v", err)
	}
}

// TestTooManyConnections checks that a caller beyond the limit gets an error that says so, and that the gateway and the
// other connections continue.
func TestTooManyConnections(t *testing.T) {
	// long enough for a slow machine
	_, client, done := start(t, func(c *Config) { c.QueryPatience = 10 * time.Minute })
	var open []*peer.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	fill := func(n int) {
		for range n {
			c, err := peer.Dial(client.Home.Socket())
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
	}
	fill(maxConns)
	if _, err := client.Call(t.Context(), localapi.CallQuery{Capability: "x"}, nil, nil); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("one call too many: %v", err)
	}
	if _, err := ping.Ask(t.Context(), client, localapi.None{}); err != nil {
		t.Errorf("nobody can look any more: %v", err)
	}
	var pong string
	fill(maxStreams + maxWebs + spareConns)
	if _, err := ping.Ask(t.Context(), client, localapi.None{}); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("one too many: %v", err)
	}
	open[0].Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if answer, err := ping.Ask(t.Context(), client, localapi.None{}); err == nil {
			pong = answer
			break
		}
	}
	if pong != "pong" {
		t.Error("no place became free")
	}
	select {
	case err := <-done:
		t.Fatalf("the gateway ended: %v", err)
	default:
	}
}

// TestUnreadOutput checks that the call of a client that does not read is ended after the read patience.
func TestUnreadOutput(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	home := t.TempDir()
	os.Chmod(home, 0o700)
	l, err := peer.Listen(home + "/s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := peer.Dial(home + "/s") // this client never reads
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := frameWriter{conn, localapi.FrameStdout, 50 * time.Millisecond, cancel}
	for end := time.Now().Add(time.Minute); ctx.Err() == nil && time.Now().Before(end); {
		f.Write(make([]byte, 1<<20))
	}
	if cause := context.Cause(ctx); !errors.Is(cause, outputUnread) || !errors.Is(cause, context.Canceled) {
		t.Errorf("the call went on: %v", cause)
	}
}

// TestPatienceUnlessSaid checks that the default times are those of the documentation.
func TestPatienceUnlessSaid(t *testing.T) {
	home := localapi.Home(t.TempDir())
	os.Chmod(string(home), 0o700)
	g, err := Listen(Config{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	defer g.listener.Close()
	if g.Idle != 10*time.Minute || g.Watch != 2*time.Second || g.QueryPatience != 10*time.Second || g.ReadPatience != 10*time.Second {
		t.Errorf("idle %v, watch %v, without a query %v, unread %v", g.Idle, g.Watch, g.QueryPatience, g.ReadPatience)
	}
}

func TestEndsWhenIdle(t *testing.T) {
	_, client, done := start(t, func(c *Config) { c.Idle, c.Watch = 20*time.Millisecond, 5*time.Millisecond })
	if err := wait(t, done); !errors.Is(err, errIdle) {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(client.Home.Socket()); err == nil {
		t.Error("the socket was left behind")
	}
}

// busy keeps a gateway from being idle until release is called, for example until the test has connected.
func busy(c *Config) (release func()) {
	if c.Kept == nil {
		c.Kept = NewKept(c.Redaction)
	}
	kept := c.Kept
	id, table, _ := kept.openTable("")
	kept.storeTable(id, table, true)
	return func() { kept.dropTable(id) }
}

// TestLivesWhileConnected checks that a gateway with an open session is not idle.
func TestLivesWhileConnected(t *testing.T) {
	const idle = 50 * time.Millisecond
	var release func()
	_, client, done := start(t, func(c *Config) { c.Idle, c.Watch, release = idle, time.Millisecond, busy(c) })
	conn, err := client.MCP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
	select {
	case err := <-done:
		t.Fatalf("ended under a session: %v", err)
	case <-time.After(4 * idle):
	}
	conn.Close()
	if err := wait(t, done); !errors.Is(err, errIdle) {
		t.Errorf("ended with %v", err)
	}
}

func TestEndsWhenReplaced(t *testing.T) {
	for name, cut := range map[string]func(localapi.Home) error{
		"socket removed":  func(h localapi.Home) error { return os.Remove(h.Socket()) },
		"socket replaced": func(h localapi.Home) error { os.Remove(h.Socket()); return os.WriteFile(h.Socket(), nil, 0o600) },
		"home removed":    func(h localapi.Home) error { return os.RemoveAll(string(h)) },
	} {
		_, client, done := start(t, func(c *Config) { c.Watch = 5 * time.Millisecond })
		if err := cut(client.Home); err != nil {
			t.Fatal(err)
		}
		if err := wait(t, done); !errors.Is(err, errReplaced) {
			t.Errorf("%s: ended with %v", name, err)
		}
		if name == "socket replaced" {
			if _, err := os.Stat(client.Home.Socket()); err != nil {
				t.Error("somebody else's socket was removed")
			}
		}
	}
}

func wait(t *testing.T, done chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the gateway did not end")
		return nil
	}
}

// TestUnreachable checks that a gateway that cannot be started yields localapi.ErrUnreachable, the error of exit code 127.
func TestUnreachable(t *testing.T) {
	c := &localapi.Client{Home: localapi.Home(t.TempDir()), Start: func(localapi.Home, *os.File) (*os.Process, error) { return nil, errors.New("no") }}
	if _, err := ping.Ask(t.Context(), c, localapi.None{}); !errors.Is(err, localapi.ErrUnreachable) || !errors.Is(err, bailey.Unavailable) {
		t.Errorf("%v", err)
	}
}

func FuzzQuery(f *testing.F) {
	f.Add([]byte(`{"protocol":5,"verb":"call","dir":"/","call":{"capability":"x","input":{"a":1}}}`))
	f.Add([]byte(`{"protocol":5,"verb":"call","dir":"/","call":{"argv":["git","log","--oneline"],"text":true}}`))
	f.Add([]byte(`{"protocol":5,"verb":"ping","dir":"/"}`))
	f.Add([]byte(`{"protocol":5,"verb":"redact","dir":"/","redact":{"mode":"hide","session":"s-1"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := parseQuery(b)
		if err == nil && (q.Protocol != localapi.Protocol || q.Dir == "" || q.Dir[0] != '/' || q.Verb == "call" && q.Call == nil || q.Verb == localapi.RedactVerb && q.Redact == nil) {
			t.Fatalf("%+v was taken", q)
		}
	})
}
