package modelwire

import (
	"bytes"
	"context"
	"slices"
	"strconv"
	"strings"

	"bailey"
)

// Edit passes every text of a request's body that a model can read to text, and returns the body with the texts that it
// returned. If none differs, the result is body itself. An error means that the request must be refused.
func Edit(e Endpoint, body []byte, text TextFunc) ([]byte, Summary, error) {
	return (*Cache)(nil).Edit(e, 0, body, text)
}

// Restore passes every text of a whole reply to text, as [Edit] does for a request. Keys of objects and citations stay
// as they are.
func Restore(e Endpoint, body []byte, text TextFunc) ([]byte, Usage, error) {
	var usage Usage
	if e.Lines {
		out, err := restoreLines(e, body, text, &usage)
		return out, usage, err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return body, usage, nil
	}
	doc, err := parseDocument(body, nil)
	if err != nil {
		return nil, usage, err
	}
	w := walker{doc: doc, text: text, reply: true, sum: &Summary{}}
	w.walkReply(e, 0)
	readUsage(e.Dialect, &doc, 0, &usage)
	usage.TextBytes = w.sum.TextBytes
	return w.assembleBody(), usage, w.err
}

// restoreLines restores each line of the results of a batch.
func restoreLines(e Endpoint, body []byte, text TextFunc, usage *Usage) ([]byte, error) {
	e.Lines = false
	var out []byte
	for line := range bytes.Lines(body) {
		value := bytes.TrimRight(line, "\r\n")
		edited, u, err := Restore(e, value, text)
		if err != nil {
			return nil, err
		}
		usage.addUsage(u)
		out = append(append(out, edited...), line[len(value):]...)
	}
	return out, nil
}

// patch replaces bytes of a document.
type patch struct {
	start, end int32
	text       []byte
}

// walker visits the texts of one document.
type walker struct {
	ctx        context.Context // nil: no end
	doc        document
	text       TextFunc
	reply      bool
	sum        *Summary
	cache      *Cache
	generation int
	tools      map[string]string // tool by the identifier of its call
	patches    []patch
	keys       map[int]map[string]bool // by object in which a key changed: the keys that it has or gets
	prompt     *strings.Builder        // collects the user's texts, if it is not nil
	err        error
}

// assembleBody returns the document with its patches.
func (w *walker) assembleBody() []byte {
	if w.err != nil {
		return nil
	}
	if len(w.patches) == 0 {
		return w.doc.b
	}
	slices.SortFunc(w.patches, func(a, b patch) int { return int(a.start) - int(b.start) })
	size := len(w.doc.b)
	for _, p := range w.patches {
		size += len(p.text)
	}
	out, pos := make([]byte, 0, size), int32(0)
	for _, p := range w.patches {
		out = append(append(out, w.doc.b[pos:p.start]...), p.text...)
		pos = p.end
	}
	return append(out, w.doc.b[pos:]...)
}

// replaceValue writes a value anew.
func (w *walker) replaceValue(n int, raw []byte) {
	w.patches = append(w.patches, patch{w.doc.nodes[n].start, w.doc.nodes[n].end, raw})
}

// editString passes a string to the function. Any other value stays.
func (w *walker) editString(n int, where Where) {
	if w.doc.kindOf(n) == '"' {
		w.editRaw(n, where, func(s string) string { return w.text(where, s) })
	}
}

// editRaw replaces the string n by what edit makes of it, or by what the cache has for its bytes.
func (w *walker) editRaw(n int, where Where, edit func(string) string) {
	if w.ctx != nil && w.err == nil && w.ctx.Err() != nil {
		w.err = context.Cause(w.ctx)
	}
	if w.err != nil {
		return
	}
	raw := w.doc.rawValue(n)
	w.sum.Texts++
	w.sum.TextBytes += int64(len(raw)) - 2
	edited, known := w.cache.findText(w.generation, where, raw)
	if !known {
		before := unquoteText(raw)
		if after := edit(before); after != before {
			edited = quoteText(make([]byte, 0, len(after)+2), after)
		}
		if w.err == nil && w.cache.keepText(w.generation, where, raw, edited) {
			w.sum.Changed++
		}
	}
	if edited != nil {
		w.sum.Edited++
		w.replaceValue(n, edited)
	}
	if w.prompt == nil || where.Kind != User {
		return
	}
	if w.prompt.Len() > 0 {
		w.prompt.WriteByte('\n')
	}
	if edited == nil {
		edited = raw
	}
	part := unquoteText(edited)
	w.sum.PromptParts = append(w.sum.PromptParts, part)
	w.prompt.WriteString(part)
}

// editData passes all strings of a structured value to the function, for example of the input of a call. In a request,
// keys and long numbers are texts, too.
func (w *walker) editData(n int, where Where) {
	switch w.doc.kindOf(n) {
	case '"':
		w.editString(n, where)
	case '0':
		w.editNumber(n, where)
	case '[':
		w.doc.eachElement(n, func(i, v int) { w.editData(v, where.inElement(i)) })
	case '{':
		w.doc.eachMember(n, func(key string, k, v int) {
			if !w.reply {
				w.editKey(k, n, where)
			}
			w.editData(v, where.inMember(key))
		})
	}
}

// minNumber is the length from which a number may be a secret.
const minNumber = 6

// editNumber passes a number to the function. If it changes, it becomes a string.
func (w *walker) editNumber(n int, where Where) {
	raw := string(w.doc.rawValue(n))
	if w.reply || len(raw) < minNumber {
		return
	}
	w.sum.Texts++
	if after := w.text(where, raw); after != raw {
		w.sum.Edited++
		w.replaceValue(n, quoteText(nil, after))
	}
}

// editKey passes a key of an object to the function. If the new key is already in the object, it gets an
// underscore, and if there are more, a number.
func (w *walker) editKey(k, object int, where Where) {
	where.Key = true
	before := w.doc.textOf(k)
	w.sum.Texts++
	after := w.text(where, before)
	if after == before {
		return
	}
	taken := w.keysOf(object)
	if taken[after] {
		after += "_"
	}
	for base, i := after, len(taken); taken[after]; i++ {
		after = base + strconv.Itoa(i)
	}
	taken[after] = true
	w.sum.Edited++
	w.replaceValue(k, quoteText(nil, after))
}

// keysOf returns the keys that an object has or gets.
func (w *walker) keysOf(object int) map[string]bool {
	keys := w.keys[object]
	if keys == nil {
		keys = map[string]bool{}
		w.doc.eachMember(object, func(key string, _, _ int) { keys[key] = true })
		if w.keys == nil {
			w.keys = map[int]map[string]bool{}
		}
		w.keys[object] = keys
	}
	return keys
}

// editNested edits JSON that is the text of a string, as OpenAI's arguments are. In a request, a text that is no JSON
// is edited as a whole.
func (w *walker) editNested(n int, where Where) {
	if w.doc.kindOf(n) != '"' {
		w.editData(n, where)
		return
	}
	mark := where
	mark.Field = "\x00" // the same bytes have another meaning in a string that is no JSON
	w.editRaw(n, mark, func(s string) string {
		if w.reply {
			return restorePartial(s, where, w.text)
		}
		doc, err := parseDocument([]byte(s), nil)
		if err != nil {
			return w.text(where, s)
		}
		inner := walker{doc: doc, text: w.text, sum: w.sum}
		inner.editData(0, where)
		return string(inner.assembleBody())
	})
}

// refuseBody keeps the first reason for which the body must not be forwarded.
func (w *walker) refuseBody(why, hint string) {
	if w.err == nil {
		w.err = bailey.Invalid.Wrapf(ErrUnreadable, hint, "cannot read the body: %s", why)
	}
}

// maxPlace limits the pointer to a text and the name of its tool, which are kept for each text. Texts at a longer
// pointer are all at longPlace, which no tool has.
const (
	maxPlace  = 1 << 10
	longPlace = "\x00long"
)

// inMember returns the place of a member of the object at w.
func (w Where) inMember(key string) Where {
	if w.Field == longPlace || len(w.Field)+2*len(key) >= maxPlace {
		w.Field = longPlace
		return w
	}
	if strings.ContainsAny(key, "~/") {
		key = strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
	}
	w.Field += "/" + key
	return w
}
