package cli

import (
	"errors"
	"testing"
	"time"

	"bailey"
)

func TestMoment(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, zone)
	for text, want := range map[string]time.Time{
		"":                                    {},
		"7d":                                  now.AddDate(0, 0, -7),
		"2w":                                  now.AddDate(0, 0, -14),
		"36h":                                 now.Add(-36 * time.Hour),
		"90m":                                 now.Add(-90 * time.Minute),
		"1d12h":                               now.Add(-36 * time.Hour),
		"1w1d1h1m1s":                          now.Add(-(8*24+1)*time.Hour - time.Minute - time.Second),
		"0s":                                  now,
		"2026-11-03":                          time.Date(2026, 11, 3, 0, 0, 0, 0, zone),
		"2026-11-03T09:00:00Z":                time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC),
		"2026-11-03T09:00:00.123456789+02:00": time.Date(2026, 11, 3, 7, 0, 0, 123456789, time.UTC),
	} {
		got, err := parseTime("--since", text, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{" ", "7", "d", "7x", "-7d", "+7d", "7 d", "1h1d", "1d1d", "7d ", "1.5h", "99999999999999999999d", "2147483647w", "2026-13-01", "2026-11-03T09:00:00", "now", "７d"} {
		if got, err := parseTime("--since", text, now); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// FuzzSpan checks that a span is never negative. If time.ParseDuration supports the units, it must return the same
// value.
func FuzzSpan(f *testing.F) {
	for _, text := range []string{"7d", "1w2d3h4m5s", "90m", "2147483647h", "1h1h", "h", "15250w", "0w0s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := parseDuration(text)
		if got < 0 || !ok && got != 0 {
			t.Fatalf("%q: %v %v", text, got, ok)
		}
		if want, err := time.ParseDuration(text); ok && err == nil && got != want {
			t.Fatalf("%q: %v, want %v", text, got, want)
		}
	})
}
