package cli

import (
	"fmt"
	"slices"
	"strings"

	"bailey/internal/redact"
	"bailey/internal/terminal"
)

// ruleLines lists the custom rules, for an operator to compare before they are applied. Long rules are split, so that
// no rule hides its end.
func ruleLines(c redact.Config) string {
	var lines []string
	for _, p := range c.Patterns {
		lines = append(lines, folded("hides "+p.Category+": ", p.Regexp)...)
	}
	for _, a := range c.Allow {
		lines = append(lines, folded("lets pass "+anyOr(a.Category)+": ", a.Regexp)...)
	}
	for _, w := range c.Without {
		lines = append(lines, "does not hide "+w)
	}
	return strings.Join(lines, "\n")
}

// folded splits text into lines short enough to be shown in full.
func folded(head, text string) (lines []string) {
	const width = 200
	for r := range slices.Chunk([]rune(text), width) {
		lines = append(lines, head+string(r))
		head = strings.Repeat(" ", len(head))
	}
	return lines
}

func anyOr(category redact.Category) string {
	if category == "" {
		return "ANY CATEGORY"
	}
	return category
}

// loosened describes the values that old redacts and now does not.
func loosened(old, now redact.Config) string {
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, w := range now.Without {
		if !slices.Contains(old.Without, w) {
			say("what is built in for %s is off", w)
		}
	}
	for _, a := range now.Allow {
		if !slices.ContainsFunc(old.Allow, func(b redact.Allow) bool { return a.Category == b.Category && a.Regexp == b.Regexp }) {
			say("what is found as %s and matches %s as a whole is shown", anyOr(a.Category), a.Regexp)
		}
	}
	for _, p := range old.Patterns {
		if !slices.ContainsFunc(now.Patterns, func(q redact.Pattern) bool { return p.Category == q.Category && p.Regexp == q.Regexp }) {
			became := "is gone"
			if slices.ContainsFunc(now.Patterns, func(q redact.Pattern) bool { return p.Category == q.Category }) {
				became = "has another expression"
			}
			say("the pattern %s of %s %s", p.Regexp, p.Category, became)
		}
	}
	var out strings.Builder
	for _, w := range words {
		fmt.Fprintf(&out, "  ! less is hidden: %s\n", terminal.CutLine(w))
	}
	return out.String()
}

// Passing names the values that are not redacted.
func Passing(c redact.Config) []string {
	list := slices.Clone(c.Without)
	for _, a := range c.Allow {
		list = append(list, anyOr(a.Category)+" "+a.Regexp)
	}
	return list
}
