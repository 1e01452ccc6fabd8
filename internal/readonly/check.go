package readonly

import (
	"fmt"
	"strings"
	"sync"

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
	rules    map[string]*Rule
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
	k := &checker{rules: builtinRules(), paths: o.Paths}
	if r := k.checkLine(line, o.Rules); r != nil {
		return Verdict{Reason: r.reason, Hint: r.hint}
	}
	return Verdict{Text: k.out.String(), Commands: k.commands}
}

func (k *checker) checkLine(line string, own []Rule) *refusal {
	if r := checkCharacters(line); r != nil {
		return r
	}
	if len(own) > 0 {
		k.own = make(map[string]*Rule, len(own))
		for i := range own {
			if own[i].Validate() == nil {
				k.own[own[i].Name] = &own[i]
			}
		}
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
