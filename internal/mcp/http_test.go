package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/strangers"
)

// web is the HTTP front end with its own listener, in front of a gate.
type web struct {
	*testing.T
	door    *HTTP
	base    string // http://127.0.0.1:PORT
	entered atomic.Int64
	left    atomic.Int64
}

func serveWeb(t *testing.T, g Gate, change func(*HTTPConfig)) *web {
	t.Helper()
	w := &web{T: t}
	c := HTTPConfig{
		Admit: func(bearer string) (Caller, error) {
			name, ok := strings.CutPrefix(bearer, "good-")
			if !ok {
				return Caller{}, &bailey.Error{Kind: bailey.Denied, Message: "the token is unknown here", Hint: "make another"}
			}
			return Caller{Principal: bailey.Principal{Agent: name, Token: name}}, nil
		},
		Enter: func(_ context.Context, c Caller) (Config, func(), error) {
			if c.Principal.Token == "barred" {
				return Config{}, nil, &bailey.Error{Kind: bailey.Denied, Message: "a hook said no"}
			}
			n := w.entered.Add(1)
			cfg := config(g)
			cfg.Principal, cfg.Dir, cfg.Session.ID = c.Principal, c.Dir, bailey.SessionID(fmt.Sprintf("s-%d", n))
			return cfg, func() { w.left.Add(1) }, nil
		},
		Hide: hidden,
	}
	if change != nil {
		change(&c)
	}
	var err error
	if w.door, err = NewHTTP(c); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.base = "http://" + l.Addr().String()
	ended := make(chan error, 1)
	go func() {
		ended <- w.door.Serve(l, func(net.Conn) Front {
			return Front{Hosts: []string{l.Addr().String(), "localhost:1"}, Origins: []string{w.base, "https://page.example"}, Dir: "/src"}
		})
	}()
	t.Cleanup(func() {
		w.door.Close(errors.New("the test is over"))
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if in, out := w.entered.Load(), w.left.Load(); in != out {
			t.Errorf("%d sessions began and %d ended", in, out)
		}
	})
	return w
}

// request returns a valid request. change may make it invalid.
func (w *web) request(method, body string, change func(*http.Request)) *http.Request {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.base+HTTPPath, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer good-ada")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if change != nil {
		change(r)
	}
	return r
}

// do sends a request and returns the status, the headers and the body.
func (w *web) do(r *http.Request) (int, http.Header, string) {
	w.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func (w *web) post(body string, change func(*http.Request)) (int, http.Header, string) {
	w.Helper()
	return w.do(w.request(http.MethodPost, body, change))
}

const helloHTTP = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`

// hello begins a session and returns a function that puts a request into it.
func (w *web) hello(bearer string) func(*http.Request) {
	w.Helper()
	in := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+bearer) }
	code, head, body := w.post(helloHTTP, in)
	id := head.Get(headerSession)
	if code != 200 || id == "" {
		w.Fatalf("initialize: %d %q %s", code, id, body)
	}
	return func(r *http.Request) {
		in(r)
		r.Header.Set(headerSession, id)
		r.Header.Set(headerRevision, "2025-11-25")
	}
}

// newer makes a request one of revision 2026-07-28.
func newer(method, name string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Set(headerRevision, newRevision)
		r.Header.Set("Mcp-Method", method)
		if name != "" {
			r.Header.Set(headerName, name)
		}
	}
}

const metaHTTP = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

const echoHTTP = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"again"},` + metaHTTP + `}}`

// TestHTTPSpeaksEveryRevision checks that one address serves every revision, and that each call has the token's agent.
func TestHTTPSpeaksEveryRevision(t *testing.T) {
	t.Parallel()
	g := yard()
	w := serveWeb(t, g, nil)
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		code, head, body := w.post(strings.Replace(helloHTTP, "2025-11-25", revision, 1), nil)
		if code != 200 || !strings.Contains(body, `"protocolVersion":"`+revision+`"`) || strings.Contains(body, "extensions") {
			t.Fatalf("%s: %d %s", revision, code, body)
		}
		code, _, body = w.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"of `+revision+`"}}}`, func(r *http.Request) {
			r.Header.Set(headerSession, head.Get(headerSession))
			r.Header.Set(headerRevision, revision)
		})
		if code != 200 || !strings.Contains(body, "of "+revision) {
			t.Errorf("%s: %d %s", revision, code, body)
		}
	}
	if code, _, body := w.post(echoHTTP, newer("tools/call", "system_echo")); code != 200 || !strings.Contains(body, `"again"`) {
		t.Errorf("%s: %d %s", newRevision, code, body)
	}
	calls := g.got()
	if len(calls) != 5 {
		t.Fatalf("%d calls came through", len(calls))
	}
	for _, c := range calls {
		if c.Principal.Agent != "ada" || c.Dir != "/src" || c.Door != frontendName {
			t.Errorf("a call of %+v from %s by %s", c.Principal, c.Dir, c.Door)
		}
	}
}

// TestHTTPRefuses checks that an invalid request gets the matching status and does not reach the gate.
func TestHTTPRefuses(t *testing.T) {
	t.Parallel()
	g := yard()
	w := serveWeb(t, g, nil)
	in := w.hello("good-ada")
	ping := `{"jsonrpc":"2.0","id":3,"method":"ping"}`
	for name, c := range map[string]struct {
		body   string
		change func(*http.Request)
		code   int
		says   string
	}{
		"another host":            {ping, func(r *http.Request) { in(r); r.Host = "rebound.example" }, 403, "not answer to that host name"},
		"the host without port":   {ping, func(r *http.Request) { in(r); r.Host = "127.0.0.1" }, 403, "not answer to that host name"},
		"another origin":          {ping, func(r *http.Request) { in(r); r.Header.Set("Origin", "http://evil.example") }, 403, "pages of that origin"},
		"the origin null":         {ping, func(r *http.Request) { in(r); r.Header.Set("Origin", "null") }, 403, "pages of that origin"},
		"two origins":             {ping, func(r *http.Request) { in(r); r.Header["Origin"] = []string{w.base, "https://page.example"} }, 403, "pages of that origin"},
		"an empty origin":         {ping, func(r *http.Request) { in(r); r.Header["Origin"] = []string{""} }, 403, "pages of that origin"},
		"another path":            {ping, func(r *http.Request) { in(r); r.URL.Path = "/" }, 404, "nothing at this path"},
		"no token":                {ping, func(r *http.Request) { in(r); r.Header.Del("Authorization") }, 401, "0 Authorization headers"},
		"two tokens":              {ping, func(r *http.Request) { in(r); r.Header.Add("Authorization", "Bearer good-eve") }, 401, "2 Authorization headers"},
		"basic":                   {ping, func(r *http.Request) { in(r); r.Header.Set("Authorization", "Basic good-ada") }, 401, "no bearer token"},
		"an unknown token":        {ping, func(r *http.Request) { in(r); r.Header.Set("Authorization", "Bearer bad-ada") }, 401, "unknown here"},
		"a token without end":     {ping, func(r *http.Request) { in(r); r.Header.Set("Authorization", "Bearer "+strings.Repeat("good-", 60)) }, 401, "no bearer token"},
		"another's session":       {ping, func(r *http.Request) { in(r); r.Header.Set("Authorization", "Bearer good-eve") }, 404, "no such session"},
		"no such session":         {ping, func(r *http.Request) { in(r); r.Header.Set(headerSession, "made-up") }, 404, "no such session"},
		"no session":              {ping, func(r *http.Request) { in(r); r.Header.Del(headerSession) }, 400, "names no session"},
		"who may not begin":       {helloHTTP, func(r *http.Request) { r.Header.Set("Authorization", "Bearer good-barred") }, 403, "a hook said no"},
		"no JSON":                 {`{"jsonrpc`, in, 400, "not one JSON value"},
		"no body":                 {"", in, 400, "not one JSON value"},
		"a key twice":             {`{"jsonrpc":"2.0","id":3,"id":4,"method":"ping"}`, in, 400, "twice"},
		"no request":              {`{"jsonrpc":"2.0","id":3}`, in, 400, "neither method nor result"},
		"another jsonrpc":         {`{"jsonrpc":"1.0","id":3,"method":"ping"}`, in, 400, "2.0"},
		"a batch of later":        {`[` + ping + `]`, in, 400, "batch"},
		"an empty batch":          {`[]`, func(r *http.Request) { in(r); r.Header.Set(headerRevision, "2025-03-26") }, 400, "empty"},
		"nested too deep":         {`{"jsonrpc":"2.0","id":3,"method":"ping","params":` + strings.Repeat(`{"a":`, 80) + "1" + strings.Repeat("}", 80) + "}", in, 400, "deep"},
		"over a mebibyte":         {`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"a":"` + strings.Repeat("x", maxLine) + `"}}`, in, 413, "1 MiB"},
		"another content type":    {ping, func(r *http.Request) { in(r); r.Header.Set("Content-Type", "text/plain") }, 415, "application/json"},
		"nothing acceptable":      {ping, func(r *http.Request) { in(r); r.Header.Set("Accept", "text/html") }, 400, "Accept"},
		"an unknown revision":     {ping, func(r *http.Request) { in(r); r.Header.Set(headerRevision, "2025-01-01") }, 400, "version"},
		"a method not offered":    {`{"jsonrpc":"2.0","id":3,"method":"prompts/list"}`, in, 200, "-32601"},
		"a method nobody knows":   {`{"jsonrpc":"2.0","id":3,"method":"gateway/stop"}`, in, 400, "gateway/stop"},
		"newer without its name":  {echoHTTP, newer("tools/call", ""), 400, "-32020"},
		"newer of another tool":   {echoHTTP, newer("tools/call", "git_push"), 400, "-32020"},
		"newer of another method": {echoHTTP, newer("tools/list", "system_echo"), 400, "-32020"},
		"a task without its name": {`{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"t-1",` + metaHTTP + `}}`, newer("tasks/get", ""), 400, "-32020"},
		"a task of another name":  {`{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"t-1",` + metaHTTP + `}}`, newer("tasks/get", "t-2"), 400, "-32020"},
		"a task nobody has":       {`{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"t-1",` + metaHTTP + `}}`, newer("tasks/get", "t-1"), 400, "no such task"},
		"a session's long name": {echoHTTP, func(r *http.Request) {
			newer("tools/call", "system_echo")(r)
			r.Header.Set(SessionHeader, strings.Repeat("x", 65))
		}, 400, SessionHeader},
	} {
		code, head, body := w.post(c.body, c.change)
		if code != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", name, code, body, c.code, c.says)
		}
		if challenge := head.Get("WWW-Authenticate"); (challenge != "") != (code == 401) {
			t.Errorf("%s: WWW-Authenticate is %q", name, challenge)
		}
		if strings.Contains(body, "good-") || strings.Contains(body, "bad-ada") {
			t.Errorf("%s: the answer quotes a token: %s", name, body)
		}
	}
	if calls := g.got(); len(calls) != 0 {
		t.Errorf("%d calls reached the gate", len(calls))
	}
	for _, origin := range []string{w.base, "https://page.example"} {
		if code, _, body := w.post(ping, func(r *http.Request) { in(r); r.Header.Set("Origin", origin) }); code != 200 {
			t.Errorf("%s: %d %s", origin, code, body)
		}
	}
}

// TestHTTPErrorsAreHidden checks that errors of the SDK are redacted, because they quote the request.
func TestHTTPErrorsAreHidden(t *testing.T) {
	t.Parallel()
	w := serveWeb(t, yard(), nil)
	in := w.hello("good-ada")
	for name, body := range map[string]string{
		"a key twice":       `{"hunter2":1,"hunter2":2}`,
		"an unknown method": `{"jsonrpc":"2.0","id":3,"method":"hunter2/list"}`,
		"params of no call": `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":{"hunter2":1}}}`,
		"params of no URI":  `{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":["hunter2"]}}`,
		"params of no list": `{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":["hunter2"]}}`,
		"no patience":       `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"system_echo","_meta":{"bailey/patienceMs":"hunter2"}}}`,
	} {
		if _, _, answer := w.post(body, in); strings.Contains(answer, "hunter2") || !strings.Contains(answer, "r") {
			t.Errorf("%s: %s", name, answer)
		}
	}
	if _, _, answer := w.post(`{"jsonrpc":"2.0","id":3,"method":"hunter2/list"}`, in); !strings.Contains(answer, "[TOKEN]/list") {
		t.Errorf("%s", answer)
	}
}

// TestHTTPHidesOnce checks that no text is redacted twice. The result would look as if the client had sent it.
func TestHTTPHidesOnce(t *testing.T) {
	t.Parallel()
	w := serveWeb(t, yard(), func(c *HTTPConfig) { c.Hide = func(text string) string { return "door:" + text } })
	for name, c := range map[string]struct {
		method, params string
		times          int // by the front end; the session has redacted its own texts
	}{
		"a session's":   {"tools/list", `"cursor":"no cursor",`, 0},
		"the SDK's own": {"hunter2/list", "", 1},
	} {
		_, _, body := w.post(`{"jsonrpc":"2.0","id":3,"method":"`+c.method+`","params":{`+c.params+metaHTTP+`}}`, newer(c.method, ""))
		if n := strings.Count(body, "door:"); n != c.times || body == "" {
			t.Errorf("%s is hidden %d times by the door: %s", name, n, body)
		}
	}
	_, _, body := w.post(helloHTTP, func(r *http.Request) { r.Host = "rebound.example" })
	// message and hint, once each
	if strings.Count(body, "door:") != 2 || !strings.Contains(body, `"message":"door:this server`) {
		t.Errorf("the door's: %s", body)
	}
}

// TestHTTPRequestsAreBounded checks that a token that holds all its places gets an error that says so, and that places
// remain for others.
func TestHTTPRequestsAreBounded(t *testing.T) {
	t.Parallel()
	w := serveWeb(t, yard(), nil)
	in := w.hello("good-ada")
	ping := `{"jsonrpc":"2.0","id":4,"method":"ping"}`
	w.door.mu.Lock()
	for _, s := range w.door.all {
		w.door.countRequests(s, maxTokenRequests)
		defer func() {
			w.door.mu.Lock()
			w.door.countRequests(s, -maxTokenRequests)
			w.door.mu.Unlock()
		}()
	}
	w.door.mu.Unlock()
	if code, _, body := w.post(ping, in); code != 503 || !strings.Contains(body, "too many requests") {
		t.Errorf("one too many: %d %s", code, body)
	}
	if code, _, body := w.post(ping, w.hello("good-eve")); code != 200 {
		t.Errorf("another token: %d %s", code, body)
	}
}

// TestHTTPBeginPanics checks that a panic at the start of a session ends only that request and does not keep a place.
func TestHTTPBeginPanics(t *testing.T) {
	t.Parallel()
	broken := true
	w := serveWeb(t, yard(), func(c *HTTPConfig) {
		enter := c.Enter
		c.Enter = func(ctx context.Context, c Caller) (Config, func(), error) {
			if broken {
				broken = false
				panic("the asker broke")
			}
			return enter(ctx, c)
		}
	})
	if r, err := http.DefaultClient.Do(w.request(http.MethodPost, helloHTTP, nil)); err == nil {
		r.Body.Close()
		t.Errorf("it answered %d", r.StatusCode)
	}
	w.hello("good-ada")
	w.door.mu.Lock()
	defer w.door.mu.Unlock()
	if w.door.requests != 0 || len(w.door.busy) != 0 || len(w.door.all) != 1 {
		t.Errorf("%d requests, %v, %d sessions", w.door.requests, w.door.busy, len(w.door.all))
	}
}

// TestHTTPClientDies checks that a call ends with its connection, in every revision, and that its session continues.
func TestHTTPClientDies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(net.Conn)
	}{
		{"closed", func(c net.Conn) { c.Close() }},
		{"half closed", func(c net.Conn) { c.(*net.TCPConn).CloseWrite() }},
		{"reset", func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() }},
	} {
		for _, revision := range []string{"2025-11-25", newRevision} {
			t.Run(c.name+" "+revision, func(t *testing.T) {
				t.Parallel()
				g := yard()
				came, ended := waiting(g)
				w := serveWeb(t, g, nil)
				in, body := newer("tools/call", "system_echo"), strings.Replace(echoHTTP, `"extensions":{"io.modelcontextprotocol/tasks":{}}`, "", 1)
				if revision != newRevision {
					in, body = w.hello("good-ada"), `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"x"}}}`
				}
				conn, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if err := w.request(http.MethodPost, body, in).Write(conn); err != nil {
					t.Fatal(err)
				}
				<-came
				c.end(conn)
				wantCancelled(t, ended)
				g.mu.Lock()
				delete(g.do, "system.echo")
				g.mu.Unlock()
				// The id of the ended request becomes free when its answer is written, which the test cannot observe.
				again := strings.Replace(body, `"id":`, `"id":1`, 1)
				if code, _, answer := w.post(again, in); again == body || code != 200 || !strings.Contains(answer, "no capability") {
					t.Errorf("the session after that: %d %s", code, answer)
				}
			})
		}
	}
}

// TestHTTPSlowReader checks that the request of a client that does not read the answer is ended.
func TestHTTPSlowReader(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	g := yard()
	g.do["system.echo"] = func(context.Context, bailey.Call) bailey.Result {
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: bytes.Repeat([]byte("x"), 32<<20)}
	}
	w := serveWeb(t, g, nil)
	w.door.patience = 200 * time.Millisecond
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := w.request(http.MethodPost, echoHTTP, newer("tools/call", "system_echo")).Write(conn); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q %v", line, err)
	}
	// the client reads no more, and its request must end
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		w.door.mu.Lock()
		open := 0
		for _, s := range w.door.all {
			open += s.open
		}
		w.door.mu.Unlock()
		if open == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the request of a client that does not read stays open")
		}
	}
	if n, err := io.Copy(io.Discard, r); n > 31<<20 {
		t.Errorf("%d bytes came all the same (%v)", n, err)
	}
}

// TestHTTPSlowWriter checks that the server does not wait for a body that does not arrive, and does not read one that
// is too large.
func TestHTTPSlowWriter(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	w := serveWeb(t, yard(), nil)
	w.door.patience = 200 * time.Millisecond
	for name, head := range map[string]string{
		"a body that stops":      "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer good-ada\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{",
		"a hundred megabytes":    "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer good-ada\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n{",
		"a chunk without end":    "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer good-ada\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n{",
		"headers without end":    "POST /mcp HTTP/1.1\r\nHost: %s\r\nX: " + strings.Repeat("x", 40<<10),
		"two lengths (RFC 9112)": "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer good-ada\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, head, strings.TrimPrefix(w.base, "http://"))
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, " 4") {
			t.Errorf("%s: %q %v", name, line, err)
		}
		conn.Close()
	}
}

// TestHTTPSessionEnds checks that a session and its calls end with DELETE and with the front end.
func TestHTTPSessionEnds(t *testing.T) {
	t.Parallel()
	g := yard()
	came, ended := waiting(g)
	w := serveWeb(t, g, nil)
	call := `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"x"}}}`
	in := w.hello("good-ada")
	go func() {
		if r, err := http.DefaultClient.Do(w.request(http.MethodPost, call, in)); err == nil {
			io.Copy(io.Discard, r.Body)
			r.Body.Close()
		}
	}()
	<-came
	if code, _, body := w.do(w.request(http.MethodDelete, "", in)); code != 204 {
		t.Errorf("%d %s", code, body)
	}
	wantCancelled(t, ended)
	if code, _, body := w.post(call, in); code != 404 {
		t.Errorf("after its end: %d %s", code, body)
	}
	if n := w.door.Sessions(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	in = w.hello("good-ada")
	go func() {
		if r, err := http.DefaultClient.Do(w.request(http.MethodPost, call, in)); err == nil {
			r.Body.Close()
		}
	}()
	<-came
	w.door.Close(errors.New("the gateway stops"))
	wantCancelled(t, ended)
}

// TestHTTPIdle checks that an unused session ends, and that a session that is used or has a call stays.
func TestHTTPIdle(t *testing.T) {
	t.Parallel()
	g := yard()
	came := make(chan struct{})
	free := make(chan struct{})
	g.do["git.branch-list"] = func(context.Context, bailey.Call) bailey.Result {
		close(came)
		<-free
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: []byte("stayed")}
	}
	w := serveWeb(t, g, func(c *HTTPConfig) { c.Idle = 50 * time.Millisecond })
	gone := w.hello("good-ada")
	answer := make(chan string, 1)
	go func() {
		for { // on a slow machine the session may end before its call arrives
			resp, err := http.DefaultClient.Do(w.request(http.MethodPost, helloHTTP, nil))
			if err != nil {
				answer <- err.Error()
				return
			}
			resp.Body.Close()
			resp, err = http.DefaultClient.Do(w.request(http.MethodPost, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"git_branch-list"}}`, func(r *http.Request) {
				r.Header.Set(headerSession, resp.Header.Get(headerSession))
			}))
			if err != nil {
				answer <- err.Error()
				return
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				answer <- string(body)
				return
			}
		}
	}()
	select {
	case <-came:
	case early := <-answer:
		t.Fatalf("the call was answered before it was made: %s", early)
	}
	for w.door.Sessions() > 1 {
		time.Sleep(5 * time.Millisecond)
	}
	if code, _, _ := w.post(`{"jsonrpc":"2.0","id":4,"method":"ping"}`, gone); code != 404 {
		t.Errorf("an idle session answers %d", code)
	}
	close(free)
	if body := <-answer; !strings.Contains(body, "stayed") {
		t.Errorf("%s", body)
	}
}

// TestHTTPManySessions checks that a token that opens sessions without end loses only its own oldest ones, and that
// memory does not grow.
func TestHTTPManySessions(t *testing.T) {
	ktest.Long(t)
	n := 10_000
	if testing.Short() {
		n = 1_000
	}
	w := serveWeb(t, yard(), nil)
	other := w.hello("good-eve")
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	w.open(200)
	before := heap()
	w.open(n)
	if after := heap(); after > before+8<<20 {
		t.Errorf("%d KiB were held before %d sessions, %d KiB after", before>>10, n, after>>10)
	}
	if got := w.door.Sessions(); got != maxTokenSessions+1 {
		t.Errorf("%d sessions are open", got)
	}
	if code, _, body := w.post(`{"jsonrpc":"2.0","id":4,"method":"ping"}`, other); code != 200 {
		t.Errorf("another token's session: %d %s", code, body)
	}
}

// open begins n sessions of one token and does not close them.
func (w *web) open(n int) {
	w.Helper()
	for range n {
		r := httptest.NewRequest(http.MethodPost, w.base+HTTPPath, strings.NewReader(helloHTTP))
		r.Header = w.request(http.MethodPost, "", nil).Header
		r = r.WithContext(context.WithValue(w.Context(), frontKey{}, Front{Hosts: []string{r.Host}}))
		rec := httptest.NewRecorder()
		w.door.ServeHTTP(rec, r)
		if rec.Code != 200 {
			w.Fatalf("%d %s", rec.Code, rec.Body)
		}
	}
}

// TestHTTPManyClients checks two hundred concurrent sessions of the official client, in both kinds of session.
func TestHTTPManyClients(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	g := yard()
	w := serveWeb(t, g, nil)
	const clients, each = 200, 5
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			session, err := sdk.NewClient(&sdk.Implementation{Name: "many", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
				Endpoint: w.base + HTTPPath, DisableStandaloneSSE: true,
				HTTPClient: &http.Client{Transport: bearing{fmt.Sprintf("good-%d", i), &http.Transport{}}},
			}, nil)
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			defer session.Close()
			for n := range each {
				want := fmt.Sprintf("%d of %d", n, i)
				r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "system_echo", Arguments: map[string]any{"message": want}})
				if err != nil || first(t, r) != want {
					t.Errorf("client %d: %v %v", i, r, err)
					return
				}
			}
		})
	}
	all.Wait()
	if got := len(g.got()); got != clients*each {
		t.Errorf("%d calls came through", got)
	}
}

// bearing sends a token with each request.
type bearing struct {
	bearer string
	*http.Transport
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.bearer)
	return b.Transport.RoundTrip(r)
}

// TestHTTPTask checks that a task outlives the request that began it, and that no other token sees it.
func TestHTTPTask(t *testing.T) {
	t.Parallel()
	g := yard()
	free := make(chan struct{})
	g.do["system.echo"] = func(ctx context.Context, c bailey.Call) bailey.Result {
		go c.Asked(ctx, bailey.Question{ID: "a-1", Expires: time.Now().Add(time.Hour)})
		select {
		case <-free:
		case <-ctx.Done():
			return bailey.Result{Receipt: "r-k", Status: bailey.Killed}
		}
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: []byte("granted")}
	}
	w := serveWeb(t, g, nil)
	code, _, body := w.post(echoHTTP, newer("tools/call", "system_echo"))
	_, data, _ := strings.Cut(body, "data: ")
	var m struct {
		Result struct {
			TaskID string `json:"taskId"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(data), &m); code != 200 || err != nil || m.Result.TaskID == "" {
		t.Fatalf("%d %s %v", code, body, err)
	}
	get := `{"jsonrpc":"2.0","id":8,"method":"tasks/get","params":{"taskId":"` + m.Result.TaskID + `",` + metaHTTP + `}}`
	in := newer("tasks/get", m.Result.TaskID)
	if code, _, body := w.post(get, in); code != 200 || !strings.Contains(body, `"working"`) {
		t.Errorf("%d %s", code, body)
	}
	for name, change := range map[string]func(*http.Request){
		"another token":   func(r *http.Request) { in(r); r.Header.Set("Authorization", "Bearer good-eve") },
		"another session": func(r *http.Request) { in(r); r.Header.Set(SessionHeader, "two") },
	} {
		if code, _, body := w.post(get, change); code != 400 || !strings.Contains(body, "no such task") {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	w.open(maxTokenSessions + 1) // a session with a running task must not be removed
	close(free)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		_, _, body := w.post(get, in)
		if strings.Contains(body, `"completed"`) && strings.Contains(body, "granted") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s", body)
		}
	}
}

// FuzzHTTP sends any body in any revision and checks that the front end does not fail or hang, and that the gate gets
// only calls with a bounded name.
func FuzzHTTP(f *testing.F) {
	for _, body := range []string{"", helloHTTP, echoHTTP, "[" + helloHTTP + "]", `{"jsonrpc":"2.0","id":1,"method":"tasks/update","params":{"taskId":"t","inputResponses":{"a":1},` + metaHTTP + `}}`} {
		f.Add(body, "2025-11-25", "tools/call", "system_echo", "")
		f.Add(body, newRevision, "tools/call", "system_echo", "s")
	}
	f.Fuzz(func(t *testing.T, body, revision, method, name, session string) {
		g := yard()
		door, err := NewHTTP(HTTPConfig{Hide: hidden,
			Admit: func(string) (Caller, error) { return Caller{Principal: bailey.Principal{Token: "t"}}, nil },
			Enter: func(context.Context, Caller) (Config, func(), error) { return config(g), func() {}, nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer door.Close(errors.New("over"))
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), frontKey{}, Front{Hosts: []string{"example.com"}}), 500*time.Millisecond)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, HTTPPath, strings.NewReader(body))
		for k, v := range map[string]string{"Authorization": "Bearer b", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			headerRevision: revision, "Mcp-Method": method, headerName: name, SessionHeader: session} {
			r.Header.Set(k, v)
		}
		rec := httptest.NewRecorder()
		door.ServeHTTP(rec, r)
		if rec.Code >= 500 && rec.Code != 503 {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
		for _, c := range g.got() {
			if len(c.Capability) > 200 {
				t.Errorf("%q", c.Capability)
			}
		}
	})
}

// TestAttackStrangersByHTTP checks that connections without a token are closed early, regardless of their method, and
// that meanwhile the requests of a token are answered and its call continues.
func TestAttackStrangersByHTTP(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	begun, ending := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(ending) })
	defer end() // the call runs until then, and the front end waits for it
	g := yard()
	g.do["system.echo"] = func(context.Context, bailey.Call) bailey.Result {
		close(begun)
		<-ending
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true}
	}
	w := serveWeb(t, g, nil)
	in := w.hello("good-ada")
	answered := make(chan int, 1)
	go func() {
		code, _, _ := w.post(echoHTTP, newer("tools/call", "system_echo"))
		answered <- code
	}()
	<-begun
	const each = 20
	host := strings.TrimPrefix(w.base, "http://")
	var flood []net.Conn
	for range each {
		for _, says := range []string{"", "POST /mcp HT", "POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nX: y\r\n",
			"POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer bad\r\nContent-Length: 1000\r\n\r\n{",
			"POST /mcp HTTP/1.1\r\nHost: " + host + "\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n{",
			"GET /mcp HTTP/1.1\r\nHost: rebound.example\r\nContent-Length: 1000\r\n\r\n",
			"GET /elsewhere HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 1000\r\n\r\n"} {
			conn, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, says)
			flood = append(flood, conn)
			if n := w.door.crowd.Size(); n > strangers.Usual.Most {
				t.Fatalf("%d strangers are open", n)
			}
		}
		if code, _, body := w.post(`{"jsonrpc":"2.0","id":4,"method":"ping"}`, in); code != 200 {
			t.Fatalf("a request with a token, beside them: %d %s", code, body)
		}
	}
	begin := time.Now()
	for i := 0; w.door.crowd.Size() > strangers.Usual.PerSource; i++ {
		if time.Since(begin) > headPatience*3/4 {
			t.Fatalf("%d of %d strangers are still open", w.door.crowd.Size(), len(flood))
		}
		if i%20 == 0 { // each new connection closes those that stayed too long
			conn, err := net.Dial("tcp", host)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		time.Sleep(50 * time.Millisecond)
	}
	end()
	if code := <-answered; code != 200 {
		t.Errorf("the call that was under way: %d", code)
	}
}

// TestAttackBodiesThatDoNotEnd checks that the concurrent incomplete requests of a token are limited, so that places
// remain for others. If the client disconnects, its request must free its place. TestHTTPSlowWriter checks requests
// that take too long.
func TestAttackBodiesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	w := serveWeb(t, yard(), nil)
	w.door.patience = time.Minute
	ada, eve := w.hello("good-ada"), w.hello("good-eve")
	ping := `{"jsonrpc":"2.0","id":4,"method":"ping"}`
	host := strings.TrimPrefix(w.base, "http://")
	arrive := func(want int) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			w.door.mu.Lock()
			n := w.door.bodies
			w.door.mu.Unlock()
			if n == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d bodies arrive, not %d", n, want)
			}
		}
	}
	var open []net.Conn
	for range maxTokenBodies {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer good-ada\r\nContent-Length: 1000000\r\n\r\n{", host)
		open = append(open, conn)
	}
	arrive(maxTokenBodies)
	if code, _, body := w.post(ping, ada); code != 503 || !strings.Contains(body, "too many requests are arriving") {
		t.Errorf("one too many: %d %s", code, body)
	}
	if code, _, body := w.post(ping, eve); code != 200 {
		t.Errorf("another token: %d %s", code, body)
	}
	for _, conn := range open {
		conn.Close()
	}
	arrive(0)
	if code, _, body := w.post(ping, ada); code != 200 {
		t.Errorf("after they are gone: %d %s", code, body)
	}
}
