package redact

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// JSON returns a deep copy of a decoded JSON value with every string redacted, including keys, and the number of tokens
// used. The name of a member also helps to judge its value. If a number contains a find, it becomes a string. Any other
// Go value is first converted to JSON; if that fails, [REDACTED_VALUE_X] replaces it.
func (t *Table) JSON(v any) (any, int) { return jsonView{t, false}.redactJSON(v) }

// ForPerson is JSON without the pseudonyms: addresses and the names of tenants, which are hidden from a model but are not
// secrets, stay readable. It is for a person who has to judge a call by its destination.
func (t *Table) ForPerson(v any) any {
	out, _ := jsonView{t, true}.redactJSON(v)
	return out
}

// jsonView redacts decoded JSON with a table.
type jsonView struct {
	t     *Table
	shows bool // pseudonyms stay
}

func (w jsonView) redactText(s string) (string, int) {
	if w.t.isPlain(s) {
		return s, 0
	}
	st := w.newStream()
	st.feedAll(s)
	return string(st.out), st.count
}

func (w jsonView) newStream() *stream {
	st := w.t.newStream()
	st.shows = w.shows
	return st
}

func (w jsonView) redactJSON(v any) (any, int) {
	switch v := v.(type) {
	case nil, bool:
		return v, 0
	case string:
		return w.redactText(v)
	case json.Number:
		if s, n := w.redactText(v.String()); n > 0 {
			return s, n
		}
		return v, 0
	case []any:
		return w.redactList(v)
	case map[string]any:
		return w.redactObject(v)
	}
	return w.redactOther(v)
}

func (w jsonView) redactList(v []any) (any, int) {
	if v == nil {
		return v, 0
	}
	out, count := make([]any, len(v)), 0
	for i, e := range v {
		r, n := w.redactJSON(e)
		out[i] = r
		count += n
	}
	return out, count
}

// redactObject processes keys in sorted order, so that tokens are numbered in the same order each time. Two keys can become
// equal only if the table is full; the later one then gets underscores until it differs.
func (w jsonView) redactObject(v map[string]any) (any, int) {
	if v == nil {
		return v, 0
	}
	out, count := make(map[string]any, len(v)), 0
	for _, k := range slices.Sorted(maps.Keys(v)) {
		key, n := w.redactText(k)
		for _, taken := out[key]; taken; _, taken = out[key] {
			key += "_"
		}
		r, m := w.redactMember(k, v[k])
		out[key] = r
		count += n + m
	}
	return out, count
}

// redactMember redacts the value of a member with regard to its name, because only the name identifies a password.
func (w jsonView) redactMember(name string, v any) (any, int) {
	s, ok := v.(string)
	if !ok || w.t.rules == nil || len(s) == 0 || len(s) > maxValue {
		return w.redactJSON(v)
	}
	tables := builtIn()
	q := &candidate{ask: tables.valueKindAfter([]byte(name)), name: []byte(name), b: []byte(s), closed: true,
		sep: separator{colons: 1, opened: '"'}}
	if q.ask == nothing {
		return w.redactText(s)
	}
	f := &finder{t: tables}
	whole, category := q.judgeValue(f, len(s))
	category = f.refineCategory(category, q.b[whole.start:whole.end])
	st := w.newStream()
	if whole.end > 0 && !(w.shows && Pseudonym(category)) && !w.t.rules.isExempt(category, q.b[whole.start:whole.end]) {
		st.finds = append(st.finds, span{whole.start, whole.end, category})
	}
	st.feedAll(s)
	return string(st.out), st.count
}

// redactOther converts the value by way of its JSON text.
func (w jsonView) redactOther(v any) (any, int) {
	text, err := json.Marshal(v)
	if err != nil {
		return mark + "VALUE_X]", 1
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var decoded any
	if d.Decode(&decoded) != nil {
		return mark + "VALUE_X]", 1
	}
	r, n := w.redactJSON(decoded)
	if n == 0 && isGoNumber(v) {
		return v, 0
	}
	return r, n
}

// isGoNumber reports whether v is one of Go's own numbers, which a copy need not change.
func isGoNumber(v any) bool {
	switch v.(type) {
	case float64, float32, int, int64, int32, uint, uint64, uint32:
		return true
	}
	return false
}
