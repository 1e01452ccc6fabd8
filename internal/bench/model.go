package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/modelproxy"
	"bailey/internal/redact"
	"bailey/internal/server"
)

// modelEvents is the number of events of an answer that comes as fast as it can, and pacedEvents of one that comes at the
// pace of a fast model, an event in each modelPace. modelStreams are the numbers of answers at the same time.
const (
	modelEvents = 2000
	pacedEvents = 200
	modelPace   = 10 * time.Millisecond
)

var modelStreams = []int{1, 16, 64}

func (a *commands) benchModelVerb() *cobra.Command {
	var n int
	cmd := a.measureVerb(&cobra.Command{
		Use: "model", Short: "Compare requests to a model: direct, through the model proxy, with secrets in them",
		Long: fmt.Sprintf(`Send requests to a provider on loopback, directly (row direct) and through the model proxy and the
gate, without secrets in the request (proxied) and with them (proxied-secrets). The times are those to the first byte of the answer, for a request of
50 KB, and of 1 MB of which all but the last message was sent before. Row streams-N is the rate of events with N answers of %d events at the
same time, which the provider sends as fast as it can; in row paced-streams-N it sends %d to each client, 100 a second. Provider, proxy and
client are in this process. Row proxied must take at most 1.5 ms more than direct, that of 1 MB 10 ms more, and streams reach 0.9 of the rate.`,
			modelEvents, pacedEvents),
		Example: "  bailey bench model --json",
	}, func(ctx context.Context, _ []string) ([]Row, error) {
		if n < 1 {
			return nil, bailey.Invalid.New("-n must be at least 1", "leave it out for 100")
		}
		return benchModel(ctx, n)
	})
	cmd.Flags().IntVarP(&n, "n", "n", 100, "number of requests of each row")
	return cmd
}

// modelBench is a provider, and a proxy before it.
type modelBench struct {
	dir           string
	direct, proxy string // URLs
	closing       []func()
	table         *redact.Table
	client        *http.Client
}

func benchModel(ctx context.Context, n int) (rows []Row, err error) {
	b, err := newModelBench()
	if err != nil {
		return nil, err
	}
	defer b.close()
	for _, size := range []struct {
		name  string
		bytes int
		extra float64 // allowed time beyond direct, in microseconds
	}{{"", 50_000, 1500}, {"-1mb", 1_000_000, 10_000}} {
		times := map[string][]time.Duration{}
		const warm = 3
		for i := range n + warm {
			if i == warm {
				clear(times)
			}
			for _, way := range []struct{ name, url, secret string }{{"direct", b.direct, ""}, {"proxied", b.proxy, ""},
				{"proxied-secrets", b.proxy, "password=kd83hHsk29xlPq0w and "}} {
				took, err := b.timeFirstByte(ctx, way.url, modelRequest("few", size.bytes, way.secret, i))
				if err != nil {
					return nil, fmt.Errorf("%s: %w", way.name, err)
				}
				times[way.name+size.name] = append(times[way.name+size.name], took)
			}
		}
		of := "direct" + size.name
		some, p50 := timeRows(times, of, of, "proxied"+size.name, "proxied-secrets"+size.name)
		for i := range some[1:] {
			some[i+1].Required = (p50[of] + size.extra) / p50[of]
		}
		rows = append(rows, some...)
	}
	for _, pace := range []modelPaces{{"", "many", modelEvents, 3}, {"paced-", "paced", pacedEvents, 1}} {
		for _, streams := range modelStreams {
			more, err := b.streamRows(ctx, streams, pace)
			if err != nil {
				return nil, err
			}
			rows = append(rows, more...)
		}
	}
	return rows, nil
}

// modelPaces is a pace of answers.
type modelPaces struct {
	row, model    string // prefix of the names of rows, and the model that is asked
	events, times int    // of an answer; the best of so many measurements counts
}

// streamRows measures the rate of events of several answers at the same time.
func (b *modelBench) streamRows(ctx context.Context, streams int, pace modelPaces) (rows []Row, err error) {
	rates := map[string]float64{}
	events := streams * pace.events
	for range pace.times {
		for name, base := range map[string]string{"direct": b.direct, "proxied": b.proxy} {
			began := time.Now()
			var all sync.WaitGroup
			errs := make([]error, streams)
			for i := range streams {
				all.Go(func() { errs[i] = b.readAnswer(ctx, base, modelRequest(pace.model, 1000, "", i)) })
			}
			all.Wait()
			if err := errors.Join(errs...); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			rates[name] = max(rates[name], float64(events)/time.Since(began).Seconds())
		}
	}
	name := fmt.Sprintf("%sstreams-%d", pace.row, streams)
	direct := Row{Name: "direct-" + name, N: events, PerSec: rates["direct"]}
	proxied := Row{Name: name, N: events, PerSec: rates["proxied"]}
	return []Row{direct, proxied.comparedTo(direct.Name, proxied.PerSec, direct.PerSec, 0.9)}, nil
}

// modelRequest returns a request of about size bytes: messages that stay the same, and one that does not. The model says
// how the answer comes: few, many or paced events.
func modelRequest(model string, size int, secret string, number int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"model":"bench-%s","stream":true,"messages":[`, model)
	text := secret + strings.Repeat("the build of the service fails in the second step of the pipeline; ", 15)
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, `{"role":"user","content":"message %d: %s"},`, i, text)
	}
	fmt.Fprintf(&b, `{"role":"user","content":"and the last one has the number %d"}]}`, number)
	return b.Bytes()
}

// timeFirstByte times a request up to the first byte of the answer, which it then reads to its end.
func (b *modelBench) timeFirstByte(ctx context.Context, base string, body []byte) (time.Duration, error) {
	began := time.Now()
	res, err := b.send(ctx, base, body)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if _, err = res.Body.Read(make([]byte, 1)); err != nil && err != io.EOF {
		return 0, err
	}
	took := time.Since(began)
	_, err = io.Copy(io.Discard, res.Body)
	return took, err
}

func (b *modelBench) readAnswer(ctx context.Context, base string, body []byte) error {
	res, err := b.send(ctx, base, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

func (b *modelBench) send(ctx context.Context, base string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("X-Api-Key", "bench")
	res, err := b.client.Do(r)
	if err == nil && res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		err = fmt.Errorf("answer %d: %.300s", res.StatusCode, text)
	}
	return res, err
}

// answerModel is the provider.
func answerModel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	events, pace := 3, (<-chan time.Time)(nil)
	switch head := body[:min(len(body), 100)]; {
	case bytes.Contains(head, []byte("bench-many")):
		events = modelEvents
	case bytes.Contains(head, []byte("bench-paced")):
		ticks := time.NewTicker(modelPace)
		defer ticks.Stop()
		events, pace = pacedEvents, ticks.C
	}
	w.Header().Set("Content-Type", "text/event-stream")
	part := func(name, data string) { fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data) }
	part("message_start",
		`{"type":"message_start","message":{"id":"m","model":"bench","usage":{"input_tokens":1,"output_tokens":1}}}`)
	part("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	rc := http.NewResponseController(w)
	for range events {
		part("content_block_delta",
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"some words "}}`)
		if rc.Flush() != nil {
			return
		}
		if pace != nil {
			<-pace
		}
	}
	part("content_block_stop", `{"type":"content_block_stop","index":0}`)
	part("message_stop", `{"type":"message_stop"}`)
}

// newModelBench starts the provider, and a proxy whose calls pass a gate with a ledger of its own.
func newModelBench() (b *modelBench, err error) {
	b = &modelBench{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.dir, err = os.MkdirTemp("", "bailey-bench-model-"); err != nil {
		return b, err
	}
	b.closing = append(b.closing, func() { os.RemoveAll(b.dir) })
	s := &server.Server{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Bare: jail.Bare}
	b.closing = append(b.closing, s.Close)
	if _, err = s.NewGate(localapi.Home(filepath.Join(b.dir, "home")), nil); err != nil {
		return b, err
	}
	key := filepath.Join(b.dir, "key")
	if err = os.WriteFile(key, []byte("sk-bench"), 0o600); err != nil {
		return b, err
	}
	rules, err := redact.Compile(redact.Config{})
	if err != nil {
		return b, err
	}
	b.table = rules.NewTable()
	if b.direct, err = b.listen(func(l net.Listener) { http.Serve(l, http.HandlerFunc(answerModel)) }); err != nil {
		return b, err
	}
	call := bailey.Call{Principal: bailey.Principal{Agent: "local"},
		Session: bailey.Session{ID: bailey.NewSessionID()}, Dir: b.dir}
	p, err := modelproxy.New(modelproxy.Config{
		Enter: func(context.Context, string, bailey.SessionID, modelproxy.Front) (bailey.Call, func(), error) {
			return call, func() {}, nil
		},
		Do: s.Gate.Do, Table: func(bailey.SessionID) *redact.Table { return b.table },
		Provider: func(name string) modelproxy.Provider {
			return modelproxy.Provider{Name: name, Base: b.direct, KeyFile: key}
		},
		Prompt:   func(_ context.Context, _ bailey.Call, s string) (string, error) { return s, nil },
		Render:   func(context.Context, bailey.Call) func(string) string { return nil },
		Restores: func() []string { return nil }, Prices: func() []modelproxy.Price { return nil },
		Upstream: modelproxy.NewTransport(func() *url.URL { return nil }),
	})
	if err != nil {
		return b, err
	}
	b.closing = append(b.closing, p.Close)
	b.proxy, err = b.listen(func(l net.Listener) {
		p.Serve(l,
			func(net.Conn) modelproxy.Front { return modelproxy.Front{} })
	})
	return b, err
}

// listen serves a listener on loopback until the end, and returns its URL.
func (b *modelBench) listen(serve func(net.Listener)) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	b.closing = append(b.closing, func() { l.Close() })
	go serve(l)
	return "http://" + l.Addr().String(), nil
}

func (b *modelBench) close() {
	b.client.CloseIdleConnections()
	for i := len(b.closing) - 1; i >= 0; i-- {
		b.closing[i]()
	}
}
