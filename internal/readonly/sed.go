package readonly

import (
	"strings"
)

// checkSed checks the scripts of sed. sed 4.9 and POSIX read the delimiter inside of a bracket expression as a
// character, older versions and BusyBox as the end of the pattern. A script is accepted if one reading is harmless and
// the other reading is harmless too, or is an error that every sed reports before it runs anything.
func checkSed(c *call) *refusal {
	var scripts []string
	last := 0
	for _, o := range c.options {
		if o.name == "e" || o.name == "expression" {
			scripts = append(scripts, o.value)
			last = o.at
		}
	}
	if r := c.literalScript(scripts == nil); r != nil {
		return r
	}
	switch {
	case scripts == nil && len(c.operands) == 0:
		return newRefusal(c.rule.Hint, "sed has no script")
	case scripts == nil:
		scripts = []string{c.operandText(0)}
		c.operands = c.operands[1:]
	case len(c.operands) > 0 && c.operands[0] < last:
		return newRefusal("Put the options before the files.",
			"an option of sed follows a file, which some versions read as the script")
	}
	text := strings.Join(scripts, "\n")
	ended := 0
	for _, brackets := range []bool{true, false} {
		p := &sedParser{text: text, hint: c.rule.Hint, brackets: brackets}
		r := p.parseCommands()
		switch {
		case r == nil:
			ended++
		case !p.invalid:
			return r
		case ended == 0 && !brackets:
			return r
		}
	}
	for _, at := range c.operands {
		if r := c.checkOperand(&c.args[at], Files); r != nil {
			return r
		}
	}
	return nil
}

// literalScript makes the words that sed reads as script literal.
func (c *call) literalScript(operand bool) *refusal {
	if !operand || len(c.operands) == 0 {
		return nil
	}
	w := &c.args[c.operands[0]]
	if w.tilde || w.data {
		return newRefusal(c.rule.Hint, "the script of sed is not literal")
	}
	w.makeLiteral()
	return nil
}

// sedParser parses a sed script.
type sedParser struct {
	text     string
	hint     string
	pos      int
	brackets bool // a bracket expression may contain the delimiter
	invalid  bool // the refusal is an error that every sed reports when it reads the script
	depth    int
}

func (p *sedParser) peekByte() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *sedParser) skipAny(set string) {
	for p.pos < len(p.text) && strings.IndexByte(set, p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// restOfLine returns the text up to the end of the line and moves behind it.
func (p *sedParser) restOfLine() string {
	line, _, _ := strings.Cut(p.text[p.pos:], "\n")
	p.pos += len(line)
	return line
}

func (p *sedParser) refuseScript(format string, args ...any) *refusal {
	return newRefusal(p.hint, "the script of sed "+format, args...)
}

func (p *sedParser) parseCommands() *refusal {
	for {
		p.skipAny(" \t\n;")
		if p.pos >= len(p.text) {
			if p.depth != 0 {
				p.invalid = true
				return p.refuseScript("has a { without }")
			}
			return nil
		}
		if r := p.parseAddresses(); r != nil {
			return r
		}
		if r := p.parseCommand(); r != nil {
			return r
		}
	}
}

// parseAddresses parses no, one or two addresses and the negation.
func (p *sedParser) parseAddresses() *refusal {
	found, r := p.parseAddress()
	if r != nil {
		return r
	}
	p.skipAny(" \t")
	if found && p.peekByte() == ',' {
		p.pos++
		p.skipAny(" \t")
		if c := p.peekByte(); c == '+' || c == '~' {
			p.pos++
		}
		if found, r = p.parseAddress(); r != nil {
			return r
		}
		if !found {
			return p.refuseScript("has a comma without a second address")
		}
	}
	p.skipAny(" \t!")
	return nil
}

func (p *sedParser) parseAddress() (found bool, r *refusal) {
	switch c := p.peekByte(); {
	case c >= '0' && c <= '9':
		p.skipAny("0123456789")
		if p.peekByte() == '~' {
			p.pos++
			p.skipAny("0123456789")
		}
		return true, nil
	case c == '$':
		p.pos++
		return true, nil
	case c == '/':
		p.pos++
	case c == '\\':
		if p.pos++; p.pos >= len(p.text) {
			return false, p.refuseScript("ends with a backslash")
		}
		if r := p.checkDelimiter(p.peekByte()); r != nil {
			return false, r
		}
		p.pos++
	default:
		return false, nil
	}
	if _, r := p.readUntil(p.text[p.pos-1], true); r != nil {
		return false, r
	}
	p.skipAny("IM")
	return true, nil
}

// checkDelimiter accepts punctuation. Other characters are legal for sed, but hide the end of a pattern from a reader.
func (p *sedParser) checkDelimiter(c byte) *refusal {
	if c <= ' ' || c == '\\' || c > '~' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
		return p.refuseScript("uses the delimiter %q", string(rune(c)))
	}
	return nil
}

// readUntil returns the text before the delimiter and moves behind the delimiter.
func (p *sedParser) readUntil(end byte, pattern bool) (string, *refusal) {
	from := p.pos
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '\n':
			return "", p.refuseScript("has a line break inside of a pattern")
		case c == end:
			p.pos++
			return p.text[from : p.pos-1], nil
		case c == '\\':
			p.pos++
		case c == '[' && pattern && p.brackets:
			n := bracketLength(p.text[p.pos:])
			if n > 0 && ambiguousBracket(p.text[p.pos:p.pos+n]) {
				return "", p.refuseScript(`has \\] or a second [ inside of brackets, which versions of sed read differently`)
			}
			if n > 0 {
				p.pos += n
				continue
			}
		}
		p.pos++
	}
	p.pos = len(p.text)
	p.invalid = true
	return "", p.refuseScript("has a pattern without an end")
}

// bracketLength returns the length of the bracket expression at the start of s, or 0 if it has no end.
func bracketLength(s string) int {
	i := 1
	if i < len(s) && s[i] == '^' {
		i++
	}
	if i < len(s) && s[i] == ']' {
		i++
	}
	for ; i < len(s) && s[i] != '\n'; i++ {
		switch {
		case s[i] == ']':
			return i + 1
		case s[i] == '[' && i+1 < len(s) && strings.IndexByte(":.=", s[i+1]) >= 0:
			n := strings.Index(s[i+2:], s[i+1:i+2]+"]")
			if n < 0 {
				return 0
			}
			i += n + 3
		}
	}
	return 0
}

// ambiguousBracket reports whether versions of sed can disagree on the end of a bracket expression.
func ambiguousBracket(b string) bool {
	if strings.HasSuffix(b, `\]`) && len(b) > 3 || b == `[\]` {
		return true
	}
	for i := 1; i < len(b)-1; i++ {
		if b[i] == '[' {
			if strings.IndexByte(":.=", b[i+1]) < 0 {
				return true
			}
			i += 1 + strings.Index(b[i+2:], b[i+1:i+2]+"]") + 2
		}
	}
	return false
}

// parseCommand parses one command. Its letters are those of GNU sed and BusyBox; e, w and W run a program or write a
// file.
func (p *sedParser) parseCommand() *refusal {
	c := p.peekByte()
	p.pos++
	switch c {
	case '{':
		p.depth++
		return nil
	case '}':
		if p.depth--; p.depth < 0 {
			return p.refuseScript("has a } without {")
		}
		return p.endCommand()
	case '=', 'd', 'D', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'F', 'z':
		return p.endCommand()
	case 'l', 'q', 'Q':
		p.skipAny(" \t")
		p.skipAny("0123456789")
		return p.endCommand()
	case ':', 'b', 't', 'T':
		p.skipAny(" \t")
		p.skipAny("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")
		return p.endCommand()
	case 'a', 'i', 'c':
		if text := p.restOfLine(); strings.Trim(text, " \t\\") == "" || strings.HasSuffix(text, `\`) {
			return p.refuseScript("has the command %c without text on its line", c)
		}
		return nil
	case 'r', 'R':
		p.skipAny(" \t")
		return checkRead(p.restOfLine())
	case 's':
		return p.parseSubstitute()
	case 'y':
		return p.parseTransliterate()
	case '#':
		p.restOfLine()
		return nil
	case 'e':
		return p.refuseScript("runs a program with the command e")
	case 'w', 'W':
		return p.checkWriteTarget()
	case 0:
		return p.refuseScript("has an address without a command")
	}
	p.invalid = strings.IndexByte(`])*+^.\,"?-|`, c) >= 0
	return p.refuseScript("contains the command %q", string(rune(c)))
}

// endCommand accepts the separators after a command.
func (p *sedParser) endCommand() *refusal {
	p.skipAny(" \t")
	switch p.peekByte() {
	case ';', '\n':
		p.pos++
		return nil
	case '}', '#':
		return nil
	}
	if p.pos >= len(p.text) {
		return nil
	}
	return p.refuseScript("has %q after a command", p.restOfLine())
}

// checkWriteTarget checks the file of w. Only the standard streams of sed itself are no file.
func (p *sedParser) checkWriteTarget() *refusal {
	p.skipAny(" \t")
	if name := p.restOfLine(); name != "/dev/stdout" && name != "/dev/stderr" {
		return p.refuseScript("writes the file %q with w", name)
	}
	return nil
}

func (p *sedParser) parseSubstitute() *refusal {
	d := p.peekByte()
	if r := p.checkDelimiter(d); r != nil {
		return r
	}
	p.pos++
	if _, r := p.readUntil(d, true); r != nil {
		return r
	}
	if _, r := p.readUntil(d, false); r != nil {
		return r
	}
	p.skipAny("gpiIMm0123456789")
	switch c := p.peekByte(); {
	case c == 'e':
		return p.refuseScript("runs a program with the flag e of s")
	case c == 'w':
		p.pos++
		return p.checkWriteTarget()
	case c != 0 && strings.IndexByte(" \t;\n}#", c) < 0:
		p.invalid = true
		return p.refuseScript("has the flag %q after s", string(rune(c)))
	}
	return p.endCommand()
}

func (p *sedParser) parseTransliterate() *refusal {
	d := p.peekByte()
	if r := p.checkDelimiter(d); r != nil {
		return r
	}
	p.pos++
	for range 2 {
		if _, r := p.readUntil(d, false); r != nil {
			return r
		}
	}
	return p.endCommand()
}
