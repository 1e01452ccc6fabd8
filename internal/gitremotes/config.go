package gitremotes

import (
	"errors"
	"fmt"
	"strings"
)

// setting is one value of a git configuration file. section and key are in lower case, name is the subsection.
type setting struct{ section, name, key, value string }

// parseConfig parses a git configuration file (git-config(1), "CONFIGURATION FILE"). It refuses everything that git
// would refuse or that it does not know, because a different reading could name another repository.
func parseConfig(text string) (list []setting, err error) {
	p := &configParser{rest: strings.TrimPrefix(strings.ReplaceAll(text, "\r\n", "\n"), "\ufeff"), line: 1}
	for p.skipBlank(); p.rest != ""; p.skipBlank() {
		if p.rest[0] == '[' {
			err = p.readHeader()
		} else {
			var s setting
			if s, err = p.readSetting(); err == nil {
				list = append(list, s)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
	return list, nil
}

type configParser struct {
	rest          string
	line          int
	section, name string
	open          bool // a section was read
}

func (p *configParser) nextByte() byte {
	c := p.rest[0]
	p.rest = p.rest[1:]
	if c == '\n' {
		p.line++
	}
	return c
}

// skipBlank skips white space, empty lines and comments.
func (p *configParser) skipBlank() {
	for p.rest != "" {
		switch p.rest[0] {
		case ' ', '\t', '\n', '\r':
			p.nextByte()
		case '#', ';':
			p.skipLine()
		default:
			return
		}
	}
}

func (p *configParser) skipLine() {
	for p.rest != "" && p.rest[0] != '\n' {
		p.nextByte()
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

func (p *configParser) readWord(more string) string {
	n := 0
	for n < len(p.rest) && (isWordByte(p.rest[n]) || strings.IndexByte(more, p.rest[n]) >= 0) {
		n++
	}
	word := p.rest[:n]
	p.rest = p.rest[n:]
	return strings.ToLower(word)
}

var errHeader = errors.New("a section has another form than [name] or [name \"name\"]")

// readHeader reads [section], [section "name"] or the old form [section.name].
func (p *configParser) readHeader() error {
	p.nextByte()
	p.section, p.name, p.open = p.readWord("."), "", true
	if section, name, dotted := strings.Cut(p.section, "."); dotted {
		p.section, p.name = section, name
	}
	if p.section == "" {
		return errHeader
	}
	p.rest = strings.TrimLeft(p.rest, " \t")
	if strings.HasPrefix(p.rest, `"`) && p.name == "" {
		p.nextByte()
		var b strings.Builder
		for {
			if p.rest == "" || p.rest[0] == '\n' {
				return errHeader
			}
			c := p.nextByte()
			if c == '"' {
				break
			}
			if c == '\\' {
				if p.rest == "" || p.rest[0] == '\n' {
					return errHeader
				}
				c = p.nextByte()
			}
			b.WriteByte(c)
		}
		if p.name = b.String(); p.name == "" {
			return errHeader
		}
	}
	if !strings.HasPrefix(p.rest, "]") {
		return errHeader
	}
	p.nextByte()
	return nil
}

// readSetting reads a key and its value. A key without a value is true.
func (p *configParser) readSetting() (setting, error) {
	s := setting{section: p.section, name: p.name}
	if c := p.rest[0]; !p.open || !isWordByte(c) || c == '-' || c >= '0' && c <= '9' {
		return s, errors.New("no key is here, or no section is before it")
	}
	s.key = p.readWord("")
	p.rest = strings.TrimLeft(p.rest, " \t")
	switch {
	case p.rest == "" || strings.IndexByte("\n#;", p.rest[0]) >= 0:
		p.skipLine()
		s.value = "true"
		return s, nil
	case p.rest[0] != '=':
		return s, errors.New("no = is after a key")
	}
	p.nextByte()
	var err error
	s.value, err = p.readValue()
	return s, err
}

// readValue reads a value up to the end of its line: quoted parts, escapes and continued lines, without a comment.
func (p *configParser) readValue() (string, error) {
	var b strings.Builder
	quoted, keep := false, 0 // keep is the length without trailing blanks
	for p.rest != "" {
		c := p.nextByte()
		switch {
		case c == '\n':
			if quoted {
				return "", errors.New("a quotation does not end")
			}
			return b.String()[:keep], nil
		case !quoted && (c == '#' || c == ';'):
			p.skipLine()
			continue
		case !quoted && (c == ' ' || c == '\t' || c == '\r'):
			if b.Len() > 0 {
				b.WriteByte(c)
			}
			continue
		case c == '"':
			quoted, keep = !quoted, b.Len()
			continue
		case c == '\\':
			keep = b.Len()
			if p.rest == "" {
				return "", errors.New("a backslash is at the end")
			}
			c = p.nextByte()
			if c == '\n' {
				continue
			}
			at := strings.IndexByte(`nt"\b`, c)
			if at < 0 {
				return "", errors.New("an escape is not known")
			}
			b.WriteByte("\n\t\"\\\b"[at])
			keep = b.Len()
			continue
		}
		b.WriteByte(c)
		keep = b.Len()
	}
	if quoted {
		return "", errors.New("a quotation does not end")
	}
	return b.String()[:keep], nil
}
