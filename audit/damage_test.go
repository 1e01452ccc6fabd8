package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestDamageIsNamed checks that the error describes the damage as precisely as possible. Only a tail without a newline,
// or with a hole, must be reported as torn.
func TestDamageIsNamed(t *testing.T) {
	good := string(chain(t, Entry{Kind: "x", Data: json.RawMessage(`{"a":1}`)}, Entry{Kind: "y", Data: json.RawMessage(`{"b":2}`)},
		Entry{Kind: "z", Data: json.RawMessage(`{"c":3}`)}))
	l := strings.SplitAfter(good, "\n")[:4]
	for name, c := range map[string]struct {
		text   string
		entry  uint64
		reason Reason
		words  string
		tail   bool
	}{
		"CR LF":                {strings.ReplaceAll(good, "\n", "\r\n"), 1, Frame, "CR LF", false},
		"a blank last line":    {good + "\n", 5, Frame, "the line is empty", false},
		"rubbish, whole":       {good + "rubbish\n", 5, Frame, "does not begin with", false},
		"rubbish and a rest":   {good + "rubbish\nrub", 5, Frame, "does not begin with", false},
		"NUL and a newline":    {good + "\x00\x00\n", 5, Frame, "2 of the line's bytes are zero", false},
		"zeros":                {good + strings.Repeat("\x00", 200_000), 5, Torn, "200000 zero bytes", true},
		"a hole":               {good + strings.Repeat("\x00", 4096) + "rest\n", 5, Torn, "4101 bytes follow the last entry, zeros among them", true},
		"half a line":          {good[:len(good)-9], 4, Torn, "has no newline: ", true},
		"no newline":           {good[:len(good)-1], 4, Torn, "has no newline: ", true},
		"rubbish, not whole":   {good + "rub", 5, Torn, "has no newline: 3 bytes", true},
		"rubbish in between":   {l[0] + l[1] + "rubbish\n" + l[2] + l[3], 3, Frame, "does not begin with", false},
		"one taken out":        {l[0] + l[2] + l[3], 2, Chain, "entry 2 was removed", false},
		"two taken out":        {l[0] + l[3], 2, Chain, "entries 2 to 3 were removed", false},
		"two changed places":   {l[0] + l[2] + l[1] + l[3], 2, Chain, "entry 3 is here and entry 2 follows later", false},
		"one stands twice":     {l[0] + l[1] + l[1] + l[2] + l[3], 3, Chain, "entry 2 is repeated", false},
		"a number was changed": {strings.Replace(good, `"seq":2`, `"seq":9`, 1), 2, Chain, "number was changed to 9", false},
		"a value was changed":  {strings.Replace(good, `"a":1`, `"a":2`, 1), 2, Chain, "was changed or moved", false},
	} {
		r, err := Verify(strings.NewReader(c.text))
		do(t, err)
		if b := r.FirstBad; b == nil || b.Entry != c.entry || b.Reason != c.reason || !strings.Contains(b.Detail, c.words) || b.Tail != c.tail {
			t.Errorf("%s: %+v", name, b)
		}
	}
	r, err := Verify(strings.NewReader(good[:len(good)-5]), bytes.NewReader(nil))
	do(t, err)
	if b := r.FirstBad; b.Reason != Frame || b.Tail {
		t.Errorf("half a line before another segment: %+v", b)
	}
}

// TestBadAsJSON checks that unknown values are left out.
func TestBadAsJSON(t *testing.T) {
	for want, b := range map[string]*Bad{
		`{"within":9,"checkpoint":"c","reason":"fork","detail":"d"}`:                 {Within: 9, Checkpoint: "c", Reason: Forked, Detail: "d"},
		`{"segment":1,"entry":1,"offset":0,"reason":"frame","detail":"d"}`:           {Segment: 1, Entry: 1, Reason: Frame, Detail: "d"},
		`{"segment":2,"entry":3,"offset":4,"tail":true,"reason":"torn","detail":""}`: {Segment: 2, Entry: 3, Offset: 4, Tail: true, Reason: Torn},
	} {
		if got, err := json.Marshal(b); err != nil || string(got) != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
