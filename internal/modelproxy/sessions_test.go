package modelproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"bailey"
)

// TestSessionsInUse checks that no session ends while a request uses it, however many others its agent begins, and that
// an agent cannot end the sessions of another.
func TestSessionsInUse(t *testing.T) {
	t.Parallel()
	var began, ended atomic.Int64
	p := &Proxy{held: map[sessionKey]*heldSession{}}
	p.Enter = func(_ context.Context, token string, known bailey.SessionID, _ Front) (bailey.Call, func(), error) {
		from := bailey.Call{Principal: bailey.Principal{Agent: token}, Session: bailey.Session{ID: known}}
		if known != "" {
			return from, nil, nil
		}
		from.Session.ID = bailey.SessionID(fmt.Sprint("s-", began.Add(1)))
		return from, func() { ended.Add(1) }, nil
	}
	enter := func(token, name string) (bailey.SessionID, func()) {
		r := &http.Request{Header: http.Header{sessionHeaders[0]: {name}}}
		from, leave, err := p.enterSession(t.Context(), token, Front{}, r)
		if err != nil {
			t.Fatal(err)
		}
		return from.Session.ID, leave
	}
	_, leave := enter("other", "A")
	leave()
	first, leave := enter("agent", "A")
	leave()
	_, leave = enter("agent", "A") // a long request
	for i := range 2 * maxHeld {
		_, leave := enter("agent", fmt.Sprint(i))
		leave()
	}
	if again, leave := enter("agent", "A"); again != first {
		t.Errorf("the session of a running request was replaced by %s", again)
	} else {
		leave()
	}
	leave()
	if n := p.Sessions(); n != maxHeld+1 || began.Load()-ended.Load() != int64(n) {
		t.Errorf("%d sessions are held, %d are open", n, began.Load()-ended.Load())
	}
	if again, leave := enter("other", "A"); again != "s-1" {
		t.Errorf("another agent ended the session, now %s", again)
	} else {
		leave()
	}
	p.Close()
	if began.Load() != ended.Load() {
		t.Errorf("%d sessions began, %d ended", began.Load(), ended.Load())
	}
}

// TestBodiesInProgress checks that a request occupies the memory of its bytes only: one that sends nothing stops no
// other, a compressed one counts as decoded, and a body of very many values is refused.
func TestBodiesInProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, sayPlain)
	for range maxBodies / MaxBody {
		in, out := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", b.url+"/v1/messages", in)
		r.Header.Set("X-Api-Key", testToken)
		ended := make(chan bool)
		go func() {
			defer close(ended)
			if res, err := http.DefaultTransport.RoundTrip(r); err == nil {
				res.Body.Close()
			}
		}()
		if _, err := io.WriteString(out, "{"); err != nil {
			t.Fatal(err)
		}
		defer func() { out.CloseWithError(io.ErrUnexpectedEOF); <-ended }()
	}
	for b.proxy.Counts().Open < maxBodies/MaxBody {
		runtime.Gosched()
	}
	if res, text := b.post(plainAsk, nil); res.StatusCode != 200 {
		t.Errorf("beside requests that send nothing: %d %s", res.StatusCode, text)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	io.WriteString(w, `{"messages":[0`+strings.Repeat(",0", 10<<20)+`]}`)
	w.Close()
	bomb := func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }
	if res, text := b.post(z.String(), bomb); res.StatusCode != 413 || !strings.Contains(text, "values") {
		t.Errorf("many values: %d %.200s", res.StatusCode, text)
	}
	b.proxy.bodies.Add(maxBodies - 20<<20)
	if res, text := b.post(z.String(), bomb); res.StatusCode != 503 || !strings.Contains(text, "in progress") {
		t.Errorf("a body that is large when it is decoded: %d %.200s", res.StatusCode, text)
	}
	b.proxy.bodies.Add(20<<20 - maxBodies)
}

// TestKeyNeedsTLS checks that a client that names a provider cannot have a request sent without TLS.
func TestKeyNeedsTLS(t *testing.T) {
	t.Parallel()
	host := ""
	b := newBench(t, func(c *Config) {
		provider := c.Provider
		c.Provider = func(name string) Provider {
			p := provider(name)
			host = strings.TrimPrefix(p.Base, "http://")
			p.Base = "https://" + host
			return p
		}
		c.Provider("anthropic")
	}, sayPlain)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	front := Front{Upstream: host, Plain: true, Session: testToken}
	go b.proxy.Serve(l, func(net.Conn) Front { return front })
	b.url = "http://" + l.Addr().String()
	res, text := b.post(plainAsk, nil)
	if res.StatusCode != 403 || !strings.Contains(text, "is no address of the provider anthropic") || b.seen.Load() != 0 {
		t.Errorf("%d %s; the provider received %d", res.StatusCode, text, b.seen.Load())
	}
}

// TestAttackOtherProvider checks that a connection which names another address than those of the provider gets nothing
// sent there, neither with a key nor without.
func TestAttackOtherProvider(t *testing.T) {
	t.Parallel()
	var strangers atomic.Int64
	stranger := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { strangers.Add(1) }))
	t.Cleanup(stranger.Close)
	own := ""
	b := newBench(t, func(c *Config) { own = strings.TrimPrefix(c.Provider("anthropic").Base, "http://") }, sayPlain)
	for host, want := range map[string]int{own: 200, strings.TrimPrefix(stranger.URL, "http://"): 403, "10.0.0.1:80": 403, "": 401} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go b.proxy.Serve(l, func(net.Conn) Front { return Front{Upstream: host, Plain: true, Session: testToken} })
		b.url = "http://" + l.Addr().String()
		res, text := b.post(plainAsk, func(r *http.Request) { r.Header.Set("X-Api-Key", "sk-mine") })
		if res.StatusCode != want || strangers.Load() != 0 {
			t.Errorf("%q: %d %s", host, res.StatusCode, text)
		}
	}
}

// TestBodiesOfOneSession checks that the bodies of one session in progress leave room for those of others, and that
// nothing stays reserved.
func TestBodiesOfOneSession(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, sayPlain)
	x := &exchange{p: b.proxy, session: "s-1"}
	y := &exchange{p: b.proxy, session: "s-2"}
	if x.reserveBytes(maxOwn) != nil || x.reserveBytes(1) == nil || y.reserveBytes(maxOwn) != nil {
		t.Error("a session has other limits than its own")
	}
	x.releaseBytes()
	y.releaseBytes()
	if len(b.proxy.own) != 0 || b.proxy.bodies.Load() != 0 {
		t.Errorf("%v, %d stay reserved", b.proxy.own, b.proxy.bodies.Load())
	}
}

// TestKeptPromptBytes checks that prompts are kept up to a number of bytes, each counted once.
func TestKeptPromptBytes(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil, sayPlain)
	long := strings.Repeat("x", maxPromptBytes/2)
	for range 3 {
		if !b.proxy.keepPrompt("s-1", long, "short") {
			t.Fatal("the same prompt did not fit")
		}
	}
	if b.proxy.keepPrompt("s-1", long+"y", "") || !b.proxy.keepPrompt("s-1", "z", "zz") || !b.proxy.keepPrompt("s-2", long+"y", "") {
		t.Error("the limit is not one of bytes of a session")
	}
}

// TestEmbeddingsAskHooks checks that hooks see the texts of embeddings, and can block them.
func TestEmbeddingsAskHooks(t *testing.T) {
	t.Parallel()
	var prompts []string
	b := newBench(t, func(c *Config) {
		c.Prompt = func(_ context.Context, _ bailey.Call, s string) (string, error) {
			prompts = append(prompts, s)
			return "", bailey.Denied.New("blocked by a hook", "")
		}
	}, sayPlain)
	for path, body := range map[string]string{"/v1/embeddings": `{"model":"m","input":["one","two"]}`,
		"/v1beta/models/g:embedContent": `{"content":{"parts":[{"text":"one"},{"text":"two"}]}}`} {
		prompts = nil
		res, text := b.post(body, func(r *http.Request) { r.URL.Path = path })
		if res.StatusCode != 403 || fmt.Sprint(prompts) != "[one\ntwo]" || b.seen.Load() != 0 {
			t.Errorf("%s: %d %s, asked %q", path, res.StatusCode, text, prompts)
		}
	}
}

// TestBlockedParts checks that a blocked prompt of several parts does not reach the model with the history of a later
// turn, and that hooks are asked about token counts and each request of a batch, too.
func TestBlockedParts(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) {
		c.Prompt = func(_ context.Context, _ bailey.Call, s string) (string, error) {
			if strings.Contains(s, "forbidden") {
				return "", bailey.Denied.New("blocked by a hook", "")
			}
			return s, nil
		}
	}, sayPlain)
	const parts = `{"role":"user","content":[{"type":"text","text":"a forbidden thing"},{"type":"text","text":"more"}]}`
	const allowed = `{"role":"user","content":"go on"}`
	b.post(`{"model":"m","messages":[`+parts+`]}`, nil)
	if b.seen.Load() != 0 {
		t.Fatal("the blocked prompt was sent")
	}
	res, text := b.post(`{"model":"m","messages":[`+parts+`,{"role":"assistant","content":"a"},`+allowed+`]}`, nil)
	if _, body := b.sent(); res.StatusCode != 200 || strings.Contains(body, "forbidden") ||
		!strings.Contains(body, blockedPrompt) {
		t.Errorf("%d %s; the provider received %s", res.StatusCode, text, body)
	}
	const first = `{"custom_id":"1","params":{"model":"m","messages":[{"role":"user","content":"forbidden, too"}]}}`
	const second = `{"custom_id":"2","params":{"model":"m","messages":[` + allowed + `]}}`
	before := b.seen.Load()
	for path, body := range map[string]string{
		"/v1/messages/count_tokens": `{"model":"m","messages":[{"role":"user","content":"forbidden count"}]}`,
		"/v1/messages/batches":      `{"requests":[` + first + `,` + second + `]}`,
	} {
		res, text := b.post(body, func(r *http.Request) { r.URL.Path = path })
		if res.StatusCode != 403 || b.seen.Load() != before {
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
		}
	}
}
