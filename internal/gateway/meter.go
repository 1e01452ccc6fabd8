package gateway

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/gate"
)

// Meter counts calls, stages and redactions for `bailey metrics`. It decides nothing and stores no name that a caller
// chose. Its zero value is ready.
type Meter struct {
	mu         sync.Mutex // guards all fields; not held during writes
	calls      map[kind]uint64
	stages     map[string]*histogram
	redactions map[string]uint64 // by category
}

// kind is the key under which calls are counted.
type kind struct {
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
var latencies = [...]float64{.00001, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60}

type histogram struct {
	counts [len(latencies) + 1]uint64 // the last bucket is above all bounds
	sum    float64
}

// Ledger returns a ledger that counts each durable outcome of inner. class returns the class of a capability.
func (m *Meter) Ledger(inner gate.Ledger, class func(bailey.CapabilityID) string) gate.Ledger {
	return counted{m, inner, class}
}

type counted struct {
	meter *Meter
	inner gate.Ledger
	class func(bailey.CapabilityID) string
}

func (c counted) Open(ctx context.Context, i bailey.Intent) (func(bailey.Outcome) error, error) {
	seal, err := c.inner.Open(ctx, i)
	if err != nil {
		return seal, err
	}
	return func(o bailey.Outcome) error {
		err := seal(o)
		if err == nil {
			c.meter.called(kind{o.Status, c.class(i.Capability)})
		}
		return err
	}, nil
}

func (m *Meter) called(k kind) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls == nil {
		m.calls = map[kind]uint64{}
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
	m.counters(&b)
	for _, v := range []struct {
		name, kind, help string
		value            uint64
	}{
		{"bailey_suppressed_total", "counter", "Calls refused before the gate since the gateway started, beyond their principal's rate.", g.Suppressed},
		{"bailey_ledger_entries", "gauge", "Durable entries of the ledger.", g.Entries},
		{"bailey_ledger_bytes", "gauge", "Durable bytes of the ledger's segments.", g.Bytes},
		{"bailey_ledger_segments", "gauge", "Segments of the ledger.", g.Segments},
		{"bailey_calls_open", "gauge", "Calls between their intent and their outcome.", uint64(g.Open)},
		{"bailey_sessions", "gauge", "Connected sessions.", uint64(g.Sessions)},
	} {
		family(&b, v.name, v.kind, v.help)
		fmt.Fprintf(&b, "%s %d\n", v.name, v.value)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func family(b *strings.Builder, name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m *Meter) counters(b *strings.Builder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	family(b, "bailey_calls_total", "counter", "Calls with a durable outcome since the gateway started.")
	kinds := slices.SortedFunc(maps.Keys(m.calls), func(x, y kind) int {
		return cmp.Or(cmp.Compare(x.status, y.status), cmp.Compare(x.class, y.class))
	})
	for _, k := range kinds {
		fmt.Fprintf(b, "bailey_calls_total{status=%s,class=%s} %d\n", label(string(k.status)), label(k.class), m.calls[k])
	}
	family(b, "bailey_redactions_total", "counter", "Tokens made in the output of tools since the gateway started.")
	for _, c := range slices.Sorted(maps.Keys(m.redactions)) {
		fmt.Fprintf(b, "bailey_redactions_total{category=%s} %d\n", label(c), m.redactions[c])
	}
	family(b, "bailey_stage_seconds", "histogram", "How long the stages of calls took.")
	for _, stage := range slices.Sorted(maps.Keys(m.stages)) {
		m.stages[stage].write(b, label(stage))
	}
}

func (h *histogram) write(b *strings.Builder, stage string) {
	var n uint64
	for i, bound := range latencies {
		n += h.counts[i]
		fmt.Fprintf(b, "bailey_stage_seconds_bucket{stage=%s,le=\"%g\"} %d\n", stage, bound, n)
	}
	n += h.counts[len(latencies)]
	fmt.Fprintf(b, "bailey_stage_seconds_bucket{stage=%s,le=\"+Inf\"} %d\n", stage, n)
	fmt.Fprintf(b, "bailey_stage_seconds_sum{stage=%s} %g\nbailey_stage_seconds_count{stage=%s} %d\n", stage, h.sum, stage, n)
}

// label returns a quoted label value. Only backslash, quote and newline are escaped.
func label(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(s, "\uFFFD")) + `"`
}
