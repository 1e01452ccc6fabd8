package shellparse

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// literalWord returns the literal value of a word, and false if the word is not literal.
func (r *lineWalker) literalWord(w *syntax.Word) (string, bool) {
	var b strings.Builder
	for i, p := range w.Parts {
		v, ok := r.literalPart(p, i == 0, len(w.Parts) == 1)
		if !ok {
			return "", false
		}
		b.WriteString(v)
	}
	return b.String(), true
}

func (r *lineWalker) literalPart(p syntax.WordPart, first, alone bool) (string, bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		return r.literalUnquoted(p.Value, first, alone)
	case *syntax.SglQuoted:
		return p.Value, !p.Dollar
	case *syntax.DblQuoted:
		if p.Dollar {
			return "", false
		}
		var b strings.Builder
		for _, q := range p.Parts {
			switch q := q.(type) {
			case *syntax.Lit:
				b.WriteString(removeBackslashes(q.Value, "$`\"\\"))
			case *syntax.ParamExp:
				v, ok := r.expandParam(q)
				if !ok {
					return "", false
				}
				b.WriteString(v)
			case *syntax.CmdSubst:
				v, ok := r.expandText(q)
				if !ok {
					return "", false
				}
				b.WriteString(v)
			default:
				return "", false
			}
		}
		return b.String(), true
	case *syntax.ParamExp:
		v, ok := r.expandParam(p)
		return v, ok && !strings.ContainsAny(v, " \t\n*?[\\")
	}
	return "", false
}

// literalUnquoted returns the value of an unquoted part of a word. It returns false for globs and braces, which expand to other
// words, and for =PROGRAM, which zsh expands.
func (r *lineWalker) literalUnquoted(v string, first, alone bool) (string, bool) {
	tilde := ""
	if first && strings.HasPrefix(v, "~") {
		if r.home == "" || v != "~" && !strings.HasPrefix(v, "~/") || v == "~" && !alone {
			return "", false
		}
		tilde, v = r.home, v[1:]
	}
	if first && tilde == "" && strings.HasPrefix(v, "=") || strings.Contains(v, "=~") || strings.Contains(v, ":~") {
		return "", false // in NAME=~, bash expands the tilde as in an assignment
	}
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return "", false
		case '{':
			at := i > 0 && v[i-1] == '@'
			end := plainBraces(v[i:], at)
			if end == 0 && (!alone || v != "{}") || strings.Contains(v, ",") || !at && strings.Contains(v, "..") {
				return "", false
			}
			i += end
		case '}':
			if !alone || v != "{}" {
				return "", false
			}
		}
	}
	return tilde + removeBackslashes(v, ""), true
}

// plainBraces returns the index of the closing brace if v begins with a name in braces, which no shell expands: {owner}, or
// after @, as git has it, also a number: {0}, {-1}. Otherwise it returns 0.
func plainBraces(v string, at bool) int {
	name, _, closed := strings.Cut(v[1:], "}")
	if !closed || name == "" {
		return 0
	}
	if at && strings.Trim(strings.TrimPrefix(name, "-"), "0123456789") == "" && name != "-" {
		return len(name) + 1
	}
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" {
		return 0
	}
	return len(name) + 1
}

// removeBackslashes removes line continuations, and the backslash before each character in of. If of is empty, it removes the
// backslash before any character.
func removeBackslashes(v, of string) string {
	if !strings.Contains(v, `\`) {
		return v
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '\\' && i+1 < len(v) {
			switch next := v[i+1]; {
			case next == '\n':
				i++
				continue
			case of == "" || strings.IndexByte(of, next) >= 0:
				i++
			}
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// expandParam expands only $HOME, and only if the line sets no variable before it.
func (r *lineWalker) expandParam(p *syntax.ParamExp) (string, bool) {
	plain := p.Param != nil && p.Param.Value == "HOME" && p.Index == nil && p.Slice == nil && p.Repl == nil &&
		p.Exp == nil &&
		!p.Excl && !p.Length && !p.Width && p.Names == 0
	return r.home, plain && r.home != "" && r.tainted == ""
}

// addRedirect records the files that the shell itself opens for c.
func (r *lineWalker) addRedirect(c *Command, n *syntax.Redirect) {
	switch n.Op {
	case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
		// cat only copies the text, which all shells read alike if the delimiter is quoted
		if n.Op == syntax.Hdoc && n.N == nil && quotedDelimiter(n.Word) != "" && slices.Equal(c.Words, []string{"cat"}) {
			return
		}
		c.markOpaque("it reads text from the line itself")
		return
	}
	v, ok := r.literalWord(n.Word)
	if !ok || n.N != nil && strings.HasPrefix(n.N.Value, "{") {
		c.markOpaque("the target of a redirection is not literal")
		return
	}
	switch n.Op {
	case syntax.RdrIn:
		if strings.Trim(v, "0123456789-") == "" {
			c.markOpaque("zsh reads <1-9> as a pattern")
		}
		c.Files = append(c.Files, File{Path: v})
	case syntax.DplIn, syntax.DplOut:
		if strings.Trim(v, "0123456789-") != "" {
			c.Files = append(c.Files, File{Path: v, Write: true})
		}
	default:
		c.Files = append(c.Files, File{Path: v, Write: true})
	}
}
