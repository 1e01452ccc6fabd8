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
	out := newMCPRows(times)
	if out.Sum != 1000 || len(out.Rows) != 4 {
		t.Fatalf("%+v", out)
	}
	for _, r := range out.Rows[:3] {
		if r.PerSum != nil || r.AtMost != nil || r.PerBare != nil {
			t.Errorf("%+v", r)
		}
	}
	if c := out.Rows[3]; c.Name != "call" || *c.PerSum != 1.5 || *c.AtMost != 1.2 {
		t.Errorf("%+v", c)
	}
}
