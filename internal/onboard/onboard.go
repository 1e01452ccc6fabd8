// Package onboard reads the help texts of a command line and drafts a pack from them.
//
// A help text is foreign: whoever wrote the tool chose every byte of it. Nothing of it becomes a name, a word of an argv
// or a choice unless it has the grammar of one; the rest stands in quoted descriptions and in comments, on one line,
// without a character that hides. What could not be read is left out and named, never guessed.
//
// The styles are those of cobra, click, argparse, clap, docopt and getopt_long(3). A style decides two things: whether a
// value may be joined to its option with =, and whether -- ends the options.
//
// A draft is cautious. A capability is readOnly only where the last word of its command is one that looks and its summary does
// not say otherwise; every other is mutating, of high risk, irreversible. Options that run programs, write, hold
// settings or secrets, or change where the tool connects are left out. There is no network and nothing to write to.
package onboard

// Help is what one help text says.
type Help struct {
	Style    Style
	Summary  string
	Commands []Command
	Options  []Option
	Operands []Operand
	Joined   bool   // it shows a long option with its value behind =
	Usage    bool   // it shows a command line
	Unclear  string // why the operands are not known, or ""
	Shared   int    // options of the commands above, which are not in Options
	More     int    // commands and options beyond the bounds
}

// Style is whose help it is.
type Style string

// The styles. Plain is whatever getopt_long(3) or nobody wrote.
const (
	Cobra    Style = "cobra"
	Click    Style = "click"
	Argparse Style = "argparse"
	Clap     Style = "clap"
	Docopt   Style = "docopt"
	Plain    Style = "plain"
)

// Command is a subcommand.
type Command struct{ Name, Summary string }

// Option is one option with all its names.
type Option struct {
	Names    []string // with their dashes, as listed
	Value    string   // what the help calls its value; "" is none
	Values   int      // how many words follow
	Joined   bool     // the help shows it as --name=VALUE
	Required bool
	Choices  []string
	Summary  string
}

// Operand is a word that is no option.
type Operand struct {
	Name     string
	Required bool
	Many     bool
	Dashes   bool // the usage has -- before it
	Choices  []string
	Summary  string
}

// Bounds on what is read of one text. More is counted and left.
const (
	MaxText     = 256 << 10 // bytes
	maxLines    = 8192
	maxLine     = 1024 // bytes
	maxCommands = 256
	maxOptions  = 512
	maxOperands = 8
	maxChoices  = 32
)

// Empty reports whether nothing was found that a capability could be made of.
func (h Help) Empty() bool {
	return len(h.Commands) == 0 && len(h.Options) == 0 && !h.Usage
}

// Read reads one help text. It never fails: what it does not understand is not in the result.
func Read(text string) Help {
	r := &reader{}
	for _, l := range clean(text) {
		r.line(l)
	}
	r.flush()
	h := r.help
	h.Style = style(r)
	for _, o := range h.Options {
		h.Joined = h.Joined || o.Joined
	}
	h.Usage = len(r.patterns) > 0
	r.usage(&h)
	for i := range h.Options {
		h.Options[i].offers()
	}
	h.Commands = r.named(h.Commands)
	return h
}
