package gateway

import (
	"cmp"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/redact"
)

// Redacted is the result of redacting or restoring. It contains no text.
type Redacted struct {
	Session    bailey.SessionID  `json:"session,omitempty"` // if it was kept
	Hidden     int               `json:"hidden"`            // findings
	Lost       int               `json:"lost,omitempty"`    // findings that cannot be restored because the map was full
	Escaped    int               `json:"escaped,omitempty"` // literal tokens
	Categories []Hidden          `json:"categories"`        // most findings first, never null
	Restored   int               `json:"restored,omitempty"`
	Left       int               `json:"left,omitempty"`   // tokens that were not restored
	Missed     []redact.Miss     `json:"missed,omitempty"` // the first of Left
	Fault      *localapi.Failure `json:"fault,omitempty"`  // of the line that ended the stream
}

// Hidden is the result for one category.
type Hidden struct {
	Category redact.Category `json:"category"`
	Finds    int             `json:"finds"`
	Distinct int             `json:"distinct"` // different texts; all lost ones count as one
	Line     int             `json:"line"`     // input line of the first finding, counted from one
}

// tally counts findings. It stores at most as many tokens as a table issues. Its zero value is ready.
type tally struct {
	by    map[redact.Category]*Hidden
	seen  map[string]bool
	lost  int
	marks int // escaped tokens
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
