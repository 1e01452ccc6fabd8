package readonly

import (
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// word is one argument after quote removal and brace expansion.
type word struct {
	value string
	bare  []bool // for each byte of value: not quoted; nil if the word contains no glob
	tilde bool   // the shell expands the ~ at the start
	plain bool   // written without quotes, escapes and braces
	data  bool   // a part of the word is replaced by data when the command runs ({} of find and xargs)
}

const expansionHint = "Write the value itself. printenv prints variables; run the inner command first and use its " +
	"output."

// expandWord returns the words for which a word of the line stands: several if it contains braces.
func expandWord(w *syntax.Word) ([]word, *refusal) {
	if len(w.Parts) == 1 { // fast path for the common word
		if lit, ok := w.Parts[0].(*syntax.Lit); ok && !strings.ContainsAny(lit.Value, `\*?[{~`) {
			return []word{{value: lit.Value, plain: true}}, nil
		}
	}
	if !syntax.SplitBraces(w) {
		one, r := joinParts(w.Parts)
		return []word{one}, r
	}
	lists, r := expandBraces(w.Parts)
	if r != nil {
		return nil, r
	}
	words := make([]word, 0, len(lists))
	for _, parts := range lists {
		one, r := joinParts(parts)
		if r != nil {
			return nil, r
		}
		one.plain = false
		words = append(words, one)
	}
	return words, nil
}

// expandBraces returns one list of parts for each combination of alternatives, in the order of bash.
func expandBraces(parts []syntax.WordPart) ([][]syntax.WordPart, *refusal) {
	lists := [][]syntax.WordPart{nil}
	for _, p := range parts {
		brace, ok := p.(*syntax.BraceExp)
		if !ok {
			for i := range lists {
				lists[i] = append(lists[i], p)
			}
			continue
		}
		choices, r := braceAlternatives(brace)
		if r != nil {
			return nil, r
		}
		if len(lists)*len(choices) > maxWords {
			return nil, newRefusal("Name fewer files.", "braces expand to more than %d words", maxWords)
		}
		var next [][]syntax.WordPart
		for _, left := range lists {
			for _, right := range choices {
				next = append(next, append(left[:len(left):len(left)], right...))
			}
		}
		lists = next
	}
	return lists, nil
}

func braceAlternatives(b *syntax.BraceExp) (choices [][]syntax.WordPart, r *refusal) {
	if b.Sequence {
		return braceSequence(b)
	}
	for _, elem := range b.Elems {
		inner, r := expandBraces(elem.Parts)
		if r != nil {
			return nil, r
		}
		if choices = append(choices, inner...); len(choices) > maxWords {
			return nil, newRefusal("Name fewer files.", "braces expand to more than %d words", maxWords)
		}
	}
	return choices, nil
}

// braceSequence expands {1..5}. Other sequences (letters, steps, leading zeros) are refused.
func braceSequence(b *syntax.BraceExp) (choices [][]syntax.WordPart, r *refusal) {
	if len(b.Elems) == 2 {
		from, e1 := strconv.Atoi(b.Elems[0].Lit())
		to, e2 := strconv.Atoi(b.Elems[1].Lit())
		plain := strconv.Itoa(from) == b.Elems[0].Lit() && strconv.Itoa(to) == b.Elems[1].Lit()
		if e1 == nil && e2 == nil && plain && from >= 0 && from <= to && to-from < maxWords {
			for n := from; n <= to; n++ {
				choices = append(choices, []syntax.WordPart{&syntax.Lit{Value: strconv.Itoa(n)}})
			}
			return choices, nil
		}
	}
	return nil, newRefusal("Write the words themselves, or {1..5}.", "the sequence in braces is not accepted")
}

// joiner collects the parts of one word.
type joiner struct {
	text  strings.Builder
	bare  []bool
	glob  bool
	plain bool
}

func joinParts(parts []syntax.WordPart) (word, *refusal) {
	j := joiner{plain: true}
	tilde := false
	for i, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			v := p.Value
			if i == 0 && strings.HasPrefix(v, "~") {
				if !homePrefix(v, len(parts) == 1) {
					return word{}, newRefusal("Write the absolute path, or quote the ~.",
						"the word %s begins with a ~ "+
							"that has no plain meaning", v)
				}
				tilde = true
			}
			if strings.Contains(v, "=~") || strings.Contains(v, ":~") {
				return word{}, newRefusal("Write the absolute path, or quote the ~.", "some shells expand the ~ in %s",
					v)
			}
			j.addUnquoted(v)
		case *syntax.SglQuoted:
			if p.Dollar {
				return word{}, newRefusal("Use '…'. A tab is the default delimiter of cut, and awk -F'\t' accepts it.",
					"$'…' is not accepted, since its escapes hide characters")
			}
			j.addQuoted(p.Value)
		case *syntax.DblQuoted:
			if r := j.addDoubleQuoted(p); r != nil {
				return word{}, r
			}
		default:
			return word{}, unknownPart(p)
		}
	}
	w := word{value: j.text.String(), tilde: tilde, plain: j.plain && !j.glob && !tilde}
	if j.glob {
		w.bare = j.bare
	}
	if n := len(w.value); j.plain && n > 0 && w.value[n-1] == '[' && !strings.ContainsAny(w.value[:n-1], "*?[") {
		w.bare, w.plain = nil, !tilde // a [ at the end is literal; it is the name of a command
	}
	return w, nil
}

// homePrefix reports whether a word begins with ~ or ~USER and then ends or continues with a slash. It must be in one
// literal part, because a quote inside of it prevents the expansion.
func homePrefix(v string, alone bool) bool {
	user, _, slash := strings.Cut(v[1:], "/")
	if !slash && !alone {
		return false
	}
	for i := 0; i < len(user); i++ {
		c := user[i]
		if (c < 'a' || c > 'z') && c != '_' && (i == 0 || c != '-' && (c < '0' || c > '9')) {
			return false
		}
	}
	return true
}

// addUnquoted adds unquoted text and removes its backslashes.
func (j *joiner) addUnquoted(v string) {
	for i := 0; i < len(v); i++ {
		c, bare := v[i], true
		switch {
		case c == '\\' && i+1 < len(v):
			i++
			c, bare, j.plain = v[i], false, false
		case c == '*' || c == '?' || c == '[':
			j.glob = true
		}
		j.text.WriteByte(c)
		j.bare = append(j.bare, bare)
	}
}

func (j *joiner) addQuoted(v string) {
	j.plain = false
	j.text.WriteString(v)
	for range len(v) {
		j.bare = append(j.bare, false)
	}
}

// addDoubleQuoted adds text in double quotes, in which a backslash escapes only $ ` " and itself.
func (j *joiner) addDoubleQuoted(p *syntax.DblQuoted) *refusal {
	if p.Dollar {
		return newRefusal(`Use "…".`, `$"…" is not accepted, since a message catalog can replace it`)
	}
	j.plain = false
	for _, part := range p.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			return unknownPart(part)
		}
		v := lit.Value
		for i := 0; i < len(v); i++ {
			if v[i] == '\\' && i+1 < len(v) && strings.IndexByte("$`\"\\", v[i+1]) >= 0 {
				i++
			}
			j.text.WriteByte(v[i])
			j.bare = append(j.bare, false)
		}
	}
	return nil
}

func unknownPart(p syntax.WordPart) *refusal {
	switch p.(type) {
	case *syntax.CmdSubst, *syntax.ProcSubst:
		return newRefusal("Run the inner command first and use its output, or use a pipe with xargs.",
			"the line contains a substitution of a command")
	case *syntax.ParamExp:
		return newRefusal(expansionHint, "the line contains an expansion of a variable")
	case *syntax.ArithmExp:
		return newRefusal("Write the number.", "the line contains an arithmetic expansion")
	case *syntax.ExtGlob:
		return newRefusal("Use * ? and [ ].", "the line contains an extended glob")
	}
	return newRefusal(expansionHint, "the line contains a word that is not literal")
}

// makeLiteral makes a word literal: its glob characters are quoted when it is rendered.
func (w *word) makeLiteral() { w.bare = nil }

// hasLeadingGlob reports whether the word could expand to a word with another first character than that of its value.
func (w *word) hasLeadingGlob() bool {
	return w.bare != nil && w.bare[0] && (w.value[0] == '*' || w.value[0] == '?' || w.value[0] == '[')
}

// renderSource returns the word as shell source.
func (w *word) renderSource() string {
	v, from := w.value, 0
	var head string
	if w.tilde {
		from = min(strings.IndexByte(v+"/", '/')+1, len(v)) // a quoted slash prevents the expansion
		head = v[:from]
	}
	if w.bare == nil {
		if v == "" || from < len(v) && !isSafe(v[from:], from == 0) {
			return head + quoteWord(v[from:])
		}
		return v
	}
	var out strings.Builder
	out.WriteString(head)
	for i := from; i < len(v); {
		j, bare := i, w.isUnquotedAt(i)
		for j < len(v) && w.isUnquotedAt(j) == bare {
			j++
		}
		if bare {
			out.WriteString(v[i:j])
		} else {
			out.WriteString(quoteWord(v[i:j]))
		}
		i = j
	}
	return out.String()
}

// isUnquotedAt reports whether byte i of a glob is rendered without quotes.
func (w *word) isUnquotedAt(i int) bool {
	return w.bare[i] && (strings.IndexByte("*?[]!^", w.value[i]) >= 0 || safeByte(w.value[i]))
}

func safeByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		strings.IndexByte("/._-,:@%+=", c) >= 0
}

// isSafe reports whether text needs no quotes in any shell. zsh expands a leading =, so it is quoted.
func isSafe(v string, first bool) bool {
	for i := 0; i < len(v); i++ {
		if !safeByte(v[i]) || v[i] == '=' && i == 0 && first {
			return false
		}
	}
	return true
}

// quoteWord returns v in single quotes.
func quoteWord(v string) string { return "'" + strings.ReplaceAll(v, "'", `'\''`) + "'" }
