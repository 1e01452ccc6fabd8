package pack

import (
	"errors"
	"testing"
	"time"

	"bailey"
)

// TestWithTimeout checks that a call can shorten the time limit of a capability, but not exceed it.
func TestWithTimeout(t *testing.T) {
	for _, c := range []struct {
		manifest, call, want time.Duration // want is -1 for a refusal
	}{
		{time.Minute, 0, time.Minute}, {time.Minute, time.Second, time.Second}, {time.Minute, time.Minute, time.Minute},
		{time.Minute, time.Minute + 1, -1}, {time.Minute, -1, -1}, {time.Minute, 1, -1},
		{0, 0, 0}, {0, bailey.DefaultTimeout, bailey.DefaultTimeout}, {0, bailey.DefaultTimeout + 1, -1},
	} {
		m := &Capability{ID: "demo.look", Timeout: c.manifest, Digest: "x"}
		got, err := m.WithTimeout(c.call)
		switch {
		case c.want < 0 && (!errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" || got != m):
			t.Errorf("%v: %v, %v", c, got.Timeout, err)
		case c.want >= 0 && (err != nil || got.Timeout != c.want || got.Digest != "x" || got.Job(nil, nil).Timeout != c.want || m.Timeout != c.manifest):
			t.Errorf("%v: %v, %v", c, got.Timeout, err)
		}
	}
}
