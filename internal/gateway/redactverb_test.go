package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
)

// redacting starts a gateway that keeps redaction maps. Its notes go to noted, which may refuse them.
func redacting(t *testing.T, noted func(kind string, data any) error) (*Kept, *localapi.Client, chan error) {
	kept := NewKept(NewRedaction())
	_, client, done := start(t, func(c *Config) {
		c.Kept = kept
		c.Note = func(_ context.Context, kind string, data any) error {
			if noted == nil {
				return nil
			}
			return noted(kind, data)
		}
	})
	return kept, client, done
}

// through sends in as one stream and returns the output.
func through(t *testing.T, c *localapi.Client, q localapi.RedactQuery, op localapi.Operator, in string) (string, apitype.Redacted, error) {
	t.Helper()
	var out bytes.Buffer
	r, err := apitype.Redact(t.Context(), c, q, op, strings.NewReader(in), &out)
	return out.String(), r, err
}

// TestRedactVerb checks that a text is hidden and restored byte for byte in one session, over several streams and in
// every mode.
func TestRedactVerb(t *testing.T) {
	kept, c, _ := redacting(t, nil)
	const in = "DB_PASSWORD=hunter2hunter\n\xff\x00[REDACTED_X_1]\r\nfrom 10.1.2.3 to 10.1.2.3 and 10.1.2.4"
	out, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", in)
	want := "DB_PASSWORD=[REDACTED_PASSWORD_1]\n\xff\x00[REDACTED__X_1]\r\nfrom [REDACTED_IPV4_1] to [REDACTED_IPV4_1] and [REDACTED_IPV4_2]"
	if err != nil || out != want || r.Hidden != 4 || r.Session == "" || len(r.Categories) != 2 ||
		r.Categories[0] != (apitype.Hidden{Category: "IPV4", Finds: 3, Distinct: 2, Line: 3}) || r.Categories[1] != (apitype.Hidden{Category: "PASSWORD", Finds: 1, Distinct: 1, Line: 1}) {
		t.Fatalf("%v %+v\n%q", err, r, out)
	}
	again, r2, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide, Session: r.Session}, "", "10.1.2.4 password=Xk29fLq81mZp")
	if err != nil || again != "[REDACTED_IPV4_2] password=[REDACTED_PASSWORD_2]" || r2.Session != r.Session {
		t.Errorf("%v %+v %s", err, r2, again)
	}
	lines, r2, err := through(t, c, localapi.RedactQuery{Mode: localapi.Lines, Session: r.Session}, "", `{"text":"10.1.2.3"}`)
	if err != nil || lines != `{"text":"[REDACTED_IPV4_1]","findings":[{"category":"IPV4","start":0,"end":8}]}`+"\n" || r2.Session != r.Session {
		t.Errorf("%v %+v %s", err, r2, lines)
	}
	back, r2, err := through(t, c, localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, localapi.Env, out+"|"+again+"[REDACTED_JWT_9]")
	if err != nil || back != in+"|10.1.2.4 password=Xk29fLq81mZp[REDACTED_JWT_9]" || r2.Restored != 6 || r2.Left != 1 || r2.Session != r.Session {
		t.Errorf("%v %+v\n%q", err, r2, back)
	}
	report, r2, err := through(t, c, localapi.RedactQuery{Mode: localapi.Report}, "", in)
	if err != nil || report != "" || r2.Hidden != 4 || r2.Session != "" || many(kept) != 1 {
		t.Errorf("%v %+v %q, %d kept", err, r2, report, many(kept))
	}
	plain, r2, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "nothing")
	if err != nil || plain != "nothing" || r2.Session != "" || r2.Categories == nil || many(kept) != 1 {
		t.Errorf("%v %+v %q, %d kept", err, r2, plain, many(kept))
	}
}

// TestEscapeIsUndone checks that a text without secrets gets a session if it contains a literal token, because it can
// be restored only with a session.
func TestEscapeIsUndone(t *testing.T) {
	kept, c, _ := redacting(t, nil)
	for _, in := range []string{"one [REDACTED_X_1] and [REDACTED__", "[REDACTED_", strings.Repeat("long ", 100_000) + "[REDACTED_X_1]"} {
		out, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", in)
		if err != nil || out == in || r.Session == "" || r.Hidden != 0 || r.Escaped != strings.Count(in, "[REDACTED_") {
			t.Fatalf("%v %+v", err, r)
		}
		back, r2, err := through(t, c, localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, localapi.Env, out)
		if err != nil || back != in || r2.Session != r.Session || !known(kept, r.Session) {
			t.Errorf("%v %+v", err, r2)
		}
		if _, r2, err = through(t, c, localapi.RedactQuery{Mode: localapi.Hide, Session: r.Session}, "", "nothing"); err != nil || r2.Session != r.Session {
			t.Errorf("gone on with: %v %+v", err, r2)
		}
	}
	lines, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Lines}, "", `{"text":"[REDACTED_X_1]"}`)
	if err != nil || lines != `{"text":"[REDACTED__X_1]","findings":[]}`+"\n" || r.Escaped != 1 || !known(kept, r.Session) {
		t.Errorf("%v %+v %s", err, r, lines)
	}
}

// TestBadLineHasASession checks that after a bad line the result sums up the lines that were answered before, and that
// they can be restored.
func TestBadLineHasASession(t *testing.T) {
	kept, c, _ := redacting(t, nil)
	for _, rest := range []string{"x", "\n", "\n\n", strings.Repeat("x", maxLine+1), strings.Repeat("x\n", 1<<20)} {
		out, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Lines}, "", `{"text":"10.1.2.3"}`+"\n"+rest)
		if !errors.Is(err, bailey.Invalid) || !strings.HasPrefix(err.Error(), "line 2 ") || bailey.HintOf(err) == "" || r.Fault == nil || r.Hidden != 1 || !known(kept, r.Session) {
			t.Fatalf("%.9q: %v %+v", rest, err, r)
		}
		if back, _, err := through(t, c, localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, localapi.Env, out); err != nil || !strings.Contains(back, `"10.1.2.3"`) {
			t.Errorf("%.9q: %v %s", rest, err, back)
		}
	}
	if _, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Lines}, "", `{"text":"10.1.2.3"}`+"\n"); err != nil || r.Fault != nil {
		t.Errorf("a newline at the end: %v %+v", err, r)
	}
}

// TestRedactRefuses checks that a redaction is refused before the input is read and without any output.
func TestRedactRefuses(t *testing.T) {
	_, c, _ := redacting(t, func(kind string, _ any) error { return errors.New("the ledger took it: " + kind) })
	_, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "10.1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	for name, q := range map[string]struct {
		localapi.RedactQuery
		op   localapi.Operator
		kind bailey.Kind
	}{
		"no operator":          {localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, "", bailey.Denied},
		"another word":         {localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, "agent", bailey.Denied},
		"restore of none":      {localapi.RedactQuery{Mode: localapi.Restore}, localapi.Env, bailey.Invalid},
		"restore of unknown":   {localapi.RedactQuery{Mode: localapi.Restore, Session: "s-0"}, localapi.Env, bailey.NotFound},
		"unknown session":      {localapi.RedactQuery{Mode: localapi.Hide, Session: "s-0"}, "", bailey.NotFound},
		"report of a session":  {localapi.RedactQuery{Mode: localapi.Report, Session: r.Session}, "", bailey.Invalid},
		"unknown mode":         {localapi.RedactQuery{}, "", bailey.Invalid},
		"another mode":         {localapi.RedactQuery{Mode: "x"}, "", bailey.Invalid},
		"restore not recorded": {localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, localapi.Env, bailey.Internal},
	} {
		in := &unreadInput{}
		var out bytes.Buffer
		_, err := apitype.Redact(t.Context(), c, q.RedactQuery, q.op, in, &out)
		if bailey.KindOf(err) != q.kind || out.Len() > 0 || in.read.Load() {
			t.Errorf("%s: %v, came out %q, was read %v", name, err, out.String(), in.read.Load())
		}
	}
	_, bare, _ := start(t, nil)
	if _, _, err := through(t, bare, localapi.RedactQuery{Mode: localapi.Hide}, "", ""); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("a gateway that keeps nothing: %v", err)
	}
}

type unreadInput struct{ read atomic.Bool }

func (u *unreadInput) Read([]byte) (int, error) { u.read.Store(true); return 0, io.EOF }

// TestRestoreIsRecordedFirst checks that the ledger contains the session, the operator's right and the person, and no
// text, before the first byte of output.
func TestRestoreIsRecordedFirst(t *testing.T) {
	var mu sync.Mutex
	var notes []string
	_, c, _ := redacting(t, func(kind string, data any) error {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, fmt.Sprintf("%s %+v", kind, data))
		return nil
	})
	_, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "10.1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	seen := -1
	out := writerFunc(func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if seen < 0 {
			seen = len(notes)
		}
	})
	if _, err := apitype.Redact(t.Context(), c, localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, localapi.Terminal, strings.NewReader("[REDACTED_IPV4_1]"), out); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if seen != 1 || len(notes) != 1 || !strings.Contains(notes[0], restoreEvent) || !strings.Contains(notes[0], string(r.Session)+" Operator:terminal Person:") ||
		strings.Contains(notes[0], "10.1.2.3") {
		t.Errorf("%d noted before the first byte: %v", seen, notes)
	}
}

type writerFunc func([]byte)

func (w writerFunc) Write(b []byte) (int, error) { w(b); return len(b), nil }

// rawRedaction opens a stream frame by frame, up to the point where the gateway expects input.
func rawRedaction(t *testing.T, c *localapi.Client, query string) *peer.Conn {
	t.Helper()
	conn, err := peer.Dial(c.Home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.WriteFrame(localapi.FrameQuery, []byte(query)); err != nil {
		t.Fatal(err)
	}
	if kind, b, err := conn.ReadFrame(); err != nil || kind != localapi.FrameResult {
		t.Fatalf("%q %s %v", kind, b, err)
	}
	return conn
}

const rawHide = `{"protocol":5,"verb":"redact","dir":"/","redact":{"mode":"hide"}}`

// TestHostileStreams checks that a frame of a wrong kind, a frame that is too long and a truncated frame end only their
// own connection, with an error, and that the gateway keeps nothing of the stream.
func TestHostileStreams(t *testing.T) {
	kept, c, _ := redacting(t, nil)
	for raw, why := range map[string]string{
		"q\x00\x00\x00\x02{}":    "is not an input",
		"o\x00\x00\x00\x01x":     "is not an input",
		"\x00\x00\x00\x00\x00":   "is not an input",
		"i\x00\x01\x00\x01":      "has 65537 bytes, but",
		"i\xff\xff\xff\xff":      "has 4294967295 bytes, but",
		"i\x00":                  "was cut off",
		"i\x00\x00\x00\x09 half": "was cut off",
		"":                       "was cut off",
	} {
		conn := rawRedaction(t, c, rawHide)
		conn.WriteFrame(localapi.FrameInput, []byte("from 10.1.2.3 and on\n"))
		io.WriteString(conn, raw)
		conn.CloseWrite()
		var last byte
		var word []byte
		for {
			kind, b, err := conn.ReadFrame()
			if err != nil {
				break
			}
			last, word = kind, b
		}
		if last != localapi.FrameError || !bytes.Contains(word, []byte(`"invalid"`)) || !bytes.Contains(word, []byte(why)) {
			t.Errorf("%q: the last word is %q %s", raw, last, word)
		}
	}
	for name, query := range map[string]string{"unknown mode": `{"protocol":5,"verb":"redact","dir":"/"}`, "null": `{"protocol":2,"verb":"redact","dir":"/","redact":null}`} {
		conn, err := peer.Dial(c.Home.Socket())
		if err != nil {
			t.Fatal(err)
		}
		conn.WriteFrame(localapi.FrameQuery, []byte(query))
		if kind, b, err := conn.ReadFrame(); err != nil || kind != localapi.FrameError {
			t.Errorf("%s: %q %s %v", name, kind, b, err)
		}
		conn.Close()
	}
	if _, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "10.1.2.3"); err != nil || many(kept) != 1 || !known(kept, r.Session) {
		t.Errorf("after all that: %v, %d kept", err, many(kept))
	}
}

// TestHangUpFreesTheStream checks that a client that disconnects leaves no connection and no map behind, even if it
// does not read.
func TestHangUpFreesTheStream(t *testing.T) {
	const idle = 50 * time.Millisecond
	kept := NewKept(NewRedaction())
	var release func()
	_, c, done := start(t, func(c *Config) {
		c.Kept, c.Idle, c.Watch = kept, idle, time.Millisecond
		release = busy(c)
	})
	read := rawRedaction(t, c, rawHide)
	stalled := rawRedaction(t, c, rawHide)
	read.WriteFrame(localapi.FrameInput, []byte("from 10.1.2.3 and on\n"))
	read.ReadFrame()
	for err := error(nil); err == nil; { // until both directions are full
		stalled.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		err = stalled.WriteFrame(localapi.FrameInput, bytes.Repeat([]byte("from 10.1.2.3\n"), 4000))
	}
	release()
	select {
	case err := <-done:
		t.Fatalf("ended under its streams: %v", err)
	case <-time.After(4 * idle):
	}
	read.Close()
	stalled.Close()
	if err := wait(t, done); !errors.Is(err, errIdle) {
		t.Errorf("ended with %v", err)
	}
	if many(kept) != 0 {
		t.Errorf("%d kept", many(kept))
	}
}

// logText yields left bytes of a log in which secrets recur.
type logText struct{ left int }

const logLine = "2026-01-02T03:04:05Z web-1 sshd[99]: Accepted publickey for anna from 10.1.2.3 port 50022 ssh2 password=hunter2hunter\n"

func (l *logText) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, io.EOF
	}
	n := 0
	for n+len(logLine) <= len(b) && n < l.left {
		n += copy(b[n:], logLine)
	}
	l.left -= n
	return n, nil
}

// TestLongStream checks that 100 MB pass through while the heap of client and gateway together stays flat.
func TestLongStream(t *testing.T) {
	ktest.Long(t)
	_, c, _ := redacting(t, nil)
	size, got := 100<<20, int64(0)
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := before.HeapInuse
	out := writerFunc(func(b []byte) {
		if got += int64(len(b)); got>>20 != (got-int64(len(b)))>>20 {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapInuse)
		}
	})
	r, err := apitype.Redact(t.Context(), c, localapi.RedactQuery{Mode: localapi.Hide}, "", &logText{size}, out)
	lines := (size + len(logLine) - 1) / len(logLine)
	if err != nil || r.Hidden != 2*lines || got < int64(size) {
		t.Errorf("%v: %d hidden of %d, %d bytes", err, r.Hidden, 2*lines, got)
	}
	if grown := int64(most) - int64(before.HeapInuse); grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	got = 0 // a restored text that is longer than its input
	secret := strings.Repeat("long-Secret-0", 300)
	_, r, err = through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "password="+secret)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = apitype.Redact(t.Context(), c, localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, localapi.Env, strings.NewReader(strings.Repeat("[REDACTED_PASSWORD_1]", 10_000)), out); err != nil ||
		r.Restored != 10_000 || got != int64(10_000*len(secret)) {
		t.Errorf("%v: %+v, %d bytes", err, r, got)
	}
}

// TestTwoAtOnce checks that two concurrent streams of one session use the same token for the same secret, regardless of
// their order.
func TestTwoAtOnce(t *testing.T) {
	_, c, _ := redacting(t, nil)
	_, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "10.1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var in [2]strings.Builder
	for i := range 300 {
		fmt.Fprintf(&in[0], "%d from 10.9.%d.%d\n", i, i/200, i%200)
		fmt.Fprintf(&in[1], "%d from 10.9.%d.%d\n", 299-i, (299-i)/200, (299-i)%200)
	}
	var out [2]string
	var all sync.WaitGroup
	for i := range in {
		all.Go(func() {
			var b bytes.Buffer
			if _, err := apitype.Redact(t.Context(), c, localapi.RedactQuery{Mode: localapi.Hide, Session: r.Session}, "", strings.NewReader(in[i].String()), &b); err != nil {
				t.Error(err)
			}
			out[i] = b.String()
		})
	}
	all.Wait()
	there := map[string]string{}
	for line := range strings.Lines(out[0]) {
		number, rest, _ := strings.Cut(line, " ")
		there[number] = rest
	}
	for line := range strings.Lines(out[1]) {
		if number, rest, _ := strings.Cut(line, " "); there[number] != rest {
			t.Errorf("line %s: %q and %q", number, there[number], rest)
		}
	}
	for i := range out {
		if back, _, err := through(t, c, localapi.RedactQuery{Mode: localapi.Restore, Session: r.Session}, localapi.Env, out[i]); err != nil || back != in[i].String() {
			t.Errorf("stream %d did not come back: %v", i, err)
		}
	}
}

// TestGatewayEndsInMidStream checks that the client gets localapi.ErrUnreachable if the gateway ends during a stream, even
// if its input stays open.
func TestGatewayEndsInMidStream(t *testing.T) {
	_, c, done := redacting(t, nil)
	in, feed := io.Pipe()
	defer feed.Close()
	came := make(chan struct{}, 100)
	ended := make(chan error, 1)
	go func() {
		_, err := apitype.Redact(context.Background(), c, localapi.RedactQuery{Mode: localapi.Hide}, "", in, writerFunc(func([]byte) { came <- struct{}{} }))
		ended <- err
	}()
	io.WriteString(feed, "one line\n")
	<-came
	if _, err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, ended); !errors.Is(err, localapi.ErrUnreachable) || err.Error() != "the gateway stopped in the middle: the output is incomplete" ||
		!errors.Is(err, bailey.Unavailable) || !strings.Contains(bailey.HintOf(err), "redact the whole text again") {
		t.Errorf("the client got %v", err)
	}
	wait(t, done)
}

// TestStreamEndsWithItsCaller checks that a stream ends with the caller's context, even if its reader stalls or its
// input is silent. A broken input must be an error and not the end of the input.
func TestStreamEndsWithItsCaller(t *testing.T) {
	_, c, _ := redacting(t, nil)
	enough := errors.New("enough")
	for name, out := range map[string]io.Writer{"silent input": io.Discard, "stalled output": writerFunc(func([]byte) { select {} })} {
		ctx, cancel := context.WithCancelCause(t.Context())
		in, feed := io.Pipe()
		go func() { io.WriteString(feed, "a line\n"); cancel(enough) }()
		if _, err := apitype.Redact(ctx, c, localapi.RedactQuery{Mode: localapi.Hide}, "", in, out); err != enough {
			t.Errorf("%s: %v", name, err)
		}
		feed.Close()
	}
	broken := io.MultiReader(strings.NewReader("10.1.2.3\n"), brokenInput{})
	if r, err := apitype.Redact(t.Context(), c, localapi.RedactQuery{Mode: localapi.Hide}, "", broken, io.Discard); !errors.Is(err, bailey.Unavailable) || r.Session != "" {
		t.Errorf("a broken input: %+v, %v", r, err)
	}
	if _, err := apitype.Redact(t.Context(), c, localapi.RedactQuery{Mode: localapi.Hide}, "", &logText{1 << 20}, brokenOutput{}); !errors.Is(err, io.ErrClosedPipe) || !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
		t.Errorf("a broken output: %v", err)
	}
}

type brokenInput struct{}

func (brokenInput) Read([]byte) (int, error) { return 0, errors.New("the disk is gone") }

type brokenOutput struct{}

func (brokenOutput) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestSlowReader checks that the gateway waits for a slow reader, such as a pager, longer than for the reader of a
// call's output, and that no data is lost.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	const size, lines = 4 << 20, (4<<20 + len(logLine) - 1) / len(logLine) // more than the socket buffers hold
	const patience = 50 * time.Millisecond
	_, c, _ := start(t, func(c *Config) { c.Kept, c.ReadPatience = NewKept(c.Redaction), patience })
	got, waited := 0, false
	out := writerFunc(func(b []byte) {
		if got += len(b); !waited {
			waited = true
			time.Sleep(5 * patience)
		}
	})
	r, err := apitype.Redact(context.Background(), c, localapi.RedactQuery{Mode: localapi.Hide}, "", &logText{size}, out)
	if err != nil || r.Hidden != 2*lines || got < size {
		t.Errorf("%v: %d hidden, want %d; %d bytes", err, r.Hidden, 2*lines, got)
	}
}

// TestStreamsAreCounted checks that streams are counted apart from calls and sessions. Stalled streams take the places
// of other streams only, one stream too many gets an error that says so, and a stream that ends frees its place.
func TestStreamsAreCounted(t *testing.T) {
	// long enough for a slow machine
	_, c, _ := start(t, func(c *Config) { c.Kept, c.QueryPatience = NewKept(c.Redaction), 10*time.Minute })
	var streams []*peer.Conn
	for range maxStreams {
		streams = append(streams, rawRedaction(t, c, rawHide))
	}
	_, _, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "x")
	if !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "8 texts are being redacted") || !strings.Contains(bailey.HintOf(err), "wait until one ends") {
		t.Errorf("one stream too many: %v", err)
	}
	for range maxConns - 1 { // for the gateway these are calls or sessions
		conn, err := net.Dial("unix", c.Home.Socket())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := c.Call(t.Context(), localapi.CallQuery{Capability: "a.b"}, nil, nil); err != nil {
		t.Errorf("streams took the place of a call: %v", err)
	}
	conn, err := net.Dial("unix", c.Home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := c.Call(t.Context(), localapi.CallQuery{Capability: "a.b"}, nil, nil); !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "are open") {
		t.Errorf("one call too many: %v", err)
	}
	streams[0].WriteFrame(localapi.FrameEnd, nil)
	for err = nil; err == nil; { // the gateway closes the connection when its place is free
		_, _, err = streams[0].ReadFrame()
	}
	if out, _, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "x"); err != nil || out != "x" {
		t.Errorf("while calls take all their places: %q %v", out, err)
	}
}

// TestStreamIsSaidAgain checks that if a gateway ends before it reads the query, the query goes to the next one, and
// that the input is read once.
func TestStreamIsSaidAgain(t *testing.T) {
	c := &localapi.Client{Home: localapi.Home(t.TempDir()), Start: func(localapi.Home, *os.File) (*os.Process, error) { return nil, errors.New("no") }}
	os.Chmod(string(c.Home), 0o700)
	l, err := peer.Listen(c.Home.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			switch n {
			case 1:
				time.Sleep(50 * time.Millisecond) // until the query has arrived, unread
			case 2:
				conn.ReadFrame()
				conn.WriteFrame(localapi.FrameResult, nil)
				_, b, _ := conn.ReadFrame()
				conn.WriteFrame(localapi.FrameStdout, b)
				conn.WriteJSON(localapi.FrameResult, apitype.Redacted{Hidden: 7})
			}
			conn.Close()
		}
	}()
	out, r, err := through(t, c, localapi.RedactQuery{Mode: localapi.Hide}, "", "the input")
	if err != nil || out != "the input" || r.Hidden != 7 {
		t.Errorf("%q %+v %v", out, r, err)
	}
}
