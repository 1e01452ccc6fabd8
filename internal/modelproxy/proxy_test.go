package modelproxy

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"bailey"
	"bailey/internal/redact"
)

const (
	testKey   = "sk-test-1234567890"
	testToken = "bs-00112233445566778899aabbccddeeff"
	secret    = "kd83hHsk29xlPq0w"
)

// bench is a proxy before a provider that the test scripts.
type bench struct {
	*testing.T
	proxy *Proxy
	url   string
	table *redact.Table
	seen  atomic.Int64 // requests that reached the provider
	mu    sync.Mutex
	last  *http.Request
	body  string
	uses  chan bailey.Exit
	errs  chan error
}

// newBench serves a proxy whose provider is answer. change may be nil.
func newBench(t *testing.T, change func(*Config), answer http.HandlerFunc) *bench {
	t.Helper()
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, table: rules.NewTable(), uses: make(chan bailey.Exit, 256), errs: make(chan error, 256)}
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.seen.Add(1)
		body, _ := io.ReadAll(r.Body)
		b.mu.Lock()
		b.last, b.body = r, string(body)
		b.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(up.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(testKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Enter: func(_ context.Context, token string, _ bailey.SessionID, _ Front) (bailey.Call, func(), error) {
			if token != testToken {
				return bailey.Call{}, nil, bailey.Denied.New("no such token", "use another")
			}
			return bailey.Call{Session: bailey.Session{ID: "s-1"}}, func() {}, nil
		},
		Do:       b.do,
		Table:    func(bailey.SessionID) *redact.Table { return b.table },
		Provider: func(name string) Provider { return Provider{Name: name, Base: up.URL, KeyFile: key} },
		Prompt:   func(_ context.Context, _ bailey.Call, s string) (string, error) { return s, nil },
		Restores: func() []string { return nil },
		Render:   func(context.Context, bailey.Call) func(string) string { return nil },
		Prices:   func() []Price { return nil },
		Upstream: NewTransport(func() *url.URL { return nil }),
	}
	if change != nil {
		change(&c)
	}
	if b.proxy, err = New(c); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go b.proxy.Serve(l, func(net.Conn) Front { return Front{} })
	t.Cleanup(func() { b.proxy.Close(); l.Close() })
	b.url = "http://" + l.Addr().String()
	return b
}

// do runs the call as the gate does, without rules.
func (b *bench) do(ctx context.Context, call bailey.Call) bailey.Result {
	run, err := Runner{func() *Proxy { return b.proxy }}.Plan(ctx, bailey.Job{Capability: call.Capability})
	if err != nil {
		return bailey.Result{Err: err}
	}
	exit, err := run.Start(ctx, bailey.Lent{}, bailey.Streams{})
	b.uses <- exit
	b.errs <- err
	return bailey.Result{Receipt: "r-1", Err: err}
}

// post sends a message to the proxy.
func (b *bench) post(body string, change func(*http.Request)) (*http.Response, string) {
	b.Helper()
	r, err := http.NewRequest("POST", b.url+"/v1/messages", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("X-Api-Key", testToken)
	r.Header.Set("Content-Type", "application/json")
	if change != nil {
		change(r)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		text = append(text, ("CUT: " + err.Error())...)
	}
	return res, string(text)
}

// sent returns what the provider received last.
func (b *bench) sent() (*http.Request, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.body
}

const (
	plainAsk  = `{"model":"m","messages":[{"role":"user","content":"password=` + secret + `"}]}`
	streamAsk = `{"model":"m","stream":true,"messages":[{"role":"user","content":"password=` + secret + `"}]}`
	plainSays = `{"id":"msg_1","type":"message","role":"assistant","model":"m-1","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`
)

func event(name, data string) string { return "event: " + name + "\ndata: " + data + "\n\n" }

var streamSays = []string{
	event("message_start", `{"type":"message_start","message":{"id":"m","model":"m-1","usage":{"input_tokens":3,"output_tokens":1}}}`),
	event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
	event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}`),
	event("content_block_stop", `{"type":"content_block_stop","index":0}`),
	event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}`),
	event("message_stop", `{"type":"message_stop"}`),
}

func sayPlain(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, plainSays)
}

// TestExchange checks a whole exchange: the provider gets its key, no token of Bailey and no secret; the client gets the
// answer; the record has the counts.
func TestExchange(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, sayPlain)
	res, text := b.post(plainAsk, func(r *http.Request) {
		r.Header.Set("Cookie", "a=b")
		r.Header.Set("X-Note", "password="+secret)
		r.Header.Set("Anthropic-Beta", "beta-1")
	})
	if res.StatusCode != 200 || text != plainSays {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	last, body := b.sent()
	if got := last.Header.Get("X-Api-Key"); got != testKey {
		t.Errorf("the key is %q", got)
	}
	if all := fmt.Sprint(last.Header, body); strings.Contains(all, secret) || strings.Contains(all, testToken) ||
		last.Header.Get("Cookie") != "" || last.Header.Get("Anthropic-Beta") != "beta-1" {
		t.Errorf("the provider received %s", all)
	}
	use := (<-b.uses).Model
	if use.InputTokens != 3 || use.OutputTokens != 2 || use.StopReason != "end_turn" || use.Model != "m-1" || use.Hidden != 1 {
		t.Errorf("%+v", use)
	}
	if c := b.proxy.Counts(); c.Requests != 1 || c.Refused != 0 || c.Broken != 0 {
		t.Errorf("%+v", c)
	}
}

// TestStreams checks that each event arrives when the provider sends it.
func TestStreams(t *testing.T) {
	t.Parallel()
	next := make(chan bool)
	b := newBench(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range streamSays {
			io.WriteString(w, e)
			w.(http.Flusher).Flush()
			<-next
		}
	})
	r, _ := http.NewRequest("POST", b.url+"/v1/messages", strings.NewReader(streamAsk))
	r.Header.Set("Authorization", "Bearer "+testToken)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	in := bufio.NewReader(res.Body)
	for _, want := range streamSays {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
		next <- true
	}
	if use := (<-b.uses).Model; use.OutputTokens != 7 || use.StopReason != "end_turn" {
		t.Errorf("%+v", use)
	}
}

// TestTrap02Encodings checks every encoding in both directions, and refuses others.
func TestTrap02Encodings(t *testing.T) {
	t.Parallel()
	encode := map[string]func(io.Writer) io.WriteCloser{
		"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
		"br":      func(w io.Writer) io.WriteCloser { return brotli.NewWriter(w) },
		"zstd":    func(w io.Writer) io.WriteCloser { z, _ := zstd.NewWriter(w); return z },
		"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
		"raw":     func(w io.Writer) io.WriteCloser { z, _ := flate.NewWriter(w, 5); return z },
	}
	for name, make := range encode {
		header := strings.Replace(name, "raw", "deflate", 1)
		b := newBench(t, nil, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", header)
			z := make(w)
			for _, e := range streamSays {
				io.WriteString(z, e)
				z.(interface{ Flush() error }).Flush()
				w.(http.Flusher).Flush()
			}
			z.Close()
		})
		var body bytes.Buffer
		z := make(&body)
		io.WriteString(z, streamAsk)
		z.Close()
		res, text := b.post(body.String(), func(r *http.Request) { r.Header.Set("Content-Encoding", header) })
		if res.StatusCode != 200 || text != strings.Join(streamSays, "") || res.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %d %q", name, res.StatusCode, text)
		}
		if last, sent := b.sent(); !strings.Contains(sent, "REDACTED") || last.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %q was sent", name, sent)
		}
	}
	b := newBench(t, nil, sayPlain)
	for _, bad := range []string{"compress", "gzip, br", "zstd"} {
		res, text := b.post(plainAsk, func(r *http.Request) { r.Header.Set("Content-Encoding", bad) })
		if res.StatusCode != 415 || !strings.Contains(text, `"type":"error"`) {
			t.Errorf("%s: %d %s", bad, res.StatusCode, text)
		}
	}
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range MaxBody>>20 + 1 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	if res, text := b.post(bomb.String(), func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }); res.StatusCode != 413 {
		t.Errorf("a body that becomes too large: %d %s", res.StatusCode, text)
	}
	if b.seen.Load() != 0 {
		t.Errorf("%d unreadable requests were forwarded", b.seen.Load())
	}
}

// TestRefusals checks that what cannot be read or is not known is refused in the provider's form and not forwarded.
func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, sayPlain)
	for name, c := range map[string]struct {
		method, path, body string
		change             func(*http.Request)
		status             int
		want               string
	}{
		"WebSocket":        {"GET", "/v1/responses", "", func(r *http.Request) { r.Header.Set("Upgrade", "websocket"); r.Header.Set("Connection", "Upgrade") }, 426, "WebSocket"},
		"unknown endpoint": {"POST", "/v1/secret", plainAsk, nil, 404, "does not know"},
		"unknown method":   {"PUT", "/v1/messages", plainAsk, nil, 404, "does not know"},
		"encoded path":     {"POST", "/v1/%6dessages", plainAsk, nil, 404, "does not know"},
		"files":            {"POST", "/v1/files", "x", nil, 403, "cannot be redacted"},
		"no token":         {"POST", "/v1/messages", plainAsk, func(r *http.Request) { r.Header.Del("X-Api-Key") }, 401, "authentication_error"},
		"another token":    {"POST", "/v1/messages", plainAsk, func(r *http.Request) { r.Header.Set("X-Api-Key", "x") }, 401, "no such token"},
		"no JSON":          {"POST", "/v1/messages", "hello", nil, 415, "invalid_request_error"},
		"a key twice":      {"POST", "/v1/messages", `{"model":"a","model":"b"}`, nil, 415, "invalid_request_error"},
		"a secret address": {"POST", "/v1/messages?x=password%3D" + secret + "&password=" + secret, plainAsk, nil, 403, "secret"},
	} {
		r, err := http.NewRequest(c.method, b.url+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", testToken)
		if c.change != nil {
			c.change(r)
		}
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.status || !strings.Contains(string(text), c.want) || res.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s", name, res.StatusCode, text)
		}
	}
	if b.seen.Load() != 0 {
		t.Errorf("%d requests were forwarded", b.seen.Load())
	}
}

// TestTrap20UpstreamFaults checks each way in which a provider can fail: the client gets an error, and the request is made once.
func TestTrap20UpstreamFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		ask    string
		status int
		want   string
	}{
		"hangs":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, plainAsk, 503, "did not answer in time"},
		"resets": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, plainAsk, 503, "closed the connection"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, plainAsk, 502, "not followed"},
		"encodes": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "compress") }, plainAsk, 502, "cannot read the answer"},
		"lies": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "no")
		}, plainAsk, 502, "cannot read the answer"},
		"no JSON": {func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, plainAsk, 502, "cannot read the answer"},
		"1 GB":    {endless(1 << 30), plainAsk, 502, "more than"},
		"1 GB event": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, streamSays[0]+"data: {\"")
			endless(1<<30)(w, r)
		}, streamAsk, 200, "event: error"},
		"its error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(529)
			io.WriteString(w, `{"type":"error"}`)
		}, plainAsk, 529, `{"type":"error"}`},
		"half an event": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, strings.Join(streamSays[:3], "")+`data: {"type":"content_bl`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, streamAsk, 200, "event: error\ndata: {\"type\":\"error\""},
		"is silent": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, streamSays[0])
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, streamAsk, 200, "silent for too long"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, func(c *Config) { c.Patience = Patience{Answer: 2 * time.Second, Silent: 2 * time.Second} }, c.answer)
			res, text := b.post(c.ask, nil)
			if res.StatusCode != c.status || !strings.Contains(text, c.want) {
				t.Errorf("%d %.400s", res.StatusCode, text)
			}
			if err := <-b.errs; err == nil {
				t.Error("the call has no error")
			}
			if res.StatusCode == 200 && !strings.Contains(text, "CUT: ") {
				t.Error("the incomplete answer seems complete")
			}
			if b.seen.Load() != 1 {
				t.Errorf("%d requests", b.seen.Load())
			}
		})
	}
}

// endless writes so many bytes of a JSON text.
func endless(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		part := bytes.Repeat([]byte("x"), 1<<20)
		for sent := 0; sent < n; sent += len(part) {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
}

// TestTrap19ClientLeaves checks that the request to the provider ends with the client, which costs money otherwise.
func TestTrap19ClientLeaves(t *testing.T) {
	t.Parallel()
	began, ended := make(chan bool), make(chan bool)
	b := newBench(t, nil, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streamSays[0])
		w.(http.Flusher).Flush()
		close(began)
		<-r.Context().Done()
		close(ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, "POST", b.url+"/v1/messages", strings.NewReader(streamAsk))
	r.Header.Set("X-Api-Key", testToken)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	<-began
	leave()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the provider still answers")
	}
	if err := <-b.errs; err == nil {
		t.Error("the call has no error")
	}
}

// TestBackpressure checks that a client that does not read stops the provider.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	var wrote atomic.Int64
	filler := event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+strings.Repeat("x", 1<<16)+`"}}`)
	b := newBench(t, func(c *Config) { c.Patience.Read = 2 * time.Second }, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, streamSays[0]+streamSays[1])
		for range 16 << 10 { // 1 GB
			n, err := io.WriteString(w, filler)
			if wrote.Add(int64(n)); err != nil {
				return
			}
		}
	})
	r, _ := http.NewRequest("POST", b.url+"/v1/messages", strings.NewReader(streamAsk))
	r.Header.Set("X-Api-Key", testToken)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := <-b.errs; err == nil || !strings.Contains(err.Error(), "did not arrive") {
		t.Errorf("the call: %v", err)
	}
	if n := wrote.Load(); n > 64<<20 {
		t.Errorf("the provider could send %d bytes", n)
	}
}

// TestTrap21RestoresFileInputs checks that a token comes back in the inputs of file tools only if the settings allow it, and
// never in a command line.
func TestTrap21RestoresFileInputs(t *testing.T) {
	t.Parallel()
	answer := func(tool, field string) string {
		return `{"type":"message","role":"assistant","model":"m","content":[{"type":"tool_use","id":"t","name":"` + tool + `","input":{"` + field + `":"x [REDACTED_PASSWORD_1] y"}}],"stop_reason":"tool_use","usage":{}}`
	}
	for _, c := range []struct {
		tool, field string
		granted     []string
		back        bool
	}{
		{"Edit", "old_string", []string{"PASSWORD"}, true}, {"Write", "content", []string{"PASSWORD"}, true},
		{"edit", "oldString", []string{"PASSWORD"}, true}, {"Edit", "old_string", nil, false},
		{"Bash", "command", []string{"PASSWORD"}, false}, {"WebFetch", "url", []string{"PASSWORD"}, false},
		{"mcp__bailey__git_commit", "message", []string{"PASSWORD"}, false}, {"Edit", "description", []string{"PASSWORD"}, false},
	} {
		b := newBench(t, func(conf *Config) { conf.Restores = func() []string { return c.granted } },
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, answer(c.tool, c.field))
			})
		if _, text := b.post(plainAsk, nil); strings.Contains(text, "x "+secret+" y") != c.back {
			t.Errorf("%s %s with %q: %s", c.tool, c.field, c.granted, text)
		}
		if use := (<-b.uses).Model; (use.Restored == 1) != c.back || len(use.Tools) != 1 || use.Tools[0] != c.tool {
			t.Errorf("%s %s: %+v", c.tool, c.field, use)
		}
	}
}

// TestKeyFile checks that a key that others can read, or that is missing, is refused before a request.
func TestKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wide := filepath.Join(dir, "wide")
	if err := errors.Join(os.WriteFile(wide, []byte(testKey), 0o600), os.Chmod(wide, 0o644)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{wide: "chmod 600", filepath.Join(dir, "none"): "cannot read the key", "": "no usable key"} {
		b := newBench(t, func(c *Config) {
			provider := c.Provider
			c.Provider = func(n string) Provider { p := provider(n); p.KeyFile = name; return p }
		}, sayPlain)
		if res, text := b.post(plainAsk, nil); res.StatusCode < 400 || !strings.Contains(text, want) || b.seen.Load() > 0 {
			t.Errorf("%q: %d %s", name, res.StatusCode, text)
		}
	}
}

// TestOnlyTheProxyCalls checks that a call without an exchange is refused.
func TestOnlyTheProxyCalls(t *testing.T) {
	t.Parallel()
	if _, err := (Runner{}).Plan(t.Context(), bailey.Job{}); bailey.KindOf(err) != bailey.Denied {
		t.Errorf("%v", err)
	}
}

// FuzzDecode checks that no encoded body can exceed the limit or end the process.
func FuzzDecode(f *testing.F) {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write([]byte(plainAsk))
	w.Close()
	f.Add(z.Bytes(), "gzip")
	for _, name := range []string{"br", "zstd", "deflate", "identity", "x"} {
		f.Add([]byte("(\xb5/\xfd\x04\x00\x01\x00\x00"), name)
	}
	f.Fuzz(func(t *testing.T, raw []byte, name string) {
		const most = 1 << 20
		if body, err := decodeAll(raw, []string{name}, most); err == nil && len(body) > most {
			t.Errorf("%d bytes", len(body))
		}
	})
}

// TestPromptHook checks that a hook sees each prompt without its secrets, can block it, and can change it.
func TestPromptHook(t *testing.T) {
	t.Parallel()
	var saw string
	answer := func(s string) (string, error) { return s, nil }
	b := newBench(t, func(c *Config) {
		c.Prompt = func(_ context.Context, _ bailey.Call, s string) (string, error) { saw = s; return answer(s) }
	}, sayPlain)
	if res, text := b.post(plainAsk, nil); res.StatusCode != 200 || saw != "password=[REDACTED_PASSWORD_1]" {
		t.Errorf("%d %s; the hook saw %q", res.StatusCode, text, saw)
	}
	answer = func(string) (string, error) { return "another prompt", nil }
	if _, _ = b.post(plainAsk, nil); true {
		if _, body := b.sent(); !strings.Contains(body, `"another prompt"`) || strings.Contains(body, "REDACTED") {
			t.Errorf("the provider received %s", body)
		}
	}
	answer = func(s string) (string, error) { return s + " and secret=Zk29xlPq0wkd83hH", nil }
	b.post(strings.Replace(plainAsk, "password", "the password", 1), nil)
	if _, body := b.sent(); strings.Contains(body, "Zk29xlPq0wkd83hH") || !strings.Contains(body, " and secret=[REDACTED") {
		t.Errorf("with a secret of a hook the provider received %s", body)
	}
	answer = func(string) (string, error) { return "another prompt", nil }
	turn := strings.Replace(plainAsk, `}]}`, `},{"role":"assistant","content":"a"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]}`, 1)
	b.post(turn, nil)
	if _, body := b.sent(); !strings.Contains(body, `"another prompt"`) || strings.Contains(body, "REDACTED") {
		t.Errorf("in the history the provider received %s", body)
	}
	answer = func(string) (string, error) { return "", bailey.Denied.New("blocked by a hook", "") }
	before := b.seen.Load()
	if res, text := b.post(plainAsk, nil); res.StatusCode != 403 || !strings.Contains(text, "blocked by a hook") || b.seen.Load() != before {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	saw = ""
	b.post(`{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]}]}`, nil)
	if saw != "" {
		t.Errorf("the result of a tool is passed on as the prompt %q", saw)
	}
}
