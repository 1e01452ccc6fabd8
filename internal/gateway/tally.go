package gateway

import (
	"cmp"
	"slices"
	"strings"

	"bailey/internal/localapi/apitype"
	"bailey/internal/redact"
)

// tally counts findings. It stores at most as many tokens as a table issues. Its zero value is ready.
type tally struct {
	by    map[redact.Category]*apitype.Hidden
	seen  map[string]bool
	lost  int
	marks int // escaped tokens
}

func (t *tally) add(f redact.Finding, line int) {
	if t.by == nil {
		t.by, t.seen = map[redact.Category]*apitype.Hidden{}, map[string]bool{}
	}
	h := t.by[f.Category]
	if h == nil {
		h = &apitype.Hidden{Category: f.Category, Line: line}
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

func (t *tally) result() apitype.Redacted {
	r := apitype.Redacted{Lost: t.lost, Escaped: t.marks, Categories: []apitype.Hidden{}}
	for _, h := range t.by {
		r.Hidden += h.Finds
		r.Categories = append(r.Categories, *h)
	}
	slices.SortFunc(r.Categories, func(a, b apitype.Hidden) int {
		return cmp.Or(cmp.Compare(b.Finds, a.Finds), cmp.Compare(a.Category, b.Category))
	})
	return r
}
