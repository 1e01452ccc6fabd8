package mcp

import (
	"fmt"
	"strings"
	"unicode"

	"bailey"
)

// maxWords limits a question in the dialog of a client, in bytes. A person would not read a longer one to its end.
const maxWords = 16 << 10

// questionText returns a question for a person at a client. If the text is too long, whole is false and the client must not be
// asked.
func questionText(q bailey.Question) (text string, whole bool) {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s"+format+"\n", append([]any{name}, args...)...)
	}
	fmt.Fprintf(&b, "The agent %s wants to run %s. Nothing has run yet.\n\n", quoteWord(q.Principal.Agent),
		quoteWord(string(q.Call)))
	// first, because it is the effect of the call, and dialogs are small
	for l := range strings.Lines(q.Preview.Output.Text) {
		line("shows", "| %s", escapeText(strings.TrimSuffix(l, "\n")))
	}
	line("impact", "%s", escapeText(q.Impact))
	for _, r := range q.Rules {
		line("asked by", "%s: %s", quoteWord(string(r.ID)), escapeText(r.Reason))
	}
	for _, f := range q.Files {
		line("file", "%s, %d bytes, as it was when this was asked", quoteWord(f.Input), f.Size)
	}
	if q.Contents == bailey.NotBound {
		line("not bound", "what lies in the files and directories that it names: that may change until it runs")
	}
	for _, l := range q.Leases {
		line("is lent", "%s as %s, from %s: %s", quoteWord(l.Name), quoteWord(l.Env), quoteWord(l.Adapter),
			escapeText(l.Scope))
	}
	dir := "an empty directory of its own"
	if q.Dir.Text != "" {
		dir = quoteWord(q.Dir.Text)
	}
	line("in", "%s", dir)
	line("runs", "%s", commandLine(q.Argv))
	if len(q.Preview.Argv) > 0 {
		line("shown by", "%s", commandLine(q.Preview.Argv))
	}
	line("approval", "%s, open until %s", q.ID, formatTime(q.Expires))
	line("digest", "%s", q.Digest)
	return b.String(), b.Len() <= maxWords
}

func commandLine(argv []bailey.Shown) string {
	var all []string
	for _, a := range argv {
		all = append(all, quoteWord(a.Text))
	}
	return strings.Join(all, " ")
}

// quoteWord returns one argument: unchanged if it is unambiguous, otherwise quoted in printable ASCII.
func quoteWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-[]") == "" {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, replacement) {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return `"` + b.String() + `"`
}

// escapeText escapes all characters of a text that could begin a line, move the cursor or be invisible.
func escapeText(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, replacement) {
		if r == ' ' || unicode.IsGraphic(r) &&
			!unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
				unicode.Mn, unicode.Me) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}
