package onboard

import (
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// Tool is an explored tool.
type Tool struct {
	Name    string   // as it was called
	Command string   // name in a manifest: a name for the cage's PATH, or an absolute path
	Read    []string // directories that it needs to read: its interpreter's library
	Root    *Tree
}

// Draft is a pack, and information about it for a person.
type Draft struct {
	Pack         string // its name
	YAML         []byte
	Capabilities []Drafted
	LeftOut      []Left // commands
	Options      int    // number of options that were left out
}

// Drafted is one capability.
type Drafted struct {
	ID         string `json:"id"`
	SideEffect string `json:"sideEffectClass"`
}

// Left is a part that the draft omits, and why.
type Left struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Limits of a draft.
const (
	maxInputs  = 60        // a manifest may have 64
	maxDraft   = 256 << 10 // bytes, of the capabilities
	maxTells   = 160       // bytes of a description
	maxChooses = 512       // bytes of the choices of one input
	maxNoted   = 2 << 10   // bytes of a comment
)

// New drafts a pack. It returns an error if no capability can be made.
func New(t Tool) (*Draft, error) {
	for _, path := range append([]string{t.Command}, t.Read...) {
		if flattenText(path, len(path)) != path {
			return nil, bailey.Invalid.New("the path "+flattenText(path, 200)+" is not valid in a manifest",
				"give it a name without double spaces and invisible characters")
		}
	}
	d := &drafter{tool: t, names: map[string]bool{}}
	d.out.Pack = packName(t.Name)
	leaves, left := t.Root.Leaves()
	for _, l := range left {
		d.leaveOut(l, l.Skipped)
	}
	var body strings.Builder
	for _, l := range leaves {
		if body.Len() > maxDraft {
			d.leaveOut(l, "the draft has reached its maximum size")
			continue
		}
		d.draftCapability(&body, l)
	}
	if len(d.out.Capabilities) == 0 {
		return nil, bailey.Invalid.New("nothing in the help of "+flattenText(t.Name, 60)+" could be made a capability"+d.leftOutReason(),
			"write the pack by hand; bailey pack scaffold NAME creates a template")
	}
	d.out.YAML = []byte(d.manifestHead() + body.String() + d.leftOutComment())
	return &d.out, nil
}

type drafter struct {
	tool  Tool
	out   Draft
	names map[string]bool
}

func (d *drafter) leaveOut(t *Tree, why string) {
	d.out.LeftOut = append(d.out.LeftOut, Left{strings.TrimSpace(d.tool.Name + " " + t.fullName()), why})
}

func (d *drafter) leftOutReason() string {
	if len(d.out.LeftOut) == 0 {
		return ""
	}
	return ": " + flattenText(d.out.LeftOut[0].What+": "+d.out.LeftOut[0].Why, 200)
}

var unsafeName = lazyRegexp(`[^a-z0-9]+`)

// safeName returns s in lower case, with only letters, digits and the separator by. It begins with a letter and has at
// most 60 characters.
func safeName(s, or, by string) string {
	s = strings.Trim(unsafeName().ReplaceAllString(strings.ToLower(s), by), by)
	if s == "" || s[0] < 'a' {
		s = strings.Trim(or+by+s, by)
	}
	return strings.Trim(s[:min(len(s), 60)], by)
}

func packName(tool string) string { return safeName(tool, "tool", "-") }

// uniqueName returns a name that is not taken yet.
func uniqueName(name, by string, taken map[string]bool) string {
	made := name
	for i := 2; taken[made]; i++ {
		made = fmt.Sprintf("%s%s%d", name, by, i)
	}
	taken[made] = true
	return made
}

// argumentStyle reports whether an option and its value can be joined, and whether -- may precede operands. It uses the
// command's own help, or that of the program if the command's shows no style. If a tool ignored --, an operand after it
// could act as an option. So only the guarantee of a known library counts; otherwise the gate must refuse operands that
// begin with a dash.
func (d *drafter) argumentStyle(t *Tree) (joins, dashes bool) {
	s, root := t.Help.Style, d.tool.Root.Help
	if s == Plain {
		s = root.Style
	}
	joins = s != Plain || t.Help.Joined || root.Joined
	return joins, s != Docopt && s != Plain
}

// draftCapability writes one command, or leaves it out.
func (d *drafter) draftCapability(b *strings.Builder, t *Tree) {
	c := &capability{looks: isReadOnlyCommand(d.tool.Name, t), taken: map[string]bool{}, args: slices.Clone(t.Words)}
	c.reader = c.looks && t.isReader(d.tool.Name)
	if t.Mode != "" {
		c.args = append(c.args, t.Mode)
	}
	joins, dashes := d.argumentStyle(t)
	c.joins = joins
	why := t.Help.Unclear
	if n := len(t.Words); n > 0 && slices.Contains(vocabulary().executing, t.Words[n-1]) {
		why = "according to its name it runs programs, or prompts a person"
	}
	for _, o := range t.orderedOptions() {
		if why == "" {
			why = c.addOption(o, maxInputs-len(t.Help.Operands))
		}
	}
	if why == "" {
		why = c.addOperands(t.Help.Operands, dashes)
	}
	if why != "" {
		d.leaveOut(t, why)
		return
	}
	d.out.Options += len(c.left)
	name := "run"
	if words := strings.ReplaceAll(t.fullName(), " ", "-"); words != "" {
		name = safeName(words, "c", "-")
	}
	d.writeCapability(b, uniqueName(name, "-", d.names), c, t)
}

// orderedOptions returns the options of a command. In a mode, the file comes first: there are more options than a
// capability can have, and without an archive a mode has nothing to work on.
func (t *Tree) orderedOptions() []Option {
	list := slices.Clone(t.Help.Options)
	if t.Mode != "" {
		slices.SortStableFunc(list, func(a, b Option) int {
			return isFileOption(b) - isFileOption(a)
		})
	}
	return list
}

func isFileOption(o Option) int {
	if o.longName() == "--file" && o.Values == 1 {
		return 1
	}
	return 0
}

// capability is one command that is being drafted.
type capability struct {
	looks, joins bool
	reader       bool     // the program only reads
	args         []string // elements of argv
	inputs       []input
	taken        map[string]bool
	left         []Left // options
}

type input struct {
	name, typ, format, tells string
	choices                  []string
	list, required           bool
}

// addOption makes an input of an option, or leaves it out. It returns a reason if the command requires an option that
// is left out.
func (c *capability) addOption(o Option, room int) (why string) {
	name := o.longName()
	bare := strings.TrimLeft(name, "-")
	switch {
	case slices.Contains([]string{"help", "h", "version", "usage", "?"}, bare) || slices.Contains(o.Names, "--help") ||
		slices.Contains(o.Names, "--version"):
		return ""
	case optionHazard(o, c.looks, c.reader) != "":
		why = optionHazard(o, c.looks, c.reader)
	case o.Values > 1:
		why = "takes several values"
	case len(name) > 2 && !strings.HasPrefix(name, "--") && o.Values > 0:
		why = "it takes its value after a long name with one dash"
	case o.Values > 0 && strings.HasPrefix(name, "--") && !c.joins:
		why = "its value is a separate argument"
	case len(c.inputs) >= room:
		why = fmt.Sprintf("beyond %d inputs", maxInputs)
	case c.taken["/"+name]:
		return ""
	}
	if why != "" {
		c.left = append(c.left, Left{strings.Join(o.Names, "|"), why})
		if o.Required {
			return "it requires " + name + ", which " + why
		}
		return ""
	}
	c.taken["/"+name] = true // no input has such a name
	in := input{name: uniqueName(inputName(bare), "_", c.taken), tells: o.Summary, required: o.Required,
		choices: o.Choices}
	switch joint := map[bool]string{true: "=", false: ""}[strings.HasPrefix(name, "--")]; {
	case o.Values == 0:
		in.typ = "boolean"
		c.args = append(c.args, fmt.Sprintf("{{ input.%s | flag: %q }}", in.name, name))
	default:
		in.typ, in.format = valueType(o.Value)
		c.args = append(c.args, fmt.Sprintf("%s%s{{ input.%s }}", name, joint, in.name))
	}
	c.inputs = append(c.inputs, in)
	return ""
}

// inputName keeps the case of a one-letter option: -r and -R are different.
func inputName(s string) string {
	if len(s) == 1 && s[0] >= 'A' && s[0] <= 'Z' {
		return s
	}
	return safeName(s, "o", "_")
}

// addOperands makes inputs of operands. If the usage shows --, it is put there; otherwise before the first operand.
func (c *capability) addOperands(list []Operand, dashes bool) (why string) {
	shown := slices.ContainsFunc(list, func(o Operand) bool { return o.Dashes })
	for i, o := range list {
		if o.Dashes || i == 0 && dashes && !shown {
			c.args = append(c.args, "--")
		}
		if o.isExecuted() {
			if o.Required {
				return "it runs its arguments"
			}
			continue
		}
		in := input{name: uniqueName(inputName(o.Name), "_", c.taken), tells: o.Summary, required: o.Required,
			choices: o.Choices}
		in.typ, in.format = valueType(o.Name)
		in.list = o.Many && in.format != "path"
		c.args = append(c.args, fmt.Sprintf("{{ input.%s }}", in.name))
		c.inputs = append(c.inputs, in)
	}
	return ""
}

// Notes returns the README.md for the draft, which a person should read before the first call. It contains no text of
// the tool.
func (d *Draft) Notes() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Pack %s, a draft\n\nThis draft was generated from the tool's help and not reviewed. In `pack.yaml`:\n\n", d.Pack)
	b.WriteString("1. Delete the capabilities that no agent needs.\n" +
		"2. At each `review:` check risk, sideEffectClass and reversibility. `readOnly` was derived from a name; `mutating`,\n" +
		"   `high` and `irreversible` mean that nothing is known.\n" +
		"3. At each `left out` add only options that you understand, with the narrowest type: an `enum`, a `pattern`, a `format`.\n" +
		"4. Inputs with `format: path` were guessed from their names. An input that names a file and has no such format is not\n" +
		"   checked, and the jail does not show the file.\n" +
		"5. The tool has no network and writes nowhere. `sandboxProfile.network.egress` and `fs.rw` change that,\n" +
		"   `backend.cwdFromInput` sets its working directory, `credentials` lends it a secret. Decide on each.\n" +
		"6. Descriptions are read by agents, and come from the tool's author. Rewrite them in your own words.\n\n")
	fmt.Fprintf(&b, "Capabilities, %d:\n\n", len(d.Capabilities))
	for _, c := range d.Capabilities {
		fmt.Fprintf(&b, "* `%s`: %s\n", c.ID, c.SideEffect)
	}
	fmt.Fprintf(&b, "\nLeft out: %d commands and %d options; `pack.yaml` names them, with the reasons.\n",
		len(d.LeftOut), d.Options)
	return []byte(b.String())
}
