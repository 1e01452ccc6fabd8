package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
	"bailey/internal/redact"
)

// restoreEvent is the kind of the ledger entry for a session whose texts are restored for an operator. It must be
// durable before the first text is sent, and contains no text. Its data is a [restoring].
const restoreEvent = "redact.restore"

// restoring records which operator had the texts of which session restored.
type restoring struct {
	Session  bailey.SessionID  `json:"session"`
	Operator localapi.Operator `json:"operator"`
	Person   string            `json:"person"`
}

// redaction is one redact stream. Its reads and writes have no time limit: if the user's pager or source stalls, it
// blocks only this connection.
type redaction struct {
	q       localapi.RedactQuery
	session bailey.SessionID
	table   *redact.Table
	tally   findingCounts
	in      io.WriteCloser // destination of the input, depending on the mode
	back    *redact.Restorer
}

// redactStream serves one stream. It writes the text only to the client.
func (g *Gateway) redactStream(ctx context.Context, conn *peer.Conn, q localapi.Query, from bailey.Call) error {
	select {
	case g.streams <- struct{}{}:
		defer func() { <-g.streams }()
	default:
		return errBusy
	}
	r, err := g.newRedaction(ctx, conn, q, from)
	if err == nil {
		err = conn.WriteFrame(localapi.FrameResult, nil)
	}
	if err == nil {
		err = r.copyInput(conn)
	}
	if q.Redact.Session != "" && r != nil {
		// keep it again: it may have been removed meanwhile, but the output refers to it
		g.Kept.storeTable(r.session, r.table, true)
	}
	bad := badLine{}
	if err != nil && !errors.As(err, &bad) {
		return err
	}
	result := r.buildResult()
	if r.q.Mode != localapi.Report &&
		g.Kept.storeTable(r.session, r.table, q.Redact.Session != "" || result.Escaped > 0) {
		result.Session = r.session
	}
	if err != nil { // the texts answered before can be restored
		why := localapi.NewFailure(err)
		result.Fault = &why
	}
	if conn.WriteJSON(localapi.FrameResult, result) != nil && q.Redact.Session == "" {
		g.Kept.dropTable(r.session) // no client knows of it
	}
	return nil
}

// newRedaction finds or creates the session and records a restoring, before any input is read.
func (g *Gateway) newRedaction(ctx context.Context, conn *peer.Conn, q localapi.Query,
	from bailey.Call) (*redaction, error) {
	r := &redaction{q: *q.Redact}
	switch {
	case g.Kept == nil:
		return nil, bailey.Unavailable.New("this gateway stores no map of redacted texts",
			"run bailey gateway stop; the next call starts another")
	case r.q.Mode == localapi.Restore && r.q.Session == "":
		return nil, bailey.Invalid.New("restoring needs the session of the tokens",
			"give the ID that bailey redact printed: --session s-…")
	case r.q.Mode == localapi.Report && r.q.Session != "":
		return nil, bailey.Invalid.New("a report cannot use a session: nothing is stored", "leave --session out")
	case r.q.Mode == localapi.Restore:
		if err := checkOperator(q.Operator, "redact --restore"); err != nil {
			return nil, err
		}
	}
	var err error
	if r.session, r.table, err = g.Kept.openTable(r.q.Session); err != nil {
		return nil, err
	}
	if err := r.openWriter(pieceWriter{conn}); err != nil {
		return nil, err
	}
	if r.back != nil {
		err = g.Note(ctx, restoreEvent, restoring{r.session, q.Operator, from.Principal.Person})
	}
	return r, err
}

func (r *redaction) openWriter(out io.Writer) error {
	hide := func(to io.Writer) {
		w := r.table.Writer(to)
		w.Tell(func(f redact.Finding) { r.tally.addFinding(f, f.Line) })
		r.in = w
	}
	switch r.q.Mode {
	case localapi.Hide:
		hide(out)
	case localapi.Report:
		hide(io.Discard)
	case localapi.Lines:
		r.in = &jsonLines{table: r.table, tally: &r.tally, w: out}
	case localapi.Restore:
		r.back = r.table.Restorer(out)
		r.in = r.back
	default:
		return bailey.Invalid.Errorf("run bailey gateway stop; client and gateway may have different versions",
			"unknown mode %q of redact", string(r.q.Mode))
	}
	return nil
}

// copyInput reads input until its end. It writes each frame before it reads the next, so a client that does not read its
// output is not read either.
func (r *redaction) copyInput(conn *peer.Conn) error {
	for {
		kind, b, err := conn.ReadFrameWithin(apitype.MaxPiece)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return bailey.Invalid.New("the input was cut off", "")
		case err != nil:
			return err
		case kind == localapi.FrameEnd:
			return r.in.Close()
		case kind != localapi.FrameInput:
			return bailey.Invalid.Errorf("", "a frame of kind %q is not an input", kind)
		}
		if _, err := r.in.Write(b); err != nil {
			return err
		}
	}
}

func (r *redaction) buildResult() apitype.Redacted {
	out := r.tally.buildResult()
	if w, ok := r.in.(*redact.Writer); ok {
		out.Escaped = w.Escapes()
	}
	if r.back != nil {
		out.Restored, out.Left, out.Missed = r.back.Given(), r.back.Left(), r.back.Missed()
	}
	return out
}

// pieceWriter writes output in frames of at most maxPiece bytes.
type pieceWriter struct{ conn *peer.Conn }

func (p pieceWriter) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), apitype.MaxPiece)
		if err := p.conn.WriteFrame(localapi.FrameStdout, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(b), nil
}

// maxLine is the maximum size of a JSON line in bytes.
const maxLine = 4 << 20

// answerSize is the number of bytes from which answers are written before the available input has been read.
const answerSize = 64 << 10

// jsonLines answers lines of the form {"text":…} with {"text":…,"findings":…}. Each text is redacted separately, with
// one common table. An invalid line ends the stream after the answers to earlier lines. Only one goroutine may use a
// jsonLines.
type jsonLines struct {
	table *redact.Table
	tally *findingCounts
	w     io.Writer
	line  []byte // current line, not complete yet
	n     int    // answered lines
	out   bytes.Buffer
}

type lineAnswer struct {
	Text     string           `json:"text"`
	Findings []redact.Finding `json:"findings"`
}

// Write answers the lines that are complete after p.
func (l *jsonLines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		line, after, over := bytes.Cut(rest, []byte{'\n'})
		rest = after
		if len(l.line)+len(line) > maxLine {
			return 0, l.flushWithError(l.lineError(fmt.Sprintf("is over the %d bytes allowed", maxLine),
				"split its text"))
		}
		l.line = append(l.line, line...)
		if !over {
			break
		}
		if err := l.answerLine(); err != nil {
			return 0, l.flushWithError(err)
		}
	}
	return len(p), l.flush()
}

// Close answers a last line without a newline.
func (l *jsonLines) Close() error {
	if len(l.line) == 0 {
		return l.flush()
	}
	return l.flushWithError(l.answerLine())
}

// flushWithError writes the pending answers and then returns err.
func (l *jsonLines) flushWithError(err error) error {
	if broken := l.flush(); broken != nil {
		return broken
	}
	return err
}

func (l *jsonLines) flush() error {
	if l.out.Len() == 0 {
		return nil
	}
	_, err := l.w.Write(l.out.Bytes())
	if l.out.Reset(); l.out.Cap() > 1<<20 { // do not keep a large buffer after one long line
		l.out = bytes.Buffer{}
	}
	return err
}

func (l *jsonLines) answerLine() error {
	text, why := textOf(l.line)
	if why != "" {
		return l.lineError(why, `write an object with a text on each line, for example {"text":"…"}`)
	}
	if l.line = l.line[:0]; cap(l.line) > 1<<20 {
		l.line = nil
	}
	out, found := l.table.Find(text)
	if !utf8.ValidString(out) { // the bytes between two findings may not be valid text
		return l.lineError("cannot be hidden in part and stay UTF-8", "leave it out")
	}
	l.n++
	l.tally.marks += redact.Escapes(out)
	for _, f := range found {
		l.tally.addFinding(f, l.n)
	}
	if found == nil {
		found = []redact.Finding{}
	}
	enc := json.NewEncoder(&l.out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(lineAnswer{out, found}); err != nil {
		return err
	}
	if l.out.Len() < answerSize {
		return nil
	}
	return l.flush()
}

// badLine is an error that ends a stream; the answers before it stay valid.
type badLine struct{ error }

func (b badLine) Unwrap() error { return b.error }

// lineError returns an error with the number of the current line. It quotes nothing from the line.
func (l *jsonLines) lineError(why, cure string) error {
	return badLine{bailey.Invalid.Errorf(cure, "line %d %s", l.n+1, why)}
}

// textOf returns the text of a line, or the reason why the line is invalid.
func textOf(line []byte) (text, why string) {
	if !utf8.Valid(line) {
		return "", "is not UTF-8"
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", "is not a JSON object"
	}
	has := false
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return "", "is not a JSON object"
		}
		if key != "text" {
			continue
		}
		switch {
		case has:
			return "", "has two texts"
		case value[0] != '"':
			return "", "has a text that is not a string"
		case hasLoneSurrogate(value):
			return "", "has half a surrogate pair in its text"
		case json.Unmarshal(value, &text) != nil:
			return "", "is not a JSON object"
		}
		has = true
	}
	if _, err := dec.Token(); err != nil {
		return "", "is not a JSON object"
	}
	if _, err := dec.Token(); err != io.EOF {
		return "", "has more than one value"
	}
	if !has {
		return "", "has no text"
	}
	return text, ""
}

// hasLoneSurrogate reports whether a JSON string has an escape that represents no character, which is a lone surrogate (RFC 8259,
// section 8.2). A reader would replace it, and the offsets would refer to the changed text.
func hasLoneSurrogate(s []byte) bool {
	for i := 0; i+1 < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		i++
		if s[i] != 'u' {
			continue
		}
		switch high, low := surrogateKind(s, i-1), surrogateKind(s, i+5); {
		case high == 0:
		case high != 'h' || low != 'l':
			return true
		default:
			i += 6
		}
	}
	return false
}

// surrogateKind returns 'h' or 'l' if the escape at s[i:] is a high or low surrogate, and zero otherwise.
func surrogateKind(s []byte, i int) byte {
	if i+6 > len(s) || s[i] != '\\' || s[i+1] != 'u' || s[i+2]|0x20 != 'd' {
		return 0
	}
	switch c := s[i+3] | 0x20; {
	case c == '8' || c == '9' || c == 'a' || c == 'b':
		return 'h'
	case c >= 'c' && c <= 'f':
		return 'l'
	}
	return 0
}

// findingCounts counts findings. It stores at most as many tokens as a table issues. Its zero value is ready.
type findingCounts struct {
	by    map[redact.Category]*apitype.Hidden
	seen  map[string]bool
	lost  int
	marks int // escaped tokens
}

func (t *findingCounts) addFinding(f redact.Finding, line int) {
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

func (t *findingCounts) buildResult() apitype.Redacted {
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
