package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
)

type sealer struct{ open, seal error }

func (s sealer) Open(context.Context, bailey.Intent) (func(bailey.Outcome) error, error) {
	return func(bailey.Outcome) error { return s.seal }, s.open
}

var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"(?:,|))*)\})? (\S+)$`)

// exposition parses Prometheus' text format strictly. Each family must appear once and be described before its samples,
// no sample may appear twice, each value must be a number, and the buckets of a histogram must grow up to +Inf, which
// equals the count.
func exposition(t *testing.T, text string) map[string]float64 {
	t.Helper()
	values, types, last := map[string]float64{}, map[string]string{}, ""
	if !strings.HasSuffix(text, "\n") {
		t.Error("the last line does not end")
	}
	var below float64
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			last, _, _ = strings.Cut(rest, " ")
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			if types[name] != "" || name != last || kind != "counter" && kind != "gauge" && kind != "histogram" {
				t.Errorf("%q", line)
			}
			types[name] = kind
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("no sample: %q", line)
			continue
		}
		family := m[1]
		if types[last] == "histogram" {
			for _, end := range []string{"_bucket", "_sum", "_count"} {
				family = strings.TrimSuffix(family, end)
			}
		}
		v, err := strconv.ParseFloat(m[3], 64)
		id := m[1] + "{" + m[2] + "}"
		if _, twice := values[id]; twice || err != nil || family != last || types[family] == "counter" && !strings.HasSuffix(family, "_total") {
			t.Errorf("%q: %v", line, err)
		}
		values[id] = v
		switch {
		case strings.HasSuffix(m[1], "_bucket") && !strings.Contains(m[2], `le="+Inf"`) && v < below:
			t.Errorf("a bucket shrinks: %q", line)
		case strings.HasSuffix(m[1], "_count") && v != below:
			t.Errorf("the count is not the last bucket: %q", line)
		}
		if below = v; strings.HasSuffix(m[1], "_sum") {
			below = values[family+"_bucket{"+m[2]+`,le="+Inf"}`]
		}
		if strings.HasSuffix(m[1], "_count") {
			below = 0
		}
	}
	return values
}

// TestMeter checks that the text contains all counts and that a strict parser accepts it, even if the names contain
// special characters.
func TestMeter(t *testing.T) {
	var m Meter
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			l := m.Ledger(sealer{}, func(id bailey.CapabilityID) string { return string(id) })
			for _, status := range []bailey.Status{bailey.OK, bailey.Refused, bailey.Pending, bailey.Failed, bailey.Killed} {
				seal, err := l.Open(context.Background(), bailey.Intent{Capability: "read\"On\\ly\n"})
				if err != nil || seal(bailey.Outcome{Status: status}) != nil {
					t.Error(err)
				}
			}
			for _, d := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, time.Hour} {
				m.Stage("run", d)
			}
			m.Redacted("JWT")
		})
	}
	all.Wait()
	for _, s := range []sealer{{open: errors.New("full")}, {seal: errors.New("full")}} { // no outcome is durable
		if seal, err := m.Ledger(s, func(bailey.CapabilityID) string { return "none" }).Open(context.Background(), bailey.Intent{}); err == nil {
			seal(bailey.Outcome{Status: bailey.OK})
		}
	}
	var out strings.Builder
	if err := m.Write(&out, Gauges{Entries: 7, Bytes: 8, Segments: 1, Open: 2, Sessions: 3, Suppressed: 4}); err != nil {
		t.Fatal(err)
	}
	got := exposition(t, out.String())
	want := map[string]float64{
		`bailey_redactions_total{category="JWT"}`: 8, "bailey_ledger_entries{}": 7, "bailey_ledger_bytes{}": 8, "bailey_ledger_segments{}": 1,
		"bailey_calls_open{}": 2, "bailey_sessions{}": 3, "bailey_suppressed_total{}": 4,
		`bailey_stage_seconds_bucket{stage="run",le="0.001"}`: 16, `bailey_stage_seconds_bucket{stage="run",le="60"}`: 24,
		`bailey_stage_seconds_bucket{stage="run",le="+Inf"}`: 32, `bailey_stage_seconds_count{stage="run"}`: 32,
	}
	for _, status := range []bailey.Status{bailey.OK, bailey.Refused, bailey.Pending, bailey.Failed, bailey.Killed} {
		want[fmt.Sprintf(`bailey_calls_total{status="%s",class="read\"On\\ly\n"}`, status)] = 8
	}
	for id, v := range want {
		if got[id] != v {
			t.Errorf("%s is %g, want %g", id, got[id], v)
		}
	}
	for id := range got {
		if strings.HasPrefix(id, "bailey_calls_total") && want[id] == 0 {
			t.Errorf("%s is counted", id)
		}
	}
}
