package audit

import (
	"bytes"
	"strings"
	"testing"
)

// TestKeysNameTheirLedger checks that the verification fails if a given key is not one of this ledger, with or without
// a checkpoint.
func TestKeysNameTheirLedger(t *testing.T) {
	b, other, bare := day(t, 1), day(t, 2), newBook(t, 1)
	bare.call("r-1")
	b.verify(Check{Trust: b.trust(1)}, "")
	b.verify(Check{Trust: other.trust(1)}, Replaced)
	b.verify(Check{Trust: Trust{Keys: []Key{b.key(1), other.key(1)}}}, Replaced)
	b.verify(Check{Trust: other.trust(1), Seen: [][]byte{b.sign(4, 1)}}, Replaced)
	b.verify(Check{Trust: b.trust(2)}, Rekeyed)
	b.verify(Check{Trust: b.trust(1, 2), Seen: [][]byte{b.sign(4, 1)}}, Rekeyed)
	// a ledger's own key proves nothing about it
	b.verify(Check{Shown: b.trust(2).Keys, Own: true, Newest: b.sign(4, 1)}, "")
	// it announces no key: it was cut before that, or it is another ledger
	bare.verify(Check{Trust: bare.trust(7)}, Rekeyed)
	bare.verify(Check{Trust: other.trust(1)}, Replaced)
	torn := day(t, 1)
	torn.segments[1] = torn.segments[1][:len(torn.segments[1])-3]
	if r := torn.verify(Check{Trust: other.trust(1)}, Replaced); r.Also == nil || r.Also.Reason != Torn {
		t.Errorf("%+v", r.Also)
	}
}

// TestStrangeCheckpoints checks that the error says which checkpoint is refused and why, so that the user can find the
// right one.
func TestStrangeCheckpoints(t *testing.T) {
	b, other := day(t, 1), day(t, 2)
	b.change(1, 2) // entry 12
	b.add("note", "{}")
	early, late := b.sign(5, 1), b.sign(12, 2)
	edit := func(old, new string) []byte { return bytes.Replace(late, []byte(old), []byte(new), 1) }
	for name, c := range map[string]struct {
		check  Check
		reason Reason
		words  string
	}{
		"no key":                 {Check{Seen: [][]byte{late}}, Unsigned, "no key was given, and it is signed by " + b.name + "+"},
		"a later key than given": {Check{Seen: [][]byte{b.sign(5, 1)}, Trust: b.trust(2)}, Unsigned, "the ledger announces that key in entry 2"},
		"nobody's":               {Check{Seen: [][]byte{b.sign(5, 9)}, Trust: b.trust(1)}, Unsigned, "it is signed by " + b.name + "+"},
		"another log's":          {Check{Seen: [][]byte{other.sign(5, 1)}, Trust: b.trust(1)}, Replaced, "the checkpoint is of " + other.name},
		"a digit":                {Check{Seen: [][]byte{edit("\n12\n", "\n11\n")}, Trust: b.trust(1)}, Unsigned, "the checkpoint was changed, or another key of the same name"},
		"no newline":             {Check{Seen: [][]byte{late[:len(late)-1]}, Trust: b.trust(1)}, Unsigned, "line 5 does not end with a newline"},
		"CR LF":                  {Check{Seen: [][]byte{bytes.ReplaceAll(late, []byte("\n"), []byte("\r\n"))}, Trust: b.trust(1)}, Unsigned, "line 1 ends in CR LF"},
		"empty":                  {Check{Seen: [][]byte{{}}, Trust: b.trust(1)}, Unsigned, "it is empty"},
		"rubbish":                {Check{Seen: [][]byte{[]byte("two words\n")}, Trust: b.trust(1)}, Unsigned, "line 1 is not the name of a log"},
		"no number":              {Check{Seen: [][]byte{edit("\n12\n", "\n012\n")}, Trust: b.trust(1)}, Unsigned, "line 2 is not a number"},
		"no root":                {Check{Seen: [][]byte{edit("=\n\n", "\n\n")}, Trust: b.trust(1)}, Unsigned, "line 3 is not 32 bytes"},
		"no empty line":          {Check{Seen: [][]byte{edit("\n\n", "\n")}, Trust: b.trust(1)}, Unsigned, "line 4 is not empty"},
		"no signature":           {Check{Seen: [][]byte{edit("— ", "- ")}, Trust: b.trust(1)}, Unsigned, "line 5 is not a signature"},
		"text alone":             {Check{Seen: [][]byte{[]byte(b.roots[12].Text() + "\n")}, Trust: b.trust(1)}, Unsigned, "ends after line 4, before any signature"},
		"no UTF-8":               {Check{Seen: [][]byte{edit("bailey", "\xff")}, Trust: b.trust(1)}, Unsigned, "not UTF-8"},
		"two witnesses wanted":   {Check{Seen: [][]byte{late}, Trust: Trust{b.trust(1).Keys, []Key{b.witness(1), b.witness(2)}, 2}}, Unwitnessed, "0 of the 2 named witnesses"},
	} {
		c.check.Called = []string{"own", "morning"}
		r := b.verify(c.check, c.reason)
		if c.reason != Replaced && r.FirstBad.Entry != 0 || r.FirstBad.Checkpoint != "morning" || !strings.Contains(r.FirstBad.Error(), ": morning: ") || !strings.Contains(r.FirstBad.Detail, c.words) {
			t.Errorf("%s: %v, want %q", name, r.FirstBad, c.words)
		}
	}
	cut := day(t, 1) // It ends before the second key. The home has that key and the newest checkpoint.
	r := cut.verify(Check{Trust: b.trust(1), Shown: b.trust(2).Keys, Newest: late, Seen: [][]byte{early}, Called: []string{"own", "morning"}}, Truncated)
	if r.FirstBad.Checkpoint != "own" {
		t.Errorf("%+v", r.FirstBad)
	}
	r = cut.verify(Check{Trust: b.trust(1), Newest: late}, Unsigned)
	if !strings.Contains(r.FirstBad.Detail, "it is of 12 entries, but 11 are here") {
		t.Error(r.FirstBad)
	}
	same := b.verify(Check{Trust: b.trust(1), Newest: late, Seen: [][]byte{late, early}, Called: []string{"own", "evening", "morning"}}, "")
	said := strings.Join(same.Proves(), "\n")
	if len(same.Proves()) != 3 || !strings.Contains(said, "(checkpoint own and evening)") || !strings.Contains(said, "(checkpoint morning)") {
		t.Error(said)
	}
}
