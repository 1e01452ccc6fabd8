// Package readonly decides whether a command line only reads. It is the first of three layers between an agent and a
// production host: the login shell validates the line again with this package and then enforces the limits with the
// kernel, and the account has no right to write. The package is pure: it reads no file and no clock, and executes
// nothing.
//
// # How a line is checked
//
// Check refuses control characters and invisible characters, parses the line with mvdan.cc/sh, and walks the syntax
// tree. Each node type that may occur is named in tree.go; a node of any other type is refused. A word must be literal:
// quoted text, escapes, braces (which the package expands), a leading ~, and globs for file operands. Each command must
// have a [Rule], and each option, subcommand and operand must match it. If no rule names an option, it is refused.
// sed, awk, find, ip, curl, openssl, test, rpm and some others have parsers for their own languages. Check then renders
// the tree. The caller must run that text, or the parsed commands, and not the original line.
//
// The rendered text contains absolute paths, expanded braces, long options in full (for example --output for --out),
// the full words of ip, and quoted words, so that bash, dash and BusyBox ash split it in the same way. [ EXPRESSION ]
// becomes test EXPRESSION, and xargs without a command becomes xargs echo, each with its path.
//
// # Decisions
//
// The following choices are policy. The tests contain each of them.
//
//   - Redirections: /dev/null as a target, 2>&1 and 1>&2 are accepted. Reading a file by name (< FILE) is accepted too,
//     since tr has no other form. All other targets, here-documents, here-strings and /dev/tcp are refused.
//   - Grouping: ( ), { } and ! are accepted, since the commands inside are checked. Loops, if, case, time, functions
//     and background jobs are refused: they need variables, or run for longer than the caller knows.
//   - cd DIR is accepted, since commands are bound to absolute paths.
//   - Expansions such as $HOME and $(…) are refused: their value is not known here, and it can be an option. $'…' is
//     refused because its escapes hide characters.
//   - Braces are expanded here. A glob stays a glob only if it is a file operand. As any other word, for example in
//     find -name *.conf, it is quoted, as its author meant it. A glob that could expand to a word with a leading hyphen
//     is refused with the hint ./*, unless no option of the command can act.
//   - Assignments before a command: locale, time zone, width and color variables with plain values (see tree.go).
//     Other variables, for example FOO=bar, are refused because any program can give them a meaning.
//   - Commands that stream (tail -f, journalctl -f, dmesg -w, ping, ip monitor, cat /dev/zero) are accepted; the caller
//     must have a timeout and an output limit. An interactive top is refused because it reads keys.
//   - Pagers: systemctl, journalctl, dpkg -l and dmesg -H are accepted. They start a pager only on a terminal, and the
//     login has none. less, more and apt changelog are refused.
//   - Secrets: reading /etc/shadow, private keys, /proc/PID/environ or env is not a write. The rights of the account,
//     the policy and the redaction decide about it.
//   - Reads that act: devices are refused, except null, zero, full, random, urandom and stdin. /proc/kmsg,
//     /sys/kernel/debug, /sys/kernel/tracing and names below /net are refused too. For example, opening
//     /dev/watchdog can restart a host. The check sees only names in the line: the rights of the account decide about names that find,
//     xargs, a glob or a relative path supplies.
//   - Network: dig, host, nslookup, getent and ping are accepted, although a query can carry data to its server. Such
//     commands are marked (Command.Network), so that the login shell can open the network for no other command. curl and
//     openssl s_client reach loopback only. pip list --outdated and rpm with a URL are refused.
//   - find -exec, timeout and xargs run a command that is checked in the same way. xargs turns data into arguments, so
//     it runs only commands of which no argument can act (Rule.Inert), or commands whose options end with --
//     (Rule.Tail).
//   - sed may write to /dev/stdout and /dev/stderr (w), and awk may print to them. All other targets are refused.
//   - rpm -V is accepted with --noscripts only, since it runs the verify scripts of packages.
//   - file -z is refused because it starts decompressors; zcat reads compressed files.
package readonly

import (
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// Limits of a line.
const (
	MaxLine     = 16 << 10 // bytes
	MaxCommands = 32
	maxWords    = 1024 // words of one command after brace expansion
	maxNesting  = 128  // brackets of any kind in the line
)

// Verdict is the answer of Check. If Reason is empty, the line only reads.
type Verdict struct {
	// Text is the line rendered from the syntax tree; it is empty if the line is refused. The caller must run this text
	// and not the original line.
	Text string
	// Commands are the commands that Text runs, in the order of the text. A command that xargs, find or timeout runs
	// follows the command that runs it.
	Commands []Command
	Reason   string // why the line is refused
	Hint     string // the nearest command that is accepted, if the line is refused
}

// Accepted reports whether the line only reads.
func (v Verdict) Accepted() bool { return v.Reason == "" }

// Command is one command of an accepted line.
type Command struct {
	Name    string   // for example "ls"
	Path    string   // absolute path, or "" for a builtin of the shell
	Args    []string // arguments without the name; globs and a leading ~ are not expanded
	Inside  string   // name of the command that runs this command, for example "xargs", or ""
	Network bool     // the command needs network access
	Added   bool     // the rule is the operator's own, from Options.Rules
}

// Options are the host-specific parts of a check. The zero value is valid.
type Options struct {
	// Rules are additional commands of the operator. A built-in rule of the same name takes precedence. Each rule must
	// pass Rule.Validate; an invalid rule is ignored.
	Rules []Rule
	// Paths maps a command name to its absolute path on the host. The directory must be /bin, /sbin, /usr/bin or
	// /usr/sbin; other entries are ignored. A command without an entry uses the directory of its rule.
	Paths map[string]string
}

// refusal is the reason for which a line is refused, and the nearest command that is accepted.
type refusal struct{ reason, hint string }

func newRefusal(hint, format string, args ...any) *refusal {
	return &refusal{reason: fmt.Sprintf(format, args...), hint: hint}
}

// checker holds the state of one check.
type checker struct {
	table    *ruleTable
	own      map[string]*Rule // rules of the operator
	paths    map[string]string
	out      strings.Builder
	commands []Command
	depth    int // commands that run the present one
}

// parsers keeps parsers between checks, because creating a parser costs more than parsing a short line.
var parsers = sync.Pool{New: func() any { return syntax.NewParser(syntax.Variant(syntax.LangBash)) }}

// Check decides whether the line only reads. It is safe for concurrent use.
func Check(line string, o Options) Verdict {
	k := &checker{table: builtinRules(), paths: o.Paths}
	if len(o.Rules) > 0 {
		k.own = make(map[string]*Rule, len(o.Rules))
		for i := range o.Rules {
			if o.Rules[i].Validate() == nil {
				k.own[o.Rules[i].Name] = &o.Rules[i]
			}
		}
	}
	if r := k.checkLine(line); r != nil {
		return Verdict{Reason: r.reason, Hint: r.hint}
	}
	return Verdict{Text: k.out.String(), Commands: k.commands}
}

func (k *checker) checkLine(line string) *refusal {
	if r := checkCharacters(line); r != nil {
		return r
	}
	p, _ := parsers.Get().(*syntax.Parser)
	defer parsers.Put(p)
	file, err := p.Parse(strings.NewReader(line), "")
	switch {
	case err != nil:
		return newRefusal("Check the quotes and brackets.", "the line is not valid shell syntax: %v", err)
	case len(file.Stmts) == 0:
		return newRefusal("Write a command, for example: uptime", "the line contains no command")
	}
	return k.checkStatements(file.Stmts, inputInherited)
}

// blank lists characters that display as nothing but belong to no category of format characters. Unicode names them
// fillers, variation selectors and the Braille blank.
const blank = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u2800\u3164\uffa0\ufffc"

// checkCharacters refuses a line that a person, a log or a second parser could read differently from the shell: control
// characters, line ends, invisible and bidirectional characters (CVE-2021-42574), and text that is not UTF-8.
func checkCharacters(line string) *refusal {
	if len(line) > MaxLine {
		return newRefusal("Split the line.", "the line has %d bytes, more than %d", len(line), MaxLine)
	}
	brackets := 0
	for i := 0; i < len(line); {
		c, size := rune(line[i]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRuneInString(line[i:])
		}
		switch {
		case c == '(' || c == '{' || c == '[' || c == '`':
			brackets++
		case c == '\n' || c == '\r':
			return newRefusal("Send one line for each call, or join commands with ;",
				"the line contains a line break at byte %d", i)
		case c < ' ' && c != '\t' || c == 0x7f:
			return newRefusal("Remove the character.", "the line contains the control character U+%04X at byte %d", c,
				i)
		case c >= utf8.RuneSelf && isHidden(c, size):
			return newRefusal("Remove the character.",
				"the line contains the invisible or control character U+%04X at byte %d", c, i)
		}
		i += size
	}
	if brackets > maxNesting {
		return newRefusal("Split the line.", "the line contains more than %d brackets", maxNesting)
	}
	return nil
}

// isHidden reports whether c, which is not ASCII, is a control, format, separator, private or blank character, or a
// byte that is not UTF-8.
func isHidden(c rune, size int) bool {
	return c == utf8.RuneError && size == 1 || unicode.In(c, unicode.C, unicode.Z, unicode.Variation_Selector) ||
		c >= 0xe0000 || strings.ContainsRune(blank, c)
}
