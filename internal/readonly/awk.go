package readonly

import (
	"strings"
)

// awkRefused are identifiers of awk that run a program, or change which files awk opens. gawk opens a network
// connection for a file named /inet/…, so the list of files must not change (ARGV, and SYMTAB that reaches it).
var awkRefused = map[string]string{
	"system": "runs a program with system", "ARGV": "changes the files that awk opens",
	"ARGC":   "changes the files that awk opens",
	"SYMTAB": "reaches the variables of awk by name", "FUNCTAB": "reaches the functions of awk by name",
	"PROCINFO": "can change how awk runs programs",
}

// checkAwk checks the program, the assignments and the files of awk.
func checkAwk(c *call) *refusal {
	for _, o := range c.options {
		if o.name == "v" || o.name == "assign" {
			if r := awkAssignment(o.value); r != nil {
				return r
			}
		}
	}
	if len(c.operands) == 0 {
		if c.hasOption("version", "help", "V") {
			return nil
		}
		return newRefusal(c.rule.Hint, "awk has no program")
	}
	w := &c.args[c.operands[0]]
	if w.tilde || w.data {
		return newRefusal(c.rule.Hint, "the program of awk is not literal")
	}
	w.makeLiteral()
	p := &awkLexer{text: w.value, hint: c.rule.Hint}
	if r := p.checkProgram(); r != nil {
		return r
	}
	for _, at := range c.operands[1:] {
		w := &c.args[at]
		if name, _, ok := strings.Cut(w.value, "="); ok && !strings.Contains(name, "/") {
			if r := awkAssignment(w.value); r != nil {
				return r
			}
		}
		if strings.HasPrefix(w.value, "/inet") {
			return newRefusal(c.rule.Hint, "awk opens a network connection for %s", w.value)
		}
		c.end = 1 // awk reads options only before the program
		if r := c.checkOperand(w, Files); r != nil {
			return r
		}
	}
	return nil
}

func awkAssignment(text string) *refusal {
	name, _, ok := strings.Cut(text, "=")
	if !ok || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" ||
		awkRefused[name] != "" {
		return newRefusal("Write -v NAME=VALUE", "the assignment %q of awk is not accepted", text)
	}
	return nil
}

// awkToken is the kind of the token before the present one. It decides whether a slash divides or begins a regular
// expression. If versions of awk can disagree, a slash is refused, since one of the readings hides the text behind it.
type awkToken int

const (
	awkStart   awkToken = iota // an operand must follow, so a slash begins a regular expression
	awkOperand                 // a variable, a field, a number or a bracket ended, so a slash divides
	awkUnclear                 // a slash is refused
)

// awkLexer reads an awk program as a list of tokens. It refuses pipes, output redirections, system, getline from a
// computed name, and characters with a meaning only in gawk (@). It does not parse expressions: a > is an output
// redirection if it follows print or printf outside of parentheses (POSIX awk, section Grammar).
type awkLexer struct {
	text    string
	hint    string
	pos     int
	prev    awkToken
	control bool   // the previous token is if, while, for or switch
	open    []bool // for each open parenthesis: it belongs to if, while, for or switch
	print   int    // number of parentheses open at the print or printf whose expressions are read, or -1
	getline bool   // the present expression contains getline
}

func (p *awkLexer) refuseProgram(format string, args ...any) *refusal {
	return newRefusal(p.hint, "the program of awk "+format, args...)
}

func (p *awkLexer) checkProgram() *refusal {
	p.print = -1
	for p.pos < len(p.text) {
		if r := p.readToken(); r != nil {
			return r
		}
	}
	return nil
}

func (p *awkLexer) readToken() *refusal {
	c := p.text[p.pos]
	switch {
	case c == ' ' || c == '\t':
		p.pos++
		return nil
	case c == '#':
		p.pos = len(p.text) // the program is one line
		return nil
	case c == '"':
		_, r := p.readString()
		return r
	case c == '/' && p.prev == awkStart:
		return p.readRegex()
	case c == '/' && p.prev == awkUnclear:
		return p.refuseProgram("has a slash that can divide or begin a regular expression. Put the operand in parentheses")
	case isLetter(c):
		return p.readName()
	case c >= '0' && c <= '9' || c == '.':
		return p.readNumber()
	}
	return p.readOperator(c)
}

// readNumber reads a decimal number. A letter directly after it is refused: some versions read hexadecimal numbers
// there.
func (p *awkLexer) readNumber() *refusal {
	digits := func() {
		for p.pos < len(p.text) && (p.text[p.pos] >= '0' && p.text[p.pos] <= '9' || p.text[p.pos] == '.') {
			p.pos++
		}
	}
	digits()
	if rest := p.text[p.pos:]; rest != "" && (rest[0] == 'e' || rest[0] == 'E') {
		p.pos++
		if len(rest) > 1 && (rest[1] == '+' || rest[1] == '-') {
			p.pos++
		}
		digits()
	}
	if p.pos < len(p.text) && isLetter(p.text[p.pos]) || isLetter(p.text[p.pos-1]) {
		return p.refuseProgram("has a letter directly after a number")
	}
	p.prev = awkOperand
	return nil
}

func isLetter(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// readString reads a string and returns its text with escapes.
func (p *awkLexer) readString() (string, *refusal) {
	from := p.pos + 1
	for p.pos++; p.pos < len(p.text); p.pos++ {
		switch p.text[p.pos] {
		case '\\':
			p.pos++
		case '"':
			p.pos++
			p.prev = awkUnclear
			return p.text[from : p.pos-1], nil
		}
	}
	return "", p.refuseProgram("has a string without an end")
}

// readRegex reads a regular expression. A slash inside of brackets ends it in some versions of awk only, so it is
// refused.
func (p *awkLexer) readRegex() *refusal {
	from := p.pos + 1
	for p.pos++; p.pos < len(p.text); p.pos++ {
		switch p.text[p.pos] {
		case '\\':
			p.pos++
		case '/':
			if openBracket(p.text[from:p.pos]) {
				return p.refuseProgram(`has a slash inside of brackets. Write \/ there`)
			}
			p.pos++
			p.prev = awkUnclear
			return nil
		}
	}
	return p.refuseProgram("has a regular expression without an end")
}

// openBracket reports whether a regular expression could end inside of a bracket expression in any reading.
func openBracket(s string) bool {
	open := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case !open && s[i] == '[':
			open = true
			if i+1 < len(s) && s[i+1] == '^' {
				i++
			}
			if i+1 < len(s) && s[i+1] == ']' {
				i++
			}
		case open && s[i] == '[':
			n := strings.Index(s[i:], ":]")
			if n < 2 || i+1 >= len(s) || s[i+1] != ':' || strings.Trim(s[i+2:i+n], "abcdefghijklmnopqrstuvwxyz") != "" {
				return true
			}
			i += n + 1
		case open && s[i] == ']':
			open = false
		}
	}
	return open
}

// awkKeywords are the words other than names of variables, with the reading of a slash that follows.
var awkKeywords = map[string]awkToken{
	"print": awkStart, "printf": awkStart, "return": awkStart, "if": awkUnclear, "while": awkUnclear, "for": awkUnclear,
	"switch": awkUnclear, "case": awkUnclear, "default": awkUnclear, "do": awkUnclear, "else": awkUnclear,
	"in":   awkUnclear,
	"next": awkUnclear, "nextfile": awkUnclear, "exit": awkUnclear, "delete": awkUnclear, "break": awkUnclear,
	"continue": awkUnclear, "getline": awkUnclear, "length": awkUnclear, "function": awkUnclear, "func": awkUnclear,
	"BEGIN": awkUnclear, "END": awkUnclear,
}

func (p *awkLexer) readName() *refusal {
	from := p.pos
	for p.pos < len(p.text) && (isLetter(p.text[p.pos]) || p.text[p.pos] >= '0' && p.text[p.pos] <= '9') {
		p.pos++
	}
	word := p.text[from:p.pos]
	if why := awkRefused[word]; why != "" {
		return p.refuseProgram("%s", why)
	}
	next, keyword := awkKeywords[word]
	if p.prev = next; !keyword {
		p.prev = awkOperand
	}
	p.control = false
	switch word {
	case "print", "printf":
		p.print = len(p.open)
	case "getline":
		p.getline = true
	case "if", "while", "for", "switch":
		p.control = true
	}
	return nil
}

// readOperator reads an operator or a bracket.
func (p *awkLexer) readOperator(c byte) *refusal {
	two := p.text[p.pos:min(p.pos+2, len(p.text))]
	p.pos++
	next := awkStart
	defer func() { p.control = false }()
	switch {
	case two == "||" || two == "&&" || two == ">=" || two == "<=" || two == "==" || two == "!=" || two == "!~":
		p.pos++
	case two == "++" || two == "--":
		p.pos++
		next = awkUnclear
	case c == '|':
		return p.refuseProgram("contains a pipe, which runs a program")
	case c == '>':
		if p.print >= 0 && len(p.open) == p.print || two == ">>" {
			return p.checkOutputTarget(two == ">>")
		}
	case c == '<':
		if p.getline {
			return p.checkGetlineSource()
		}
	case c == '(':
		p.open = append(p.open, p.control)
	case c == ')':
		if len(p.open) == 0 {
			return p.refuseProgram("has a ) without (")
		}
		if next = awkOperand; p.open[len(p.open)-1] {
			next = awkUnclear
		}
		p.open = p.open[:len(p.open)-1]
	case c == ']':
		next = awkOperand
	case c == '$':
		next = awkUnclear
	case c == ';' || c == '{' || c == '}':
		if len(p.open) <= p.print || c != ';' {
			p.print = -1
		}
		p.getline = false
	case strings.IndexByte("[,!~?:=+-*/%^", c) >= 0:
	default:
		return p.refuseProgram("contains the character %q", string(rune(c)))
	}
	p.prev = next
	return nil
}

// checkOutputTarget accepts a redirection to the standard streams: print > "/dev/stderr" at the end of a statement.
func (p *awkLexer) checkOutputTarget(double bool) *refusal {
	if double {
		p.pos++
	}
	p.skipBlanks()
	if p.pos < len(p.text) && p.text[p.pos] == '"' {
		name, r := p.readString()
		if r != nil {
			return r
		}
		p.skipBlanks()
		last := p.pos >= len(p.text) || p.text[p.pos] == ';' || p.text[p.pos] == '}'
		if last && (name == "/dev/stderr" || name == "/dev/stdout") {
			return nil
		}
	}
	return p.refuseProgram("writes a file with > after print")
}

// checkGetlineSource accepts getline < "FILE" with a literal name. A string that could continue to /inet/… is refused.
func (p *awkLexer) checkGetlineSource() *refusal {
	p.skipBlanks()
	if p.pos < len(p.text) && p.text[p.pos] == '"' {
		name, r := p.readString()
		if r != nil {
			return r
		}
		if name != "" && name != "-" && !strings.Contains(name, `\`) && !strings.HasPrefix("/inet", name) &&
			!strings.HasPrefix(name, "/inet") {
			return checkRead(name)
		}
	}
	return p.refuseProgram("reads a file whose name is not literal with getline")
}

func (p *awkLexer) skipBlanks() {
	for p.pos < len(p.text) && (p.text[p.pos] == ' ' || p.text[p.pos] == '\t') {
		p.pos++
	}
}
