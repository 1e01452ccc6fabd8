package shellparse

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// expandText returns the text of "$(cat <<'EOF' … EOF)", the form in which agents pass messages of several lines. It returns
// false for every other substitution, and for a text that one shell reads differently from another: bash before 5.2 ends the
// text at a line that only begins with its delimiter, and bash before 4 looks for the closing parenthesis without regard to
// here-documents, so that quotes, parentheses and comments in the text count.
func (r *lineWalker) expandText(n *syntax.CmdSubst) (string, bool) {
	if r.tainted != "" || n.Backquotes || n.TempFile || n.ReplyVar || len(n.Stmts) != 1 || len(n.Last) > 0 {
		return "", false
	}
	s := n.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || s.Negated || s.Background || s.Coprocess || len(s.Comments) > 0 || len(s.Redirs) != 1 ||
		len(call.Assigns) > 0 || len(call.Args) != 1 || call.Args[0].Lit() != "cat" {
		return "", false
	}
	doc := s.Redirs[0]
	if doc.Op != syntax.Hdoc || doc.N != nil || doc.Hdoc == nil {
		return "", false
	}
	text, delimiter := doc.Hdoc.Lit(), quotedDelimiter(doc.Word)
	after := r.src[min(int(doc.Hdoc.End().Offset()), len(r.src)):]
	if len(doc.Hdoc.Parts) == 0 {
		after = r.src[min(int(n.Right.Offset()), len(r.src)):]
	}
	// The source must be exactly this text: nothing stands beside the delimiters.
	want := "$(cat <<'" + delimiter + "'\n" + text + delimiter + "\n)"
	if delimiter == "" || r.sourceText(n) != want || !readsAlike(text, delimiter, after) {
		return "", false
	}
	return strings.TrimRight(text, "\n"), true
}

// quotedDelimiter returns the delimiter of a here-document in single quotes, without them, or "".
func quotedDelimiter(w *syntax.Word) string {
	if len(w.Parts) != 1 {
		return ""
	}
	q, ok := w.Parts[0].(*syntax.SglQuoted)
	if !ok || q.Dollar || strings.Trim(q.Value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") != "" {
		return ""
	}
	return q.Value
}

// readsAlike reports whether all shells read the text of a here-document in a substitution as this text. after is the rest of
// the source.
func readsAlike(text, delimiter, after string) bool {
	plain := true // except for apostrophes
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(strings.TrimLeft(line, "\t"), delimiter) || strings.Contains(line, "<<") {
			return false
		}
		plain = plain && !strings.ContainsAny(line, "\"`()\\$")
	}
	if plain && !strings.Contains(after, "'") { // an apostrophe without a second one is a syntax error there, and nothing runs
		return true
	}
	for line := range strings.Lines(text) {
		if !isPaired(strings.TrimSuffix(line, "\n")) {
			return false
		}
	}
	return true
}

// isPaired reports whether quotes and parentheses of a line are in pairs, each pair inside or outside of another, whether or
// not what follows a # counts.
func isPaired(line string) bool {
	if strings.Contains(line, "#") && strings.ContainsAny(line, "'\"`()") {
		return false
	}
	depth, quote, outer := 0, byte(0), 0
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '\\':
			if i+1 == len(line) || strings.IndexByte("'\"`()\\$", line[i+1]) >= 0 {
				return false
			}
		case '$':
			if i+1 < len(line) && strings.IndexByte("{'\"", line[i+1]) >= 0 {
				return false
			}
		case '(':
			depth++
		case ')':
			if depth--; depth < outer {
				return false
			}
		case '\'', '"', '`':
			switch {
			case quote == 0:
				quote, outer = c, depth
			case quote != c || depth != outer:
				return false
			default:
				quote, outer = 0, 0
			}
		}
	}
	return quote == 0 && depth == 0
}
