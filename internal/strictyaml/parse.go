// Package strictyaml reads YAML files that people write and that decide about something: manifests, settings, rule tests
// and the broker's table. A file has one document, is limited in size and nesting, and contains only what JSON can
// express. Each fault has its line and column.
package strictyaml

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits of a file. The parser is recursive, and Go cannot recover from a stack overflow. Nesting is therefore limited
// on the tokens, before the parser runs.
type Limits struct {
	Bytes  int
	Flow   int // open brackets and braces
	Column int // of a block entry; blocks nest by column, even on one line
	// Line returns the fault of a line of the file, or "". nil: every line of UTF-8 is accepted.
	Line func(line string) string
	// Opaque hides the messages of the parser, which can quote a secret.
	Opaque bool
}

// Fault is a fault of a file. Line and Column count from 1; they are 0 if the fault concerns the whole file.
type Fault struct {
	Line, Column int
	Text         string
}

// String returns the fault with its position, to be appended to the name of the file.
func (f Fault) String() string {
	if f.Line == 0 {
		return ": " + f.Text
	}
	return fmt.Sprintf(":%d:%d: %s", f.Line, f.Column, f.Text)
}

// faultAt returns a fault on one line of visible text.
func faultAt(at *token.Token, text string) *Fault {
	f := &Fault{Text: strings.Map(replaceHidden, text)}
	if at != nil && at.Position != nil {
		f.Line, f.Column = at.Position.Line, at.Position.Column
	}
	return f
}

func replaceHidden(r rune) rune {
	if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
		return utf8.RuneError
	}
	return r
}

// Parse returns the documents of a file. Keys can occur twice in a mapping, which [File.Fields] refuses.
func (l Limits) Parse(text []byte) (docs []*ast.DocumentNode, fault *Fault) {
	if len(text) > l.Bytes {
		return nil, faultAt(nil, fmt.Sprintf("a file of this kind has at most %d bytes, this one has %d", l.Bytes, len(text)))
	}
	line := 0
	for row := range strings.Lines(string(text)) {
		line++
		if bad := l.lineFault(strings.TrimSuffix(strings.TrimSuffix(row, "\n"), "\r")); bad != "" {
			return nil, &Fault{Line: line, Column: 1, Text: bad}
		}
	}
	// The parser is third-party code and the input is untrusted. A panic is reported as a fault of the file.
	defer func() {
		if p := recover(); p != nil {
			docs, fault = nil, l.parserFault(nil, fmt.Sprint(p))
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if fault := l.checkTokens(tokens); fault != nil {
		return nil, fault
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var at yaml.Error
		if errors.As(err, &at) {
			return nil, l.parserFault(at.GetToken(), at.GetMessage())
		}
		return nil, l.parserFault(nil, err.Error())
	}
	return file.Docs, nil
}

func (l Limits) lineFault(line string) string {
	switch {
	case l.Line != nil:
		return l.Line(line)
	case !utf8.ValidString(line):
		return "invalid UTF-8"
	}
	return ""
}

func (l Limits) parserFault(at *token.Token, message string) *Fault {
	if l.Opaque {
		message = "this cannot be parsed"
	}
	return faultAt(at, Clip(message))
}

// checkTokens refuses nesting above the limits, and YAML features that can make a small file a large one or that a
// reader of the file might not know.
func (l Limits) checkTokens(tokens token.Tokens) *Fault {
	flow := 0
	for _, t := range tokens {
		at, entry := t, false
		switch t.Type {
		case token.AnchorType, token.AliasType, token.TagType, token.MergeKeyType, token.DirectiveType,
			token.MappingKeyType:
			return faultAt(t, "anchors, aliases, tags, merge keys, directives and complex keys are not supported")
		case token.InvalidType:
			return l.parserFault(t, t.Error)
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType:
			entry = flow == 0
		case token.MappingValueType:
			entry = flow == 0
			if t.Prev != nil {
				at = t.Prev // the key
			}
		}
		if flow > l.Flow || entry && at.Position.Column > l.Column {
			return faultAt(at, "files of this kind are nested too deeply")
		}
	}
	return nil
}
