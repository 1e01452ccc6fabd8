package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/gate"
)

// otlp has the names of opentelemetry-proto's JSON encoding and no others. A field with another name is an error.
type otlp struct {
	ResourceSpans []struct {
		Resource   struct{ Attributes []otlpAttribute }
		ScopeSpans []struct {
			Scope struct{ Name string }
			Spans []struct {
				TraceID, SpanID, ParentSpanID, Name string
				Kind                                int
				StartTimeUnixNano, EndTimeUnixNano  string
				Attributes                          []otlpAttribute
				Status                              struct{ Code int }
			}
		}
	}
}

type otlpAttribute struct {
	Key   string
	Value struct{ StringValue string }
}

// TestTracer checks that there is one line of OTLP for each durable call, with its stages below it, and without the
// call's inputs.
func TestTracer(t *testing.T) {
	var out bytes.Buffer
	tr := NewTracer(&out, slog.New(slog.DiscardHandler))
	began := time.Unix(1_800_000_000, 5).UTC()
	walk := func(id bailey.ReceiptID, status bailey.Status, inner gate.Ledger) {
		tr.Step(gate.Step{Receipt: "r-other", Stage: "intent"}) // a call whose intent was not durable
		seal, err := tr.Ledger(inner).Open(context.Background(), bailey.Intent{Receipt: id, Capability: "system.echo", StartedAt: began,
			Input: []byte(`{"message":"secret"}`), Client: "secret", Dir: "/secret"})
		tr.Step(gate.Step{Receipt: id, Stage: "intent", Start: began, Took: time.Millisecond})
		if err == nil {
			tr.Step(gate.Step{Receipt: id, Stage: "run", Start: began.Add(time.Millisecond), Took: time.Second})
			tr.Step(gate.Step{Receipt: id, Stage: "post hooks", Start: began.Add(time.Second), Took: time.Second})
			seal(bailey.Outcome{Status: status, Reason: "secret", Hooks: []bailey.AskedHook{
				{Event: "PreToolUse", Hook: 1, Status: "Disabled", Effect: "kept"}, {Event: "PostToolUse", Hook: 2, Program: "secret", Status: "FullyEnforced", Effect: "changed", Reason: "secret", Millis: 7}}})
		}
		tr.Step(gate.Step{Receipt: id, Stage: "outcome", Start: began.Add(2 * time.Second), Took: time.Millisecond})
	}
	walk("r-1", bailey.OK, sealer{})
	walk("r-2", bailey.Refused, sealer{})
	walk("r-3", bailey.OK, sealer{open: errors.New("full")})
	walk("r-4", bailey.OK, sealer{seal: errors.New("full")})
	if len(tr.calls) != 0 {
		t.Errorf("%d calls are kept", len(tr.calls))
	}
	if strings.Contains(out.String(), "secret") {
		t.Errorf("%s", out.String())
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines: %s", len(lines), out.String())
	}
	for i, want := range []struct {
		receipt, status string
		code            int
	}{{"r-1", "ok", 1}, {"r-2", "denied", 2}} {
		dec := json.NewDecoder(strings.NewReader(lines[i]))
		dec.DisallowUnknownFields()
		var l otlp
		if err := dec.Decode(&l); err != nil || len(l.ResourceSpans) != 1 || len(l.ResourceSpans[0].ScopeSpans) != 1 {
			t.Fatalf("%s: %v", lines[i], err)
		}
		if a := l.ResourceSpans[0].Resource.Attributes; len(a) != 1 || a[0].Key != "service.name" || a[0].Value.StringValue != "bailey" {
			t.Errorf("%+v", a)
		}
		var names []string
		for n, s := range l.ResourceSpans[0].ScopeSpans[0].Spans {
			root := l.ResourceSpans[0].ScopeSpans[0].Spans[0]
			names = append(names, s.Name)
			if hooks := len(s.Attributes) == 1 && s.Attributes[0].Key == "bailey.hook.2" && s.Attributes[0].Value.StringValue == "FullyEnforced changed 7 ms"; hooks != (s.Name == "post hooks") {
				t.Errorf("%s has %+v", s.Name, s.Attributes)
			}
			if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(s.TraceID) || !regexp.MustCompile(`^[0-9a-f]{16}$`).MatchString(s.SpanID) || s.TraceID != root.TraceID {
				t.Errorf("%+v", s)
			}
			if n > 0 != (s.ParentSpanID == root.SpanID) || n > 0 != (s.SpanID != root.SpanID) || n > 0 != (s.Kind == 1) {
				t.Errorf("%+v below %+v", s, root)
			}
			start, err := strconv.ParseInt(s.StartTimeUnixNano, 10, 64)
			end, err2 := strconv.ParseInt(s.EndTimeUnixNano, 10, 64)
			if err != nil || err2 != nil || start < began.UnixNano() || end < start {
				t.Errorf("%+v: %v %v", s, err, err2)
			}
		}
		root := l.ResourceSpans[0].ScopeSpans[0].Spans[0]
		var values []string
		for _, a := range root.Attributes {
			values = append(values, a.Key+"="+a.Value.StringValue)
		}
		if !slices.Equal(names, []string{"call", "intent", "run", "post hooks", "outcome"}) || root.Status.Code != want.code ||
			!slices.Equal(values, []string{"bailey.capability=system.echo", "bailey.receipt=" + want.receipt, "bailey.status=" + want.status}) {
			t.Errorf("%v %v %+v", names, values, root)
		}
	}
}

// TestTraceIsNoReceipt checks that a call continues if its line cannot be written, and that a nil tracer traces
// nothing.
func TestTraceIsNoReceipt(t *testing.T) {
	broken, w := io.Pipe()
	broken.Close()
	tr := NewTracer(w, slog.New(slog.DiscardHandler))
	for _, tr := range []*Tracer{tr, nil} {
		seal, err := tr.Ledger(sealer{}).Open(context.Background(), bailey.Intent{Receipt: "r-1"})
		if err != nil || seal(bailey.Outcome{Status: bailey.OK}) != nil {
			t.Error(err)
		}
		tr.Step(gate.Step{Receipt: "r-1", Stage: "outcome"})
	}
}
