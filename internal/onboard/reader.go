package onboard

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// helpSection is a section of a help text.
type helpSection int

const (
	opening helpSection = iota // before any heading: may contain options, but not commands
	usages
	commands
	options
	shared // options of the commands above
	operands
	modes  // options of which each is a command
	others // a heading of the tool's own: may contain options
	silent // examples, environment and similar
)

// reader processes the lines of a help text.
type reader struct {
	help     Help
	part     helpSection
	patterns []string // of the usage
	listed   []Operand
	modes    []string // first names of the options that are modes
	all      string   // whole text in lower case, for the style
	entry    int      // indent of this part's entries; 0: not known yet
	column   int      // column of the open entry's description; 0: not known yet
	open     *string
	indent   int // of the open entry
	braces   int // indent of argparse's list of subcommands
	beneath  int // indent of the commands below it
	raw      strings.Builder
}

func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// Grammars. Text that matches none of them is not a name.
var (
	commandName = lazyRegexp(`^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$`)
	optionName  = lazyRegexp(`^(-[A-Za-z0-9?@#]|--?[A-Za-z0-9][A-Za-z0-9._-]{0,63})$`)
	inUsage     = lazyRegexp(`(?i)^\s*usage(:|$)`)
	otherUsage  = lazyRegexp(`(?i)^\s*or:?\s+`)
	optionLine  = lazyRegexp(`^\s*-{1,2}[A-Za-z0-9?@#\[]`)
	commandLine = lazyRegexp(`^\s+([A-Za-z0-9][A-Za-z0-9_.+-]*)\*?(?:, [A-Za-z0-9_.+-]+)*( [\[<A-Z{].*?)?(?:(?::\s+|\s{2,}|\s+: )(.*))?:?$`)
	bracesLine  = lazyRegexp(`^\s+\{([A-Za-z0-9_.+,-]+)\}`)
)

// readLine processes the next line.
func (r *reader) readLine(l string) {
	r.raw.WriteString(strings.ToLower(l) + "\n")
	trimmed := strings.TrimSpace(l)
	switch {
	case trimmed == "":
		if r.part == usages && len(r.patterns) > 0 {
			r.startPart(opening)
		}
	case inUsage().MatchString(l):
		r.startPart(usages)
		_, rest, _ := strings.Cut(l, ":")
		r.readUsageLine(rest)
	case r.readHeading(l, trimmed):
	case strings.HasPrefix(trimmed, "-- "): // an entry about the end of options
		r.open = nil
	case r.isContinuation(l):
		r.appendContinuation(l, trimmed)
	case r.part == usages:
		r.readUsageLine(l)
	case optionLine().MatchString(l) && r.part != silent:
		r.readOptionLine(l)
	case r.part == commands:
		r.readCommandLine(l)
	case r.part == operands:
		r.readOperandLine(l, trimmed)
	case r.help.Summary == "" && len(r.help.Options) == 0 && r.part == opening && !strings.HasPrefix(trimmed, "-"):
		r.help.Summary = trimmed
	}
}

// startPart ends a part.
func (r *reader) startPart(next helpSection) {
	r.part, r.entry, r.open, r.column, r.braces, r.beneath = next, 0, nil, 0, 0, 0
}

func (r *reader) finishReading() { r.all = r.raw.String() }

// readHeading reports whether a line begins a part, and begins it.
func (r *reader) readHeading(l, trimmed string) bool {
	word := strings.TrimSuffix(trimmed, ":")
	colon, capitals := word != trimmed, strings.ToUpper(trimmed) == trimmed &&
		strings.ContainsAny(trimmed, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
	if in := lineIndent(l); in > 1 || in == 1 && !colon || len(trimmed) > 80 || !colon && !capitals &&
		!slices.Contains(bareHeadings, strings.ToLower(trimmed)) {
		if lineIndent(l) == 0 && (r.part == silent || r.open != nil) {
			r.open = nil // text between entries
		}
		return false
	}
	r.startPart(partForTitle(strings.ToLower(word)))
	return true
}

// bareHeadings lists the headings of knack, which have no colon.
var bareHeadings = []string{"arguments", "commands", "global arguments", "examples", "subgroups", "group", "command"}

func partForTitle(title string) helpSection {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(title, w) })
	}
	switch {
	case has("example", "see also", "learn more", "author", "exit ", "bugs", "alias", "description"):
		return silent
	case has("operation mode"):
		return modes
	case has("global", "inherited", "common"):
		if has("command") {
			return commands
		}
		return shared
	case has("option", "flag"):
		return options
	case has("command", "subgroup"):
		return commands
	case has("argument", "positional") || title == "args":
		return operands
	case has("environ"):
		return silent
	}
	return others
}

// isContinuation reports whether l belongs to the description of the open entry.
func (r *reader) isContinuation(l string) bool {
	switch in := lineIndent(l); {
	case r.open == nil || in <= r.indent:
		return false
	case r.column > 0:
		return in >= r.column || in > r.indent+1 && !optionLine().MatchString(l) && r.part != operands
	case optionLine().MatchString(l):
		return false
	default:
		return r.braces == 0 && (r.part != operands || in > r.indent+3)
	}
}

func (r *reader) appendContinuation(l, trimmed string) {
	if r.column == 0 {
		r.column = lineIndent(l)
	}
	if len(*r.open) < maxLine {
		*r.open = strings.TrimSpace(*r.open + " " + trimmed)
	}
}

// openEntry remembers an entry whose description may continue on the next line.
func (r *reader) openEntry(l string, summary *string, column int) {
	r.open, r.indent, r.column = summary, lineIndent(l), column
}

// readCommandLine parses a line of a list of commands.
func (r *reader) readCommandLine(l string) {
	m := commandLine().FindStringSubmatch(l)
	if in := lineIndent(l); m == nil || r.entry > 0 && in != r.entry || in > 12 {
		r.open = nil
		return
	}
	r.addCommand(m[1], m[3], m[2], l)
}

func (r *reader) addCommand(name, summary, usage, l string) {
	r.entry = lineIndent(l)
	if !commandName().MatchString(name) ||
		slices.ContainsFunc(r.help.Commands, func(c Command) bool { return c.Name == name }) {
		r.open = nil
		return
	}
	if len(r.help.Commands) == maxCommands {
		r.help.More++
		r.open = nil
		return
	}
	// The list gets its full capacity at once, because the open description is a pointer into it.
	if r.help.Commands == nil {
		r.help.Commands = make([]Command, 0, maxCommands)
	}
	r.help.Commands = append(r.help.Commands, Command{name, summary, strings.TrimSpace(usage)})
	column := 0
	if summary != "" {
		column = strings.LastIndex(l, summary)
	}
	r.openEntry(l, &r.help.Commands[len(r.help.Commands)-1].Summary, column)
}

// readOperandLine parses a line of a list of operands. argparse also lists subcommands there, below their names in
// braces.
func (r *reader) readOperandLine(l, trimmed string) {
	in := lineIndent(l)
	switch set := bracesLine().FindStringSubmatch(l); {
	case set != nil:
		r.braces, r.beneath, r.open = in, 0, nil
		r.addOperand(Operand{Name: set[0], Choices: parseChoices(set[1], ",")}, l, strings.TrimSpace(l[len(set[0]):]))
	case r.braces > 0 && in > r.braces:
		if m := commandLine().FindStringSubmatch(l); m != nil &&
			(r.beneath == 0 && in <= r.braces+4 || in == r.beneath) {
			r.beneath = in
			r.addCommand(m[1], m[3], m[2], l)
		}
	default:
		name, summary, _ := strings.Cut(trimmed, "  ")
		r.addOperand(Operand{Name: name}, l, strings.TrimSpace(summary))
	}
}

func (r *reader) addOperand(o Operand, l, summary string) {
	if len(r.listed) >= maxOptions {
		r.open = nil
		return
	}
	if r.listed == nil {
		r.listed = make([]Operand, 0, maxOptions)
	}
	o.Summary = summary
	r.listed = append(r.listed, o)
	if r.braces > 0 {
		return
	}
	column := 0
	if summary != "" {
		column = strings.LastIndex(l, summary)
	}
	r.openEntry(l, &r.listed[len(r.listed)-1].Summary, column)
}

// cleanLines splits a text into lines without hidden content: it removes terminal sequences, overstriking (as nroff
// writes bold) and invisible characters, and expands tabs.
func cleanLines(text string) []string {
	text = text[:min(len(text), MaxText)]
	var lines []string
	for row := range strings.Lines(text) {
		if len(lines) == maxLines {
			break
		}
		lines = append(lines, strings.TrimRight(expandTabs(stripSequences(row[:min(len(row), maxLine)])), " "))
	}
	return lines
}

// stripSequences removes ECMA-48 control sequences, and the character before each backspace.
func stripSequences(row string) string {
	var b []rune
	for i := 0; i < len(row); {
		c, n := utf8.DecodeRuneInString(row[i:])
		switch {
		case c == '\b':
			b = b[:max(0, len(b)-1)]
		case c == 0x1b && i+1 < len(row) && row[i+1] == '[':
			for n = 2; i+n < len(row) && (row[i+n] < 0x40 || row[i+n] > 0x7e); n++ {
			}
			n = min(n+1, len(row)-i)
		case c == utf8.RuneError && n <= 1:
		default:
			b = append(b, c)
		}
		i += n
	}
	return string(b)
}

// expandTabs replaces a tab with the spaces that a terminal shows, and removes other control characters.
func expandTabs(row string) string {
	var b strings.Builder
	column := 0
	for _, c := range row {
		switch {
		case c == '\t':
			n := 8 - column%8
			b.WriteString("        "[:n])
			column += n
		case isHidden(c):
		default:
			b.WriteRune(c)
			column++
		}
	}
	return b.String()
}

// isHidden reports whether a manifest must not contain c.
func isHidden(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) || c == utf8.RuneError
}

// flattenText returns foreign text on one line, with white space folded, cut to the given number of bytes.
func flattenText(s string, most int) string {
	s = strings.Join(strings.Fields(strings.Map(func(c rune) rune {
		if isHidden(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(s, ""))), " ")
	if len(s) <= most {
		return s
	}
	cut := most - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strings.TrimRight(s[:cut], " ") + "…"
}

func lineIndent(l string) int { return len(l) - len(strings.TrimLeft(l, " ")) }
