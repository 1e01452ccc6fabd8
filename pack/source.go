package pack

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"bailey"
)

// Limits of a manifest. The parser is recursive, and Go cannot recover from a stack overflow. Nesting is therefore
// limited on the tokens, before the parser runs.
const (
	maxFile   = 1 << 20 // bytes
	maxNest   = 32      // open flow brackets, and block entries on one line
	maxIndent = 128     // columns; nested blocks are indented
	maxFaults = 20      // reported at once
)

// source is a manifest while it is parsed. It collects all faults instead of stopping at the first one.
type source struct {
	name   string
	faults []fault
}

type fault struct {
	line, column int
	text         string
}

func (s *source) addFault(at *token.Token, format string, args ...any) {
	f := fault{text: fmt.Sprintf(format, args...)}
	if at != nil && at.Position != nil {
		f.line, f.column = at.Position.Line, at.Position.Column
	}
	s.faults = append(s.faults, f)
}

// toError returns all faults in the order of the file as one Invalid error, or nil if there are none.
func (s *source) toError() error {
	if len(s.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(s.faults, func(a, b fault) int {
		if a.line != b.line {
			return a.line - b.line
		}
		return a.column - b.column
	})
	var b strings.Builder
	for i, f := range s.faults {
		if i == maxFaults {
			fmt.Fprintf(&b, "\n%s: and %d more", s.name, len(s.faults)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s:%d:%d: %s", s.name, f.line, f.column, f.text)
	}
	return bailey.Invalid.New(b.String(), "correct the manifest; a pack with a fault is not loaded at all")
}

// parseDocument returns the body of the only document. If there are faults, it records them and returns nil.
func (s *source) parseDocument(data []byte) (body ast.Node) {
	if len(data) > maxFile {
		s.addFault(nil, "a manifest is at most %d bytes, this one has %d", maxFile, len(data))
		return nil
	}
	if line, what := findHiddenChar(string(data)); what != "" {
		s.faults = append(s.faults, fault{line, 1, what + " does not belong in a manifest"})
		return nil
	}
	// The parser is third-party code and the input is untrusted. A panic is reported as a fault of the file.
	defer func() {
		if p := recover(); p != nil {
			s.addFault(nil, "is not YAML that can be read: %s", safeText(fmt.Sprint(p)))
			body = nil
		}
	}()
	tokens := lexer.Tokenize(string(data))
	if !s.checkTokens(tokens) {
		return nil
	}
	// This package reports duplicate keys itself, all of them.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		s.addSyntaxFault(err)
		return nil
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		s.addFault(nil, "wants one YAML document, found %d", len(file.Docs))
		return nil
	}
	return file.Docs[0].Body
}

// findHiddenChar returns the first character that can make a manifest look different from its meaning.
func findHiddenChar(text string) (line int, what string) {
	for i, row := range strings.Split(text, "\n") {
		if what := describeHiddenChar(strings.TrimSuffix(row, "\r"), true); what != "" {
			return i + 1, what
		}
	}
	return 0, ""
}

func (s *source) addSyntaxFault(err error) {
	if e, ok := err.(yaml.Error); ok {
		s.addFault(e.GetToken(), "%s", safeText(e.GetMessage()))
		return
	}
	s.addFault(nil, "%s", safeText(err.Error()))
}

// checkTokens refuses YAML features that a manifest does not need (anchors, aliases, tags, merge keys, directives, complex
// keys), and nesting above the limits.
func (s *source) checkTokens(tokens token.Tokens) bool {
	flow, opened, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, opened = t.Position.Line, 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType,
			token.MappingKeyType:
			s.addFault(t, "%q: anchors, aliases, tags, merge keys, directives and complex keys are not read",
				clipText(t.Value))
			return false
		case token.InvalidType:
			s.addFault(t, "%s", safeText(t.Error))
			return false
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingValueType:
			if flow == 0 {
				opened++
			}
		}
		if flow > maxNest || opened > maxNest {
			s.addFault(t, "is nested deeper than %d", maxNest)
			return false
		}
	}
	return s.checkIndent(tokens)
}

// checkIndent limits the columns of block entries, and so the nesting of blocks.
func (s *source) checkIndent(tokens token.Tokens) bool {
	flow := 0
	for i, t := range tokens {
		at := t
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.MappingValueType:
			at = tokens[max(0, i-1)] // the key
		}
		entry := t.Type == token.MappingValueType || t.Type == token.SequenceEntryType
		if entry && flow == 0 && at.Position.Column > maxIndent {
			s.addFault(at, "is indented by more than %d columns", maxIndent)
			return false
		}
	}
	return true
}

const maxShown = 60 // bytes of an untrusted value that an error repeats

// safeText makes untrusted text safe for an error: one line, control characters escaped, shortened.
func safeText(v string) string {
	q := strconv.QuoteToGraphic(clipText(v))
	return q[1 : len(q)-1]
}

// clipText cuts v to maxShown bytes at a character boundary.
func clipText(v string) string {
	if len(v) <= maxShown {
		return v
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(v[cut]) {
		cut--
	}
	return v[:cut] + "…"
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// didYouMean returns "; did you mean …?" if a known word is similar to the unknown one.
func didYouMean(word string, known []string) string {
	best := closestWord(word, known)
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// closestWord returns the known word with the smallest edit distance. The limit is two, or a third of a long word, or one
// for a word of two letters.
func closestWord(word string, known []string) string {
	best, least := "", max(min(2, len(word)-1), min(len(word), maxShown)/3)+1
	for _, k := range known {
		if d := editDistance(clipText(word), k); d < least {
			best, least = k, d
		}
	}
	return best
}

// editDistance returns the Levenshtein distance of bytes, in lower case.
func editDistance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
