package readonly

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Operands is the kind of the operands that a command accepts.
type Operands string

// The kinds of operands. The zero value accepts none.
const (
	NoOperands Operands = ""
	Words      Operands = "words"   // text, for example unit names or patterns; globs are quoted
	Files      Operands = "files"   // files of which the content is read
	Names      Operands = "names"   // files of which only metadata is read
	Pattern    Operands = "pattern" // one word, and then files; only files if an option gives the pattern

	checked Operands = "checked" // the function of the rule checks them
)

// Rule is the grammar of one command. It is plain data, so that an operator can add commands. An option, a subcommand
// or an operand that the rule does not name is refused. The built-in rules are in the directory rules.
type Rule struct {
	Name  string // without a directory
	Dir   string // directory of the program; "" means /usr/bin
	Stops string // the attack that the rule stops

	Flags  string // short options without a value, one character each
	Values string // short options with a value, which is attached or the next word
	Maybes string // short options of which the value is attached or missing
	Long   string // long options without hyphens, separated by spaces: name, name= (value), name[=] (optional value)
	Acts   []Act  // options that are refused with a reason, and that abbreviations must not mean
	Needs  Act    // options, without hyphens, of which the call must have one
	Reads  string // options, separated by spaces, of which the value names a file to read
	// Limits restricts the values of options, named without hyphens. The built-in rules have parsers instead.
	Limits map[string]ValueLimit

	Subs []string // accepted subcommands; some have two words, for example "config list"
	Bare bool     // the command may run without a subcommand

	Operands Operands // after the subcommand
	Least    int      // the smallest number of operands
	Most     int      // the largest number of operands; 0 means any number

	Inert   bool // no option and no operand of the program can write, execute or connect, so arguments may be data
	Tail    bool // operands after -- are only read, so they may be data
	Ordered bool // options end at the first operand
	Apart   bool // a value is always the next word, also in a bundle of short options
	Hyphen  bool // long options have one hyphen, and short options do not exist
	Network bool // the command needs network access

	Hint string // the nearest command that is accepted, for a refused use of this command

	check func(*call) *refusal // a parser for the language of the command; only built-in rules have one
	shell bool                 // a builtin of the shell, without a path
	nests bool                 // runs another command
	free  bool                 // has no options of the usual form: all arguments are operands
	known bool                 // a built-in rule, so that --help and --version are accepted
}

// ValueLimit restricts the value of an option: to a kind, or to the words of a list.
type ValueLimit struct {
	Kind  ValueKind
	OneOf []string
}

// ValueKind is a kind of values.
type ValueKind string

// The kinds of values. The zero value accepts only the words of the list.
const (
	NumberValue ValueKind = "number" // digits
	NameValue   ValueKind = "name"   // letters, digits and . _ : @ % + = , -, without / and without a leading hyphen
	FileValue   ValueKind = "file"   // the absolute path of a file to read
)

// accepts reports whether the value is accepted.
func (l ValueLimit) accepts(value string) bool {
	switch l.Kind {
	case NumberValue:
		return value != "" && strings.Trim(value, "0123456789") == ""
	case NameValue:
		return isPlainValue(value)
	case FileValue:
		return path.IsAbs(value) && !strings.Contains(value, "://")
	}
	return slices.Contains(l.OneOf, value)
}

// hintFor tells which values the option accepts.
func (l ValueLimit) hintFor(option string) string {
	if l.Kind == "" {
		return "Values of " + option + " that are accepted: " + strings.Join(l.OneOf, " ")
	}
	return fmt.Sprintf("The value of %s must be a %s.", option, l.Kind)
}

// isPlainValue reports whether a value can be neither a path nor an option.
func isPlainValue(v string) bool {
	for i := 0; i < len(v); i++ {
		plain := isLetter(v[i]) || v[i] >= '0' && v[i] <= '9'
		if !plain && (i == 0 || strings.IndexByte(".:@%+=,-", v[i]) < 0) {
			return false
		}
	}
	return v != ""
}

// Act describes options that write, execute or connect, or that a command needs.
type Act struct {
	Options string // for example "-o --output"
	Reason  string // completes "the option …", for example "writes a file"; of needed options, a sentence
}

var systemDirs = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin"}

// Validate reports an error if a rule of an operator is incomplete or has the name of a built-in rule.
func (r *Rule) Validate() error {
	switch {
	case !validName(r.Name):
		return fmt.Errorf("the command name %q is not accepted. Use letters, digits and . _ + -", r.Name)
	case !slices.Contains([]Operands{NoOperands, Words, Files, Names, Pattern}, r.Operands):
		return fmt.Errorf("the kind of operands %q is unknown. Use words, files, names or pattern", r.Operands)
	case r.Least < 0 || r.Most < 0:
		return errors.New("a number of operands is negative. Use 0 or more")
	}
	return CheckProgram(r.programDir() + "/" + r.Name)
}

// validName reports whether a shell reads the name of a command as it is written.
func validName(name string) bool {
	for i := 0; i < len(name); i++ {
		plain := isLetter(name[i]) || name[i] >= '0' && name[i] <= '9'
		if !plain && (i == 0 || strings.IndexByte(".+-", name[i]) < 0) {
			return false
		}
	}
	return name != ""
}

// programDir returns the directory of the program.
func (r *Rule) programDir() string {
	if r.Dir == "" {
		return "/usr/bin"
	}
	return r.Dir
}

// findAct returns the entry of Acts for an option with its hyphens, for example "-o", or nil.
func (r *Rule) findAct(option string) *Act {
	for i := range r.Acts {
		for name := range strings.FieldsSeq(r.Acts[i].Options) {
			if name == option {
				return &r.Acts[i]
			}
		}
	}
	return nil
}

// The ways in which an option takes its value.
const (
	flagOption  = iota // no value
	valueOption        // a value
	maybeOption        // an optional value after =
)

// resolveLong resolves the name of a long option, which may be abbreviated. It returns the full name. The full name
// replaces the abbreviation in the rendered text, so a name that only the program knows cannot be meant.
func (r *Rule) resolveLong(name string) (full string, kind int, ref *refusal) {
	matches := 0
	for entry := range strings.FieldsSeq(r.Long) {
		bare, k := entry, flagOption
		if strings.HasSuffix(entry, "[=]") {
			bare, k = entry[:len(entry)-3], maybeOption
		} else if strings.HasSuffix(entry, "=") {
			bare, k = entry[:len(entry)-1], valueOption
		}
		if bare == name {
			return bare, k, nil
		}
		if name != "" && strings.HasPrefix(bare, name) {
			full, kind, matches = bare, k, matches+1
		}
	}
	if (name == "help" || name == "version") && r.known && !r.Hyphen {
		return name, flagOption, nil
	}
	hyphens := "--"
	if r.Hyphen {
		hyphens = "-"
	}
	if a := r.findAct(hyphens + name); a != nil {
		return "", 0, r.refuseActing(hyphens+name, a)
	}
	for i := range r.Acts {
		for option := range strings.FieldsSeq(r.Acts[i].Options) {
			if bare, ok := strings.CutPrefix(option, hyphens); ok && len(option) > 2 && strings.HasPrefix(bare, name) {
				return "", 0, r.refuseActing(option, &r.Acts[i])
			}
		}
	}
	switch {
	case matches == 0 || r.Hyphen:
		return "", 0, r.refuseUnknown(hyphens + name)
	case matches > 1:
		return "", 0, newRefusal("Write the option in full.", "the option --%s of %s is ambiguous", name, r.Name)
	}
	return full, kind, nil
}

func (r *Rule) refuseActing(option string, a *Act) *refusal {
	return newRefusal(r.usageHint(), "the option %s of %s %s", option, r.Name, a.Reason)
}

func (r *Rule) refuseUnknown(option string) *refusal {
	return newRefusal(r.usageHint(), "the option %s of %s is not in the read-only set", option, r.Name)
}

// usageHint returns the hint of the rule, or a hint that lists what the rule accepts.
func (r *Rule) usageHint() string {
	if r.Hint != "" {
		return r.Hint
	}
	if len(r.Subs) > 0 {
		return "Accepted are: " + r.Name + " " + strings.Join(r.Subs, ", ")
	}
	accepted := ""
	for i := range len(r.Flags + r.Values + r.Maybes) {
		accepted += " -" + (r.Flags + r.Values + r.Maybes)[i:i+1]
	}
	for name := range strings.FieldsSeq(r.Long) {
		accepted += " --" + name
	}
	if accepted == "" {
		return "Run " + r.Name + " without options."
	}
	return "Options of " + r.Name + " that are accepted:" + accepted
}
