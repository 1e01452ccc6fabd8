package bench

import (
	"testing"
	"time"
)

// TestMCPRows checks that only the complete call is compared with the sum of its necessary parts.
func TestMCPRows(t *testing.T) {
	times := map[string][]time.Duration{}
	for name, us := range map[string]int{"sdk-echo": 100, "fdatasync": 200, "jail-warm": 300, "call": 1500} {
		times[name] = []time.Duration{time.Duration(us) * time.Microsecond}
	}
	rows := newMCPRows(times)
	if len(rows) != 5 || rows[3].Name != "sum" || rows[3].P50 != 1000 {
		t.Fatalf("%+v", rows)
	}
	for _, r := range rows[:4] {
		if r.Ratio != 0 || r.Required != 0 || r.Of != "" {
			t.Errorf("%+v", r)
		}
	}
	if c := rows[4]; c.Name != "call" || c.Ratio != 1.5 || c.Of != "sum" || c.Required != 1.2 {
		t.Errorf("%+v", c)
	}
}
