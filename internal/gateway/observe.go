package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/localapi/apitype"
)

// Live holds the running calls (between intent and outcome) and the connected sessions, for `bailey status`. It decides
// nothing. Its zero value is ready.
type Live struct {
	mu       sync.Mutex // guards the maps; not held during writes
	calls    map[bailey.ReceiptID]apitype.LiveCall
	sessions map[bailey.SessionID]apitype.LiveSession
	conns    map[bailey.SessionID]int
}

// Ledger returns a ledger that records each durable intent of inner until its outcome is written or the write has
// failed. It wraps the ledger because the receipt id is known there for every front end, so a live call is one that the
// ledger has open.
func (l *Live) Ledger(inner gate.Ledger) gate.Ledger { return liveLedger{l, inner} }

type liveLedger struct {
	live  *Live
	inner gate.Ledger
}

func (w liveLedger) Open(ctx context.Context, i bailey.Intent) (func(bailey.Outcome) error, error) {
	seal, err := w.inner.Open(ctx, i)
	if err != nil {
		return seal, err
	}
	w.live.addCall(i)
	return func(o bailey.Outcome) error {
		defer w.live.removeCall(i.Receipt)
		return seal(o)
	}, nil
}

func (l *Live) addCall(i bailey.Intent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = map[bailey.ReceiptID]apitype.LiveCall{}
	}
	l.calls[i.Receipt] = apitype.LiveCall{Receipt: i.Receipt, Capability: i.Capability, Agent: i.Agent,
		Session: i.Session, Door: i.Door, Since: i.StartedAt}
	if s, ok := l.sessions[i.Session]; ok && i.Client != "" {
		s.Client = i.Client
		l.sessions[i.Session] = s
	}
}

func (l *Live) removeCall(id bailey.ReceiptID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, id)
}

// addSession records a session until disconnect is called.
func (l *Live) addSession(from bailey.Call) (disconnect func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		l.sessions, l.conns = map[bailey.SessionID]apitype.LiveSession{}, map[bailey.SessionID]int{}
	}
	id := from.Session.ID
	l.conns[id]++
	l.sessions[id] = apitype.LiveSession{ID: id, Door: from.Door, Agent: from.Principal.Agent, Dir: from.Dir,
		Since: time.Now().UTC()}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.conns[id]--; l.conns[id] == 0 {
			delete(l.sessions, id)
			delete(l.conns, id)
		}
	}
}

// Now returns the running calls and the connected sessions, oldest first. The slices are never nil.
func (l *Live) Now() ([]apitype.LiveCall, []apitype.LiveSession) {
	l.mu.Lock()
	defer l.mu.Unlock()
	calls := slices.AppendSeq([]apitype.LiveCall{}, maps.Values(l.calls))
	sessions := slices.AppendSeq([]apitype.LiveSession{}, maps.Values(l.sessions))
	slices.SortFunc(calls, func(a, b apitype.LiveCall) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Receipt, b.Receipt))
	})
	slices.SortFunc(sessions, func(a, b apitype.LiveSession) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
	return calls, sessions
}

// Meter counts calls, stages and redactions for `bailey metrics`. It decides nothing and stores no name that a caller
// chose. Its zero value is ready.
type Meter struct {
	mu         sync.Mutex // guards all fields; not held during writes
	calls      map[callKind]uint64
	stages     map[string]*histogram
	redactions map[string]uint64 // by category
}

// callKind is the key under which calls are counted.
type callKind struct {
	status bailey.Status
	class  string // side effect of the capability; "unknown" if it is not in the catalog
}

// Gauges are values that are read when metrics are requested.
type Gauges struct {
	Entries, Bytes, Segments uint64 // durable parts of the ledger
	Open, Sessions           int
	Suppressed               uint64
}

// latencies are the upper bounds of the histogram buckets in seconds, from a policy stage to a tool that builds.
var latencies = [...]float64{.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5,
	10, 60}

type histogram struct {
	counts [len(latencies) + 1]uint64 // the last bucket is above all bounds
	sum    float64
}

// Ledger returns a ledger that counts each durable outcome of inner. class returns the class of a capability.
func (m *Meter) Ledger(inner gate.Ledger, class func(bailey.CapabilityID) string) gate.Ledger {
	return meterLedger{m, inner, class}
}

type meterLedger struct {
	meter *Meter
	inner gate.Ledger
	class func(bailey.CapabilityID) string
}

func (c meterLedger) Open(ctx context.Context, i bailey.Intent) (func(bailey.Outcome) error, error) {
	seal, err := c.inner.Open(ctx, i)
	if err != nil {
		return seal, err
	}
	return func(o bailey.Outcome) error {
		err := seal(o)
		if err == nil {
			c.meter.countCall(callKind{o.Status, c.class(i.Capability)})
		}
		return err
	}, nil
}

func (m *Meter) countCall(k callKind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		m.calls = map[callKind]uint64{}
	}
	m.calls[k]++
}

// Redacted counts a token in the output of a tool.
func (m *Meter) Redacted(category string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.redactions == nil {
		m.redactions = map[string]uint64{}
	}
	m.redactions[category]++
}

// Stage records the duration of a stage of a call.
func (m *Meter) Stage(stage string, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stages == nil {
		m.stages = map[string]*histogram{}
	}
	h := m.stages[stage]
	if h == nil {
		h = &histogram{}
		m.stages[stage] = h
	}
	s := took.Seconds()
	i, _ := slices.BinarySearch(latencies[:], s) // le: a bucket includes its bound
	h.counts[i]++
	h.sum += s
}

// Write writes the metrics in the Prometheus text exposition format, version 0.0.4.
func (m *Meter) Write(w io.Writer, g Gauges) error {
	var b strings.Builder
	m.writeCounters(&b)
	for _, v := range []struct {
		name, kind, help string
		value            uint64
	}{
		{"bailey_suppressed_total", "counter",
			"Calls refused before the gate since the gateway started for their principal's rate.", g.Suppressed},
		{"bailey_ledger_entries", "gauge", "Durable entries of the ledger.", g.Entries},
		{"bailey_ledger_bytes", "gauge", "Durable bytes of the ledger's segments.", g.Bytes},
		{"bailey_ledger_segments", "gauge", "Segments of the ledger.", g.Segments},
		{"bailey_calls_open", "gauge", "Calls between their intent and their outcome.", uint64(g.Open)},
		{"bailey_sessions", "gauge", "Connected sessions.", uint64(g.Sessions)},
	} {
		writeFamily(&b, v.name, v.kind, v.help)
		fmt.Fprintf(&b, "%s %d\n", v.name, v.value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFamily(b *strings.Builder, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m *Meter) writeCounters(b *strings.Builder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	writeFamily(b, "bailey_calls_total", "counter", "Calls with a durable outcome since the gateway started.")
	kinds := slices.SortedFunc(maps.Keys(m.calls), func(x, y callKind) int {
		return cmp.Or(cmp.Compare(x.status, y.status), cmp.Compare(x.class, y.class))
	})
	for _, k := range kinds {
		fmt.Fprintf(b, "bailey_calls_total{status=%s,class=%s} %d\n", quoteLabel(string(k.status)), quoteLabel(k.class),
			m.calls[k])
	}
	writeFamily(b, "bailey_redactions_total", "counter",
		"Tokens created in the output of tools since the gateway started.")
	for _, c := range slices.Sorted(maps.Keys(m.redactions)) {
		fmt.Fprintf(b, "bailey_redactions_total{category=%s} %d\n", quoteLabel(c), m.redactions[c])
	}
	writeFamily(b, "bailey_stage_seconds", "histogram", "How long the stages of calls took.")
	for _, stage := range slices.Sorted(maps.Keys(m.stages)) {
		m.stages[stage].writeBuckets(b, quoteLabel(stage))
	}
}

func (h *histogram) writeBuckets(b *strings.Builder, stage string) {
	var n uint64
	for i, bound := range latencies {
		n += h.counts[i]
		fmt.Fprintf(b, "bailey_stage_seconds_bucket{stage=%s,le=\"%g\"} %d\n", stage, bound, n)
	}
	n += h.counts[len(latencies)]
	fmt.Fprintf(b, "bailey_stage_seconds_bucket{stage=%s,le=\"+Inf\"} %d\n", stage, n)
	fmt.Fprintf(b, "bailey_stage_seconds_sum{stage=%s} %g\nbailey_stage_seconds_count{stage=%s} %d\n", stage, h.sum,
		stage, n)
}

// quoteLabel returns a quoted label value. Only backslash, quote and newline are escaped.
func quoteLabel(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\uFFFD")) + `"`
}

// Tracer writes a line for each call with a durable outcome: its span and one span per stage, as OTLP in JSON
// (opentelemetry-proto, trace/v1 and its JSON encoding). The only value that a caller chose is the capability, which is
// redacted in the intent. If a line cannot be written, it is lost, because a trace is not a receipt. A nil Tracer
// writes nothing.
type Tracer struct {
	out io.Writer
	log *slog.Logger

	mu    sync.Mutex
	calls map[bailey.ReceiptID]*tracedCall // guarded by mu
}

// NewTracer returns a Tracer that writes to out, with one Write per line.
func NewTracer(out io.Writer, log *slog.Logger) *Tracer {
	return &Tracer{out: out, log: log, calls: map[bailey.ReceiptID]*tracedCall{}}
}

// tracedCall is a running call.
type tracedCall struct {
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
	return tracerLedger{t, inner}
}

type tracerLedger struct {
	tracer *Tracer
	inner  gate.Ledger
}

func (w tracerLedger) Open(ctx context.Context, i bailey.Intent) (func(bailey.Outcome) error, error) {
	seal, err := w.inner.Open(ctx, i)
	if err != nil {
		return seal, err
	}
	w.tracer.withCalls(func(calls map[bailey.ReceiptID]*tracedCall) { calls[i.Receipt] = &tracedCall{intent: i} })
	return func(o bailey.Outcome) error {
		err := seal(o)
		w.tracer.withCalls(func(calls map[bailey.ReceiptID]*tracedCall) {
			if c := calls[i.Receipt]; err == nil && c != nil {
				c.status, c.hooks = o.Status, o.Hooks
				return
			}
			delete(calls, i.Receipt) // without a durable outcome no line is written
		})
		return err
	}, nil
}

func (t *Tracer) withCalls(do func(map[bailey.ReceiptID]*tracedCall)) {
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
	line, err := json.Marshal(c.buildSpans())
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if err != nil {
		t.log.Warn("cannot send a trace", "receipt", s.Receipt, "err", err)
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

func (c *tracedCall) buildSpans() spanLine {
	trace, root := randomHex(16), randomHex(8)
	last := c.steps[len(c.steps)-1]
	code := spanError
	if c.status == bailey.OK {
		code = spanOK
	}
	spans := []span{{TraceID: trace, SpanID: root, Name: "call", Kind: spanServer, Start: unixNanos(c.intent.StartedAt),
		End:    unixNanos(last.Start.Add(last.Took)),
		Status: spanStatus{code}, Attributes: []attribute{
			{"bailey.capability", attributeValue{string(c.intent.Capability)}},
			{"bailey.receipt", attributeValue{string(c.intent.Receipt)}},
			{"bailey.status", attributeValue{string(c.status)}},
		}}}
	for _, s := range c.steps {
		spans = append(spans, span{TraceID: trace, SpanID: randomHex(8), ParentSpanID: root, Name: s.Stage, Kind: spanInternal,
			Start: unixNanos(s.Start), End: unixNanos(s.Start.Add(s.Took)), Attributes: c.hookAttributes(s.Stage)})
	}
	return spanLine{[]resourceSpans{{
		Resource:   resource{[]attribute{{"service.name", attributeValue{"bailey"}}}},
		ScopeSpans: []scopeSpans{{Scope: scope{"bailey/gate"}, Spans: spans}},
	}}}
}

// hookAttributes returns an attribute per hook that the stage asked: its index in hooks.json, status, effect and duration.
func (c *tracedCall) hookAttributes(stage string) (list []attribute) {
	for _, h := range c.hooks {
		if stage == map[string]string{"PreToolUse": "pre hooks", "PostToolUse": "post hooks"}[h.Event] {
			list = append(list,
				attribute{"bailey.hook." + strconv.Itoa(h.Hook),
					attributeValue{h.Status + " " + h.Effect + " " + strconv.FormatInt(h.Millis, 10) + " ms"}})
		}
	}
	return list
}

func unixNanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails (crypto/rand); an id of zeros would be invalid, but does not occur
	return hex.EncodeToString(b)
}
