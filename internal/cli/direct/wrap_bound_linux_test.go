package direct

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
)

// TestWrapEventsFit checks that the entries about an agent fit the size limit, whatever file names and texts it
// chooses.
func TestWrapEventsFit(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	const room = audit.MaxLine - 4<<10 // leaves space for the rest of the entry
	fits := func(what string, v any) {
		t.Helper()
		if b, err := json.Marshal(v); err != nil || len(b) > room {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
	}
	var names []string
	for i := range 300000 {
		names = append(names, fmt.Sprint(i)+strings.Repeat("\x01", i%5000/100))
	}
	end := apitype.WrapEnding{Moved: names, Unseen: names, Changed: []string{strings.Repeat("\xff", 1<<20)}}
	end.Bound()
	fits("the end", end)
	if len(end.Moved) == 0 || end.More < 500000 {
		t.Errorf("%d named, %d more", len(end.Moved), end.More)
	}
	r := &refusals{}
	r.addRefusal(apitype.Refusal{Reason: strings.Repeat("\x01", 1<<20)})
	for range 100 {
		r.addRefusal(apitype.Refusal{Target: strings.Repeat("\x01", 4000), Reason: strings.Repeat("<", 4000), Hint: "h"})
	}
	w := apitype.WrapRefusals{}
	w.Lines, w.Untold = r.takeAll()
	if len(w.Lines) == 0 || int64(len(w.Lines))+w.Untold != 101 {
		t.Errorf("%d told, %d untold", len(w.Lines), w.Untold)
	}
	fits("refusals", w)
	w = apitype.WrapRefusals{Lines: []apitype.Refusal{{Reason: "first"}, {Reason: strings.Repeat("\x01", 1<<20)}}}
	w.Bound()
	fits("refusals of another client", w)
	if len(w.Lines) != 2 || w.Lines[0].Reason != "first" {
		t.Errorf("%+v", w)
	}
}

// TestAttackCrowdedRefusals checks that an agent cannot hide a refusal behind many of another kind, neither in the
// current report nor in the remembered state.
func TestAttackCrowdedRefusals(t *testing.T) {
	for many, one := range map[string]string{"call": "egress", "egress": "call"} {
		var known apitype.WrapsKnown
		known.Refuse(apitype.WrapRefusals{Lines: []apitype.Refusal{{Kind: one, Reason: "the first"}}})
		for range 50 {
			r := &refusals{}
			for range 1000 {
				r.addRefusal(apitype.Refusal{Kind: many, Reason: strings.Repeat("x", 1000)})
			}
			r.addRefusal(apitype.Refusal{Kind: one, Reason: "in the crowd"})
			var w apitype.WrapRefusals
			w.Lines, w.Untold = r.takeAll()
			if n := len(w.Lines); n < 2 || w.Lines[n-1].Reason != "in the crowd" || w.Untold != 1001-int64(n) {
				t.Fatalf("%d told, %d untold", n, w.Untold)
			}
			w.Bound()
			known.Refuse(w)
		}
		told := 0
		for _, r := range known.Refused {
			if r.Kind == one {
				told++
			}
		}
		if told != 51 || len(known.Refused) != apitype.MaxWrapRefusals || known.Refused[len(known.Refused)-1].Reason != "in the crowd" {
			t.Errorf("of 51 times %s %d are remembered, among %d", one, told, len(known.Refused))
		}
	}
}
