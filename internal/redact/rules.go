package redact

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"bailey"
)

// Config sets what is found in addition to learned secrets. The zero Config finds everything built in.
type Config struct {
	Patterns []Pattern  `json:"patterns,omitempty"` // additional secrets
	Allow    []Allow    `json:"allow,omitempty"`    // texts that look like secrets but are not
	Without  []Category `json:"without,omitempty"`  // built-in categories that are not hidden
}

// Pattern is a regular expression (Go syntax) for additional secrets. It is matched against single lines, or the first
// 4 KiB of a line. The match of its first group is hidden, or the whole match if it has no group. A stream is held from
// the literal at the start of the expression to the end of the line, or from the start of the line if the expression
// has no such literal.
type Pattern struct {
	Category Category `json:"category"`
	Regexp   string   `json:"regexp"`
	Hides    []string `json:"hides,omitempty"`  // examples that must contain a find, checked at load
	Leaves   []string `json:"leaves,omitempty"` // examples that must not contain a find
}

// Allow exempts finds whose whole text matches the regular expression. It does not affect learned secrets.
type Allow struct {
	Category Category `json:"category,omitempty"` // category of the finds; empty for any
	Regexp   string   `json:"regexp"`
	Passes   []string `json:"passes,omitempty"` // examples that must match, checked at load
}

// Rules are a checked Config. They are immutable and can serve any number of tables.
type Rules struct {
	patterns []compiled
	allow    []allowed
	without  map[Category]bool
}

type compiled struct {
	category Category
	re       *regexp.Regexp
	literal  []byte // prefix of every match
}

type allowed struct {
	category Category
	re       *regexp.Regexp
}

const (
	maxPatterns = 256
	maxPattern  = 4 << 10 // bytes of a regular expression
)

// Compile checks c.
func Compile(c Config) (*Rules, error) {
	if len(c.Patterns) > maxPatterns || len(c.Allow) > maxPatterns {
		return nil, bailey.Invalid.New(fmt.Sprintf("more than %d patterns", maxPatterns), "join some of them with |")
	}
	r := &Rules{without: map[Category]bool{}}
	for _, w := range c.Without {
		if !slices.Contains(Categories(), w) {
			return nil, bailey.Invalid.New(fmt.Sprintf("category %q is not built in", w),
				"the built-in ones are "+strings.Join(Categories(), ", "))
		}
		r.without[w] = true
	}
	for i, p := range c.Patterns {
		k, err := p.compilePattern(i + 1)
		if err != nil {
			return nil, err
		}
		r.patterns = append(r.patterns, k)
	}
	for i, a := range c.Allow {
		k, err := a.compileAllow(i + 1)
		if err != nil {
			return nil, err
		}
		r.allow = append(r.allow, k)
	}
	return r, nil
}

func (p Pattern) compilePattern(n int) (compiled, error) {
	what := fmt.Sprintf("pattern %d (%s)", n, p.Category)
	if p.Category == "" || cleanCategory(p.Category) != p.Category {
		return compiled{}, bailey.Invalid.New(fmt.Sprintf("pattern %d has the category %q", n, p.Category),
			"a category must be A-Z, 0-9 and underscores, begin with a letter and have at most 32 characters")
	}
	if Pseudonym(p.Category) { // it would be restored without a rule
		return compiled{}, bailey.Invalid.New(what+
			" has the category of a pseudonym, which needs no permit to be restored", "use another name, for example OWN_"+p.Category)
	}
	re, err := compileRegexp(what, p.Regexp)
	if err != nil {
		return compiled{}, err
	}
	if re.MatchString("") {
		return compiled{}, bailey.Invalid.New(what+" matches the empty text", "make it require at least one character")
	}
	literal, _ := re.LiteralPrefix()
	k := compiled{p.Category, re, []byte(literal)}
	for _, e := range p.Hides {
		if len(k.findSpans([]byte(e))) == 0 {
			return compiled{}, bailey.Invalid.New(fmt.Sprintf("%s finds nothing in its example %q", what, e),
				"change the expression or the example in hides")
		}
	}
	for _, e := range p.Leaves {
		if len(k.findSpans([]byte(e))) > 0 {
			return compiled{}, bailey.Invalid.New(fmt.Sprintf("%s matches something in %q", what, e),
				"change the expression or the example in leaves")
		}
	}
	return k, nil
}

func (a Allow) compileAllow(n int) (allowed, error) {
	what := fmt.Sprintf("allowance %d", n)
	if a.Category != "" && cleanCategory(a.Category) != a.Category {
		return allowed{}, bailey.Invalid.New(fmt.Sprintf("%s has the category %q", what, a.Category),
			"a category must be A-Z, 0-9 and underscores, begin with a letter and have at most 32 characters")
	}
	if _, err := compileRegexp(what, a.Regexp); err != nil {
		return allowed{}, err
	}
	re, err := compileRegexp(what, `^(?:`+a.Regexp+`)$`)
	if err != nil {
		return allowed{}, err
	}
	for _, e := range a.Passes {
		if !re.MatchString(e) {
			return allowed{}, bailey.Invalid.New(fmt.Sprintf("%s does not match its example %q as a whole", what, e),
				"change the expression or the example in passes")
		}
	}
	return allowed{a.Category, re}, nil
}

func compileRegexp(what, text string) (*regexp.Regexp, error) {
	if text == "" || len(text) > maxPattern {
		return nil, bailey.Invalid.New(fmt.Sprintf("%s has a regular expression of %d bytes", what, len(text)),
			"use between 1 and 4096 bytes")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, bailey.Invalid.Wrap(err, what+" is not a regular expression",
			"use the syntax of Go, https://pkg.go.dev/regexp/syntax")
	}
	return re, nil
}

// findSpans returns the parts of one line that the pattern hides.
func (k compiled) findSpans(line []byte) []span {
	if len(k.literal) > 0 && !bytes.Contains(line, k.literal) {
		return nil
	}
	var found []span
	for _, m := range k.re.FindAllSubmatchIndex(line, -1) {
		if len(m) > 2 && m[2] >= 0 {
			m = m[2:]
		}
		if m[1] > m[0] {
			found = append(found, span{m[0], m[1], k.category})
		}
	}
	return found
}

// isExempt reports whether a find is exempt.
func (r *Rules) isExempt(category string, text []byte) bool {
	if r.without[category] {
		return true
	}
	for _, a := range r.allow {
		if (a.category == "" || a.category == category) && a.re.Match(text) {
			return true
		}
	}
	return false
}

// NewTable returns an empty table that applies r.
func (r *Rules) NewTable() *Table {
	t := NewTable()
	t.rules = r
	return t
}

// lines finds custom patterns, line by line.
type lines struct {
	rules *Rules
	start int // of the line that has not ended
}

const maxLine = 4 << 10 // bytes of a line that patterns see at once

// scan continues the search and calls add for each find. It returns the first undecided offset.
func (l *lines) scan(b []byte, final bool, add func(span)) int {
	for {
		n := bytes.IndexByte(b[l.start:min(len(b), l.start+maxLine)], '\n')
		switch {
		case n >= 0:
			n++
		case len(b)-l.start >= maxLine:
			n = maxLine
		case !final:
			return l.holdOffset(b)
		default:
			n = len(b) - l.start
		}
		line := b[l.start : l.start+n]
		for _, p := range l.rules.patterns {
			for _, s := range p.findSpans(bytes.TrimRight(line, "\r\n")) {
				add(span{l.start + s.start, l.start + s.end, s.category})
			}
		}
		if l.start += n; n == 0 || l.start == len(b) {
			return l.start
		}
	}
}

// holdOffset returns the first offset of the open line at which a match may begin.
func (l *lines) holdOffset(b []byte) int {
	open := b[l.start:]
	from := len(open)
	for _, p := range l.rules.patterns {
		if len(p.literal) == 0 {
			return l.start
		}
		if i := bytes.Index(open, p.literal); i >= 0 {
			from = min(from, i)
		} else {
			from = min(from, len(open)-partialMarkLen(open, string(p.literal), false))
		}
	}
	return l.start + from
}
