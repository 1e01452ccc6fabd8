// Package gitremote reads the configuration of a git repository that somebody else may have prepared, and returns the
// https address of one of its remotes. It has a parser of its own, so git does not run on the configuration before the
// address was decided on.
//
// The package refuses, instead of guessing: a syntax that git reads in another way, another file that the configuration
// includes, and every key that would change where the remote leads, with which program, or what a call does there.
package gitremote

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"bailey"
)

// MaxConfig limits the size of a configuration, in bytes.
const MaxConfig = 1 << 20

const maxEntries = 20_000

// Entry is one variable. Section and Key are in lower case.
type Entry struct {
	Section, Sub, Key, Value string
	Bare                     bool // there is no value, not even an empty one
	Line                     int
}

// IsTrue reports whether the value is true, as git-config(1) reads a boolean.
func (e Entry) IsTrue() bool {
	n, err := strconv.Atoi(e.Value)
	return e.Bare || err == nil && n != 0 || slices.Contains([]string{"true", "yes", "on"}, strings.ToLower(e.Value))
}

// Name returns the name of the variable as git config prints it.
func (e Entry) Name() string {
	if e.Sub == "" {
		return e.Section + "." + e.Key
	}
	return e.Section + "." + e.Sub + "." + e.Key
}

// Config is a parsed configuration file.
type Config struct{ entries []Entry }

// Entries returns the variables in the order of the file.
func (c *Config) Entries() []Entry { return c.entries }

// parser reads git-config(1), "Syntax". It refuses the deprecated form [section.subsection].
type parser struct {
	text string
	at   int
	line int
}

// Parse parses a configuration file.
func Parse(data []byte) (*Config, error) {
	if len(data) > MaxConfig {
		return nil, refusedConfig(0, "has %d bytes, more than %d", len(data), MaxConfig)
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
	if !utf8.ValidString(text) {
		return nil, refusedConfig(0, "is not UTF-8")
	}
	p, c := &parser{text: text, line: 1}, &Config{}
	section, sub := "", ""
	for p.at < len(p.text) {
		var err error
		switch b := p.text[p.at]; {
		case b == ' ' || b == '\t' || b == '\n':
			p.skipByte()
		case b == '#' || b == ';':
			p.skipLine()
		case b == '[':
			section, sub, err = p.readSection()
		case section == "":
			err = p.faultError("a variable stands before the first section")
		default:
			e := Entry{Section: section, Sub: sub, Line: p.line}
			if e.Key, e.Value, e.Bare, err = p.readVariable(); err == nil {
				c.entries = append(c.entries, e)
			}
		}
		if err == nil && len(c.entries) > maxEntries {
			err = p.faultError("there are more than %d variables", maxEntries)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (p *parser) faultError(format string, args ...any) error {
	return refusedConfig(p.line, format, args...)
}

func refusedConfig(line int, format string, args ...any) error {
	at := ""
	if line > 0 {
		at = fmt.Sprintf(" line %d:", line)
	}
	return bailey.Invalid.New(".git/config"+at+" "+fmt.Sprintf(format, args...),
		"correct the file; git config --list shows how git reads it")
}

func (p *parser) skipByte() {
	if p.text[p.at] == '\n' {
		p.line++
	}
	p.at++
}

// skipLine skips to the end of the line.
func (p *parser) skipLine() {
	if n := strings.IndexByte(p.text[p.at:], '\n'); n >= 0 {
		p.at += n
	} else {
		p.at = len(p.text)
	}
}

// readSection reads [name] or [name "subsection"].
func (p *parser) readSection() (name, sub string, err error) {
	p.at++
	start := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	name = strings.ToLower(p.text[start:p.at])
	rest := p.text[p.at:]
	switch {
	case name == "":
		return "", "", p.faultError("a section has no name of letters, digits and -")
	case strings.HasPrefix(rest, "]"):
		p.at++
		return name, "", nil
	case strings.HasPrefix(rest, "."):
		return "", "", p.faultError("[%s.…] is an old form of a section; write [%s \"…\"]", name, name)
	}
	trimmed := strings.TrimLeft(rest, " \t")
	if len(trimmed) == len(rest) || !strings.HasPrefix(trimmed, `"`) {
		return "", "", p.faultError("section %s is not closed", name)
	}
	p.at += len(rest) - len(trimmed) + 1
	var b strings.Builder
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch {
		case c == '"':
			if !strings.HasPrefix(p.text[p.at:], "]") {
				return "", "", p.faultError("section %s is not closed", name)
			}
			p.at++
			if b.Len() == 0 {
				return "", "", p.faultError("section %s has an empty subsection", name)
			}
			return name, b.String(), nil
		case c == '\\' && p.at < len(p.text) && p.text[p.at] >= ' ':
			b.WriteByte(p.text[p.at])
			p.at++
		case c < ' ' || c == 0x7f || c == '\\':
			return "", "", p.faultError("the subsection of %s holds a control character", name)
		default:
			b.WriteByte(c)
		}
	}
	return "", "", p.faultError("section %s is not closed", name)
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-'
}

// readVariable reads name = value, or a name alone.
func (p *parser) readVariable() (key, value string, bare bool, err error) {
	start := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	key = strings.ToLower(p.text[start:p.at])
	if key == "" || key[0] < 'a' || key[0] > 'z' {
		return "", "", false, p.faultError("neither a section nor a variable begins here")
	}
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
	switch {
	case p.at == len(p.text) || p.text[p.at] == '\n':
		return key, "", true, nil
	case p.text[p.at] != '=':
		return "", "", false, p.faultError("variable %s has no = before its value", key)
	}
	p.at++
	value, err = p.readValue(key)
	return key, value, false, err
}

// readValue reads a value up to the end of its line. Quotes and backslashes have the meaning that git gives them.
func (p *parser) readValue(key string) (string, error) {
	var b strings.Builder
	quoted, blanks := false, "" // blanks count unless nothing but blanks or a comment follows
	keepBlanks := func() {
		b.WriteString(blanks)
		blanks = ""
	}
	for p.at < len(p.text) {
		c := p.text[p.at]
		switch {
		case c == '\n':
			if quoted {
				return "", p.faultError("the value of %s has no closing quote", key)
			}
			return b.String(), nil
		case (c == '#' || c == ';') && !quoted:
			p.skipLine()
			continue
		case (c == ' ' || c == '\t') && !quoted:
			if b.Len() > 0 {
				blanks += string(c)
			}
		case c == '"':
			keepBlanks()
			quoted = !quoted
		case c == '\\':
			keepBlanks()
			if err := p.readEscape(key, &b); err != nil {
				return "", err
			}
		case c < ' ' && c != '\t' || c == 0x7f:
			return "", p.faultError("the value of %s holds a control character", key)
		default:
			keepBlanks()
			b.WriteByte(c)
		}
		p.at++
	}
	if quoted {
		return "", p.faultError("the value of %s has no closing quote", key)
	}
	return b.String(), nil
}

// readEscape reads a backslash and what follows. The parser stays on the last byte of both.
func (p *parser) readEscape(key string, value *strings.Builder) error {
	p.at++
	if p.at == len(p.text) {
		return p.faultError("the value of %s ends with a backslash", key)
	}
	switch c := p.text[p.at]; c {
	case '\n':
		p.line++ // the value goes on in the next line
	case 't':
		value.WriteByte('\t')
	case 'n':
		value.WriteByte('\n')
	case 'b':
		value.WriteByte('\b')
	case '\\', '"':
		value.WriteByte(c)
	default:
		return p.faultError("the value of %s has an escape that git does not know", key)
	}
	return nil
}
