package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
)

// Tracer writes a line for each call with a durable outcome: its span and one span per stage, as OTLP in JSON
// (opentelemetry-proto, trace/v1 and its JSON encoding). The only value that a caller chose is the capability, which is
// redacted in the intent. If a line cannot be written, it is lost, because a trace is not a receipt. A nil Tracer
// writes nothing.
type Tracer struct {
	out io.Writer
	log *slog.Logger

	mu    sync.Mutex
	calls map[bailey.ReceiptID]*traced // guarded by mu
}

// NewTracer returns a Tracer that writes to out, with one Write per line.
func NewTracer(out io.Writer, log *slog.Logger) *Tracer {
	return &Tracer{out: out, log: log, calls: map[bailey.ReceiptID]*traced{}}
}

// traced is a running call.
type traced struct {
	intent bailey.Intent
	status bailey.Status
	hooks  []bailey.AskedHook
	steps  []gate.Step
}

// Ledger returns a ledger that traces each call from the intent that inner has made durable.
func (t *Tracer) Ledger(inner gate.Ledger) gate.Ledger {
	if t == nil {
		return inner
	}
	return tracing{t, inner}
}

type tracing struct {
	tracer *Tracer
	inner  gate.Ledger
}

func (w tracing) Open(ctx context.Context, i bailey.Intent) (func(bailey.Outcome) error, error) {
	seal, err := w.inner.Open(ctx, i)
	if err != nil {
		return seal, err
	}
	w.tracer.with(func(calls map[bailey.ReceiptID]*traced) { calls[i.Receipt] = &traced{intent: i} })
	return func(o bailey.Outcome) error {
		err := seal(o)
		w.tracer.with(func(calls map[bailey.ReceiptID]*traced) {
			if c := calls[i.Receipt]; err == nil && c != nil {
				c.status, c.hooks = o.Status, o.Hooks
				return
			}
			delete(calls, i.Receipt) // without a durable outcome no line is written
		})
		return err
	}, nil
}

func (t *Tracer) with(do func(map[bailey.ReceiptID]*traced)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	do(t.calls)
}

// Step records a stage of a call. After the last stage, the outcome, it writes the line.
func (t *Tracer) Step(s gate.Step) {
	if t == nil {
		return
	}
	t.mu.Lock()
	c := t.calls[s.Receipt]
	if c != nil {
		c.steps = append(c.steps, s)
		if c.status == "" {
			c = nil
		} else {
			delete(t.calls, s.Receipt)
		}
	}
	t.mu.Unlock()
	if c == nil {
		return
	}
	line, err := json.Marshal(c.spans())
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if err != nil {
		t.log.Warn("a trace is lost", "receipt", s.Receipt, "err", err)
	}
}

// Names and types follow the JSON encoding of opentelemetry-proto: ids are hexadecimal, 64-bit integers are strings,
// enums are numbers.
type (
	spanLine struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	scope struct {
		Name string `json:"name"`
	}
	span struct {
		TraceID      string      `json:"traceId"`
		SpanID       string      `json:"spanId"`
		ParentSpanID string      `json:"parentSpanId,omitempty"`
		Name         string      `json:"name"`
		Kind         int         `json:"kind"`
		Start        string      `json:"startTimeUnixNano"`
		End          string      `json:"endTimeUnixNano"`
		Attributes   []attribute `json:"attributes,omitempty"`
		Status       spanStatus  `json:"status"`
	}
	spanStatus struct {
		Code int `json:"code,omitempty"`
	}
	attribute struct {
		Key   string         `json:"key"`
		Value attributeValue `json:"value"`
	}
	attributeValue struct {
		String string `json:"stringValue"`
	}
)

const (
	spanInternal = 1 // SPAN_KIND_INTERNAL
	spanServer   = 2 // SPAN_KIND_SERVER
	spanOK       = 1 // STATUS_CODE_OK
	spanError    = 2 // STATUS_CODE_ERROR
)

func (c *traced) spans() spanLine {
	trace, root := random(16), random(8)
	last := c.steps[len(c.steps)-1]
	code := spanError
	if c.status == bailey.OK {
		code = spanOK
	}
	spans := []span{{TraceID: trace, SpanID: root, Name: "call", Kind: spanServer, Start: nanos(c.intent.StartedAt), End: nanos(last.Start.Add(last.Took)),
		Status: spanStatus{code}, Attributes: []attribute{
			{"bailey.capability", attributeValue{string(c.intent.Capability)}},
			{"bailey.receipt", attributeValue{string(c.intent.Receipt)}},
			{"bailey.status", attributeValue{string(c.status)}},
		}}}
	for _, s := range c.steps {
		spans = append(spans, span{TraceID: trace, SpanID: random(8), ParentSpanID: root, Name: s.Stage, Kind: spanInternal,
			Start: nanos(s.Start), End: nanos(s.Start.Add(s.Took)), Attributes: c.asked(s.Stage)})
	}
	return spanLine{[]resourceSpans{{
		Resource:   resource{[]attribute{{"service.name", attributeValue{"bailey"}}}},
		ScopeSpans: []scopeSpans{{Scope: scope{"bailey/gate"}, Spans: spans}},
	}}}
}

// asked returns an attribute per hook that the stage asked: its index in hooks.json, status, effect and duration.
func (c *traced) asked(stage string) (list []attribute) {
	for _, h := range c.hooks {
		if stage == map[string]string{"PreToolUse": "pre hooks", "PostToolUse": "post hooks"}[h.Event] {
			list = append(list, attribute{"bailey.hook." + strconv.Itoa(h.Hook), attributeValue{h.Status + " " + h.Effect + " " + strconv.FormatInt(h.Millis, 10) + " ms"}})
		}
	}
	return list
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func random(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand); an id of zeros would be invalid, but does not occur
	return hex.EncodeToString(b)
}
