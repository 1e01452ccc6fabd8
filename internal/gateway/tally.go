package gateway

import (
	"cmp"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/redact"
	"bailey/internal/wire"
)

// Redacted is what a redaction or a restoring came to. It holds no text.
type Redacted struct {
	Session    bailey.SessionID `json:"session,omitempty"` // kept; empty when none is
	Hidden     int              `json:"hidden"`            // finds
	Lost       int              `json:"lost,omitempty"`    // of them, those that the full map cannot give back
	Escaped    int              `json:"escaped,omitempty"` // literal tokens
	Categories []Hidden         `json:"categories"`        // most finds first, never null
	Restored   int              `json:"restored,omitempty"`
	Left       int              `json:"left,omitempty"`   // tokens that were not given back
	Missed     []redact.Miss    `json:"missed,omitempty"` // the first of them
	Fault      *wire.Failure    `json:"fault,omitempty"`  // of the line that ended it
}

// Hidden is what was found of one category.
type Hidden struct {
	Category redact.Category `json:"category"`
	Finds    int             `json:"finds"`
	Distinct int             `json:"distinct"` // different texts; those that were lost count as one
	Line     int             `json:"line"`     // of the input in which the first begins, counted from one
}

// tally counts finds. The tokens it remembers are as many as a table gives out. Its zero value is ready.
type tally struct {
	by    map[redact.Category]*Hidden
	seen  map[string]bool
	lost  int
	marks int // escaped
}

func (t *tally) add(f redact.Finding, line int) {
	if t.by == nil {
		t.by, t.seen = map[redact.Category]*Hidden{}, map[string]bool{}
	}
	h := t.by[f.Category]
	if h == nil {
		h = &Hidden{Category: f.Category, Line: line}
		t.by[f.Category] = h
	}
	h.Finds++
	if strings.HasSuffix(f.Token, "_X]") {
		t.lost++
	}
	if !t.seen[f.Token] {
		t.seen[f.Token] = true
		h.Distinct++
	}
}

func (t *tally) result() Redacted {
	r := Redacted{Lost: t.lost, Escaped: t.marks, Categories: []Hidden{}}
	for _, h := range t.by {
		r.Hidden += h.Finds
		r.Categories = append(r.Categories, *h)
	}
	slices.SortFunc(r.Categories, func(a, b Hidden) int {
		return cmp.Or(cmp.Compare(b.Finds, a.Finds), cmp.Compare(a.Category, b.Category))
	})
	return r
}
