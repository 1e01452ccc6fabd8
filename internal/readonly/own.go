package readonly

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"bailey/internal/strictjson"
)

// Own are the commands that an operator adds, with the digest of their file. The zero value has none.
type Own struct {
	Rules  []Rule
	Digest string // SHA-256 of the file in hexadecimal, or "" without a file
}

// Limits of a file of commands.
const (
	MaxOwnFile     = 256 << 10 // bytes
	maxOwnCommands = 200
	maxOwnOptions  = 200 // of one command
	maxOwnText     = 300 // bytes of one text
)

// ownCommand is one command in the file. docs/hosts.md describes it.
type ownCommand struct {
	Program     string       `json:"program"`
	Stops       string       `json:"stops"`
	Subcommands []string     `json:"subcommands"`
	Options     []ownOption  `json:"options"`
	Refused     []ownRefusal `json:"refused"`
	Operands    *ownOperands `json:"operands"`
	Hint        string       `json:"hint"`
}

type ownOption struct {
	Name  string   `json:"name"`  // with its hyphens
	Value string   `json:"value"` // "", number, name or file
	OneOf []string `json:"one_of"`
}

type ownRefusal struct {
	Options []string `json:"options"`
	Reason  string   `json:"reason"`
}

type ownOperands struct {
	Kind  Operands `json:"kind"`
	Least int      `json:"least"`
	Most  int      `json:"most"`
}

// ParseOwn parses a file of commands that an operator adds. A grammar that could let a command execute, write or connect
// by known means is an error, which names its place in the file.
func ParseOwn(data []byte) (Own, error) {
	if len(data) > MaxOwnFile {
		return Own{}, fmt.Errorf("it has more than %d bytes", MaxOwnFile)
	}
	if err := strictjson.Check(data, 8); err != nil {
		return Own{}, fmt.Errorf("%s: %w", placeOf(data, err), err)
	}
	if key := oddKey(data); key != "" {
		return Own{}, fmt.Errorf("the key %.40q is unknown", key)
	}
	var file struct {
		Commands []json.RawMessage `json:"commands"`
	}
	if err := strictjson.Decode(data, &file); err != nil {
		return Own{}, describeDecode("", err)
	}
	if len(file.Commands) > maxOwnCommands {
		return Own{}, fmt.Errorf("commands: there are more than %d", maxOwnCommands)
	}
	sum := sha256.Sum256(data)
	own := Own{Digest: hex.EncodeToString(sum[:])}
	for i, text := range file.Commands {
		place := fmt.Sprintf("commands[%d]", i)
		var c ownCommand
		if err := strictjson.Decode(text, &c); err != nil {
			return Own{}, describeDecode(place+": ", err)
		}
		r, err := c.newRule()
		if err == nil && slices.ContainsFunc(own.Rules, func(o Rule) bool { return o.Name == r.Name }) {
			err = fmt.Errorf("program: another command has the name %s", r.Name)
		}
		if err != nil {
			return Own{}, fmt.Errorf("%s.%w", place, err)
		}
		own.Rules = append(own.Rules, r)
	}
	return own, nil
}

// placeOf returns the line of an error of syntax.
func placeOf(data []byte, err error) string {
	at := strictjson.Offset(err)
	at = max(0, min(at, len(data)))
	return fmt.Sprintf("line %d", 1+bytes.Count(data[:at], []byte{'\n'}))
}

// oddKey returns a key with characters that no known key has. Package json would read STOPS as stops.
func oddKey(data []byte) (odd string) {
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				visit(e)
			}
		case map[string]any:
			for key, e := range v {
				if strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "" {
					odd = key
				}
				visit(e)
			}
		}
	}
	var all any
	if json.Unmarshal(data, &all) == nil {
		visit(all)
	}
	return odd
}

// describeDecode returns an error of package json in the words of the file.
func describeDecode(place string, err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Errorf("%s%s: a %s cannot stand here", place, kind.Field, kind.Value)
	}
	return fmt.Errorf("%s%s", place, strings.Replace(strings.TrimPrefix(err.Error(), "json: "), "unknown field", "unknown key", 1))
}

// newRule returns the rule of a command. An error begins with the key that is wrong.
func (c *ownCommand) newRule() (Rule, error) {
	if err := CheckProgram(c.Program); err != nil {
		return Rule{}, fmt.Errorf("program: %w", err)
	}
	r := Rule{Name: path.Base(c.Program), Dir: path.Dir(c.Program), Stops: c.Stops, Hint: c.Hint, Subs: c.Subcommands,
		Limits: map[string]ValueLimit{}, Hyphen: hasLongHyphen(c.Options)}
	if err := r.Validate(); err != nil {
		return Rule{}, fmt.Errorf("program: %w", err)
	}
	for key, text := range map[string]string{"stops": c.Stops, "hint": c.Hint} {
		if checkCharacters(text) != nil || len(text) > maxOwnText || key == "stops" && text == "" {
			return Rule{}, fmt.Errorf("%s: write one line of at most %d bytes", key, maxOwnText)
		}
	}
	for i, sub := range c.Subcommands {
		one, two, _ := strings.Cut(sub, " ")
		if !validName(one) || strings.Contains(sub, " ") && !validName(two) {
			return Rule{}, fmt.Errorf("subcommands[%d]: %.40q is not one plain word or two", i, sub)
		}
	}
	if len(c.Options) > maxOwnOptions {
		return Rule{}, fmt.Errorf("options: there are more than %d", maxOwnOptions)
	}
	for i, o := range c.Options {
		if err := r.addOwnOption(o); err != nil {
			return Rule{}, fmt.Errorf("options[%d].%w", i, err)
		}
	}
	for i, a := range c.Refused {
		if err := r.addOwnRefusal(a); err != nil {
			return Rule{}, fmt.Errorf("refused[%d].%w", i, err)
		}
	}
	if o := c.Operands; o != nil {
		r.Operands, r.Least, r.Most = o.Kind, o.Least, o.Most
		if !slices.Contains([]Operands{Words, Files, Names, Pattern}, o.Kind) {
			return Rule{}, fmt.Errorf("operands.kind: write words, files, names or pattern, or leave out operands")
		}
		if o.Least < 0 || o.Most < 0 || o.Most > maxWords || o.Most > 0 && o.Least > o.Most || o.Least > maxWords {
			return Rule{}, fmt.Errorf("operands: least and most are not a range up to %d", maxWords)
		}
	}
	return r, nil
}

// hasLongHyphen reports whether a long option has one hyphen, as those of programs in Go have.
func hasLongHyphen(options []ownOption) bool {
	return slices.ContainsFunc(options, func(o ownOption) bool {
		return len(o.Name) > 2 && o.Name[0] == '-' && o.Name[1] != '-'
	})
}

// addOwnOption adds an option to a rule.
func (r *Rule) addOwnOption(o ownOption) error {
	name, long := strings.CutPrefix(o.Name, "--")
	if !long {
		name = strings.TrimPrefix(o.Name, "-")
	}
	limit := ValueLimit{Kind: ValueKind(o.Value), OneOf: o.OneOf}
	switch {
	case !strings.HasPrefix(o.Name, "-") || !validName(name) || !long && !r.Hyphen && len(name) != 1:
		return fmt.Errorf("name: %.40q is not an option: write -x or --name", o.Name)
	case r.Hyphen && long:
		return fmt.Errorf("name: %.40q has two hyphens, and a long option of this command has one", o.Name)
	case r.findAct(o.Name) != nil || r.hasOwnOption(name, long):
		return fmt.Errorf("name: the option %s occurs twice", o.Name)
	case len(o.OneOf) > 0 && o.Value != "":
		return errors.New("value: write either value or one_of")
	case !slices.Contains([]string{"", "number", "name", "file"}, o.Value):
		return fmt.Errorf("value: %.40q is unknown: write number, name or file, or one_of with a list", o.Value)
	}
	for i, v := range o.OneOf {
		if !isPlainValue(v) {
			return fmt.Errorf("one_of[%d]: %.40q is not a plain word", i, v)
		}
	}
	if means := actingMeans(name, o.Value != ""); means != "" && o.Value != "number" && len(o.OneOf) == 0 {
		return fmt.Errorf("name: an option %s is known to %s. Leave it out, or list its harmless values in one_of", o.Name, means)
	}
	takes := o.Value != "" || len(o.OneOf) > 0
	switch {
	case (long || r.Hyphen) && takes:
		r.Long = strings.TrimSpace(r.Long + " " + name + "=")
	case long || r.Hyphen:
		r.Long = strings.TrimSpace(r.Long + " " + name)
	case takes:
		r.Values += name
	default:
		r.Flags += name
	}
	if takes {
		r.Limits[name] = limit
	}
	if o.Value == "file" {
		r.Reads = strings.TrimSpace(r.Reads + " " + name)
	}
	return nil
}

func (r *Rule) hasOwnOption(name string, long bool) bool {
	if long || r.Hyphen {
		words := strings.Fields(r.Long)
		return slices.Contains(words, name) || slices.Contains(words, name+"=")
	}
	return strings.Contains(r.Flags+r.Values, name)
}

func (r *Rule) addOwnRefusal(a ownRefusal) error {
	if a.Reason == "" || len(a.Reason) > maxOwnText || checkCharacters(a.Reason) != nil {
		return fmt.Errorf("reason: write one line of at most %d bytes", maxOwnText)
	}
	if len(a.Options) == 0 || len(a.Options) > maxOwnOptions {
		return errors.New("options: name one option or more")
	}
	for _, o := range a.Options {
		name, long := strings.CutPrefix(o, "--")
		if !long {
			name = strings.TrimPrefix(o, "-")
		}
		switch {
		case !strings.HasPrefix(o, "-") || !validName(name):
			return fmt.Errorf("options: %.40q is not an option: write -x or --name", o)
		case r.hasOwnOption(name, long):
			return fmt.Errorf("options: the option %s is accepted too", o)
		}
	}
	r.Acts = append(r.Acts, Act{strings.Join(a.Options, " "), a.Reason})
	return nil
}

// openDirs are directories in which users other than root put files, or which are no disk.
var openDirs = []string{"/tmp", "/var/tmp", "/home", "/root", "/dev", "/proc", "/sys", "/run", "/var/run", "/mnt", "/media", "/var/spool"}

// CheckProgram returns an error if an operator must not add the program: the path must be absolute and in a directory of
// the system or of an application, and the program must not be known to execute, write or connect, under any version.
func CheckProgram(program string) error {
	if !path.IsAbs(program) || path.Clean(program) != program || !isSafe(program, true) || !validName(path.Base(program)) {
		return fmt.Errorf("%.80q is not an absolute path of letters, digits and . _ + - /", program)
	}
	for _, dir := range openDirs {
		if isBelow(program, dir) {
			return fmt.Errorf("%.80q is below %s, where not only root puts programs", program, dir)
		}
	}
	name := path.Base(program)
	t := builtinRules()
	bases := []string{name, strings.TrimRight(name, "0123456789.-_"), strings.TrimSuffix(name, "-static"), cutVersion(name)}
	for i, base := range bases {
		if t.refused[base] != nil {
			return fmt.Errorf("%s cannot be added: %s", name, t.refused[base].reason)
		}
		if i < 3 && t.rules[base] != nil { // cutVersion finds w in w3status
			return fmt.Errorf("the command %s has a built-in rule", base)
		}
	}
	if strings.HasPrefix(name, "ld-") || strings.HasPrefix(name, "ld.so") || strings.HasPrefix(name, "mkfs") {
		return fmt.Errorf("%s cannot be added: it starts programs or writes disks", name)
	}
	return nil
}

// cutVersion returns a name up to its first digit or dot, for example vim for vim.basic.
func cutVersion(name string) string {
	if i := strings.IndexAny(name, "0123456789."); i > 0 {
		return name[:i]
	}
	return name
}

// actingMeans returns how an option acts according to its name, for example "execute", or "".
func actingMeans(name string, takesValue bool) string {
	means := [...][2]string{
		{"execute", "exec execute eval expression command cmd shell script interpreter pager editor hook plugin preload source"},
		{"write", "output out outfile write overwrite append save log logfile create inplace delete remove purge truncate edit " +
			"mkdir pidfile reset flush clear place"},
		{"connect", "connect proxy upload listen bind url uri socket send push post put"},
	}
	if strings.HasPrefix(name, "no-") {
		return ""
	}
	if len(name) == 1 {
		// Without a value such a letter has other meanings, for example -c for a count.
		if !takesValue {
			return ""
		}
		return map[string]string{"c": "execute", "e": "execute", "x": "execute", "o": "write", "O": "write", "w": "write"}[name]
	}
	for _, m := range means {
		words := strings.Fields(m[1])
		for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return strings.ContainsRune("-_.", c) }) {
			if slices.Contains(words, part) {
				return m[0]
			}
		}
	}
	return ""
}
