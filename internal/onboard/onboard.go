// Package onboard reads the help texts of a command line and drafts a pack from them.
//
// A help text is untrusted: the tool's author chose every byte of it. A part of it becomes a name, an element of argv
// or a choice only if it has the required grammar. The rest appears in quoted descriptions and comments, on one line,
// without invisible characters. If something cannot be read, it is left out and listed, never guessed.
//
// The supported styles are those of cobra, click, argparse, clap, docopt and getopt_long(3). A style determines whether
// a value can be joined to its option with =, and whether -- ends the options.
//
// A draft is cautious. A capability is readOnly only if the last word of its command is a verb that reads, such as list
// or show, or the program is known to do nothing else, and its summary does not contradict that. Every other one is mutating, of high risk, irreversible. Options
// are left out if they run programs, write, contain settings or secrets, or change where the tool connects. The tool
// has no network and no writable path.
package onboard

import (
	"slices"
	"strings"
)

// Help is the content of one help text.
type Help struct {
	Style    Style
	Summary  string
	Commands []Command
	Options  []Option
	Modes    []Option // options of which each is a command of its own, such as tar's --list
	Operands []Operand
	Joined   bool   // shows a long option with its value after =
	Usage    bool   // shows a command line
	Unclear  string // why the operands are not known, or ""
	Shared   int    // options of the commands above, not in Options
	More     int    // commands and options beyond the limits
}

// Style is the style of a help text.
type Style string

// The styles. Plain is the style of getopt_long(3), or unknown.
const (
	Cobra    Style = "cobra"
	Click    Style = "click"
	Argparse Style = "argparse"
	Clap     Style = "clap"
	Docopt   Style = "docopt"
	Plain    Style = "plain"
)

// Command is a subcommand. Usage is what follows its name in the list of commands.
type Command struct{ Name, Summary, Usage string }

// Option is one option with all its names.
type Option struct {
	Names    []string // with their dashes, as listed
	Value    string   // name of its value in the help; "" if it takes no value
	Values   int      // number of words that follow it
	Joined   bool     // the help shows it as --name=VALUE
	Required bool
	Choices  []string
	Summary  string
}

// Operand is an argument that is not an option.
type Operand struct {
	Name     string
	Required bool
	Many     bool
	Dashes   bool // the usage has -- before it
	Choices  []string
	Summary  string
}

// Limits on one text. Parts beyond them are counted and left out.
const (
	MaxText     = 256 << 10 // bytes
	maxLines    = 8192
	maxLine     = 1024 // bytes
	maxCommands = 256
	maxOptions  = 512
	maxOperands = 8
	maxChoices  = 32
)

// Empty reports whether the text contains nothing from which a capability could be made.
func (h Help) Empty() bool {
	return len(h.Commands) == 0 && len(h.Options) == 0 && len(h.Modes) == 0 && !h.Usage
}

// Read parses one help text. It never fails: parts that it cannot parse are not in the result.
func Read(text string) Help {
	r := &reader{}
	for _, l := range cleanLines(text) {
		r.readLine(l)
	}
	r.finishReading()
	h := r.help
	h.Style = detectStyle(r)
	for _, o := range h.Options {
		h.Joined = h.Joined || o.Joined
	}
	h.Usage = len(r.patterns) > 0
	r.parseUsage(&h)
	for i := range h.Options {
		h.Options[i].extractChoices()
	}
	h.separateModes(r.modes)
	h.Commands = r.dropCommonCommands(h.Commands)
	return h
}

// separateModes moves the options of these names to the modes.
func (h *Help) separateModes(names []string) {
	h.Options = slices.DeleteFunc(h.Options, func(o Option) bool {
		is := slices.Contains(names, o.Names[0])
		if is {
			h.Modes = append(h.Modes, o)
		}
		return is
	})
}

// commandOf returns the help of a command that has none of its own, from its line in the list of commands.
func (h Help) commandOf(c Command) Help {
	made := Help{Style: h.Style, Joined: h.Joined, Summary: c.Summary, Usage: true, Shared: len(h.Options)}
	u := &usageParser{help: &made}
	u.parseWords(splitOutsideBrackets(c.Usage, " "), true)
	made.Unclear, made.Operands = u.unclear, u.operands
	if len(made.Operands) > maxOperands {
		made.Unclear = "its usage has too many operands"
	}
	return made
}

// detectStyle determines the style by phrases that only one library writes.
func detectStyle(r *reader) Style {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(r.all, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("show this message and exit"):
		return Click
	case has("show this help message and exit", "positional arguments:", "optional arguments:"):
		return Argparse
	case has("available commands:", "[flags]", "--help\" for more information about a command",
		"command --help' for more information"):
		return Cobra
	case has("[possible values:", "print help information", "prints help information", "print help (see",
		"-h, --help     print help", "\nusage:\n    ") && has("[options]"):
		if isDocopt(r) {
			return Docopt
		}
		return Clap
	case isDocopt(r):
		return Docopt
	}
	return Plain
}

// isDocopt reports a help text for docopt, which parses the text itself: it has several patterns under one heading, and
// defaults in docopt's form.
func isDocopt(r *reader) bool {
	joined := 0
	for _, o := range r.help.Options {
		if o.Joined && o.Values == 1 {
			joined++
		}
	}
	return len(r.patterns) > 1 && strings.Contains(r.all, "[default: ") && joined > 0 &&
		!strings.Contains(r.all, "possible values")
}
