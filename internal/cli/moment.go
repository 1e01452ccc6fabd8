package cli

import (
	"fmt"
	"math"
	"time"

	"bailey"
)

// parseTime parses a time in one of these forms: an age in units from weeks to seconds (for example 7d, 1d12h, 90m), a
// date, which means midnight in the local time zone, or an RFC 3339 time. "" is the zero time.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t, nil
	}
	if ago, ok := parseDuration(text); ok {
		return now.Add(-ago), nil
	}
	return time.Time{}, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s %q is neither a duration nor a time", flag, text),
		Hint: "as in " + flag + " 7d, 36h, 1d12h, 2026-11-03 or 2026-11-03T09:00:00Z"}
}

// units in descending order. Each unit may occur once, and smaller units must follow larger ones.
const units = "wdhms"

// parseDuration parses an age: numbers with units, larger units first. A day is 24 hours.
func parseDuration(text string) (sum time.Duration, ok bool) {
	lengths := [...]time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}
	for from := 0; text != ""; {
		n, digits := int64(0), 0
		for ; digits < len(text) && text[digits] >= '0' && text[digits] <= '9'; digits++ {
			if n = 10*n + int64(text[digits]-'0'); n > math.MaxInt32 {
				return 0, false
			}
		}
		if digits == 0 || digits == len(text) {
			return 0, false
		}
		for from < len(units) && units[from] != text[digits] {
			from++
		}
		if from == len(units) || n > int64((math.MaxInt64-sum)/lengths[from]) {
			return 0, false
		}
		sum += time.Duration(n) * lengths[from]
		from++
		text = text[digits+1:]
		ok = true
	}
	return sum, ok
}
