package pack

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/gitremote"
	"bailey/internal/strictyaml"
)

// pattern describes the command lines that a capability is equivalent to: the leading words with options between and
// after them, then operands.
type pattern struct {
	words    []string
	options  []option
	tables   []tableOptions
	operands []operand // in order
	after    []operand // operands after --
	musts    []string  // inputs that an option of the line must set, or first names of options without one
	noDashes bool      // -- does not end the options of the tool
}

// tableOptions lets all options of an input's table stand at one place.
type tableOptions struct {
	place int // how many of the pattern's words come before
	input string
	table *optionTable
	items *rule // of the input
}

type option struct {
	place int // how many of the pattern's words come before
	names []string
	input string // "" means no relevant effect
	value bool   // the option takes a value
	list  bool   // the input is a list, and each occurrence adds a value
	is    string // value of the input that the option implies
	must  bool   // the line must have it, although its value is ignored
	count bool   // the value, which is ignored, is a number, maybe with a sign and a unit
}

type operand struct {
	input string // _ means ignored
	asIs  string // the input that gets the word, an address of git for ssh; the first input gets it for https
	def   *string
	many  bool // any number of words, with one call for each
	list  bool // the input is a list of words
	enum  []any
	rest  bool // the input is a list of all words from the first that is no option, or that follows another operand
	loose bool // rest, which also begins with -- or an option that the pattern does not have
	plain bool // from here on no word is an option
}

// maxMany limits the calls that one command line can mean.
const maxMany = 16

// ArgvPattern returns the leading words of the command lines that the capability is equivalent to, separated by spaces.
func (m *Capability) ArgvPattern() []string {
	var list []string
	for _, p := range m.patterns {
		if words := strings.Join(p.words, " "); !slices.Contains(list, words) {
			list = append(list, words)
		}
	}
	return list
}

// CagedLines reports whether the command lines are equivalent to the capability only in a cage. Outside, the tool would
// read or start more than the inputs name.
func (m *Capability) CagedLines() bool { return m.spec.CagedLines }

// Match returns the inputs, as text, with which the capability does the same as a command line. There is usually one
// input, and several if the line names several files. A line matches only if every word is accounted for. The inputs
// of the first pattern that matches may fail Check; then a later pattern counts if its inputs pass.
func (m *Capability) Match(argv []string) (inputs []map[string]any, ok bool) {
	at := ""
	if b := m.spec.Backend; b.CwdFromInput != "" && (b.Repository == "" || b.Repository == b.CwdFromInput) {
		if argv, at = GitDirectory(argv); climbsLater(at) {
			return nil, false
		}
	}
	for _, p := range m.patterns {
		these, fits := p.matchArgv(argv)
		if !fits {
			continue
		}
		if dir := m.spec.Backend.CwdFromInput; dir != "" {
			for _, in := range these {
				in[dir] = cmp.Or(at, ".")
			}
		}
		valid := m.acceptsAll(these)
		if valid || !ok {
			inputs, ok = these, true
		}
		if valid {
			break
		}
	}
	return inputs, ok
}

// GitDirectory returns a command line of git without its leading options -C, and the directory in which git then works, or
// "". As in git, an empty one changes nothing, and each is relative to the one before it. They are joined as they are,
// because a link may come before a "..".
func GitDirectory(argv []string) (rest []string, dir string) {
	if len(argv) == 0 || !sameProgram(argv[0], "git") {
		return argv, ""
	}
	rest = argv[:1:1]
	for argv = argv[1:]; len(argv) > 0; argv = argv[1:] {
		switch {
		case argv[0] == "--no-pager" || argv[0] == "-P":
			rest = append(rest, argv[0])
			continue
		case argv[0] != "-C" || len(argv) == 1:
			return append(rest, argv...), dir
		case argv[1] == "":
		case dir == "" || path.IsAbs(argv[1]):
			dir = argv[1]
		default:
			dir += "/" + argv[1]
		}
		argv = argv[1:]
	}
	return rest, dir
}

// climbsLater reports whether a path has a ".." after a name, which may be a link.
func climbsLater(dir string) bool {
	name := false
	for part := range strings.SplitSeq(dir, "/") {
		if part == ".." && name {
			return true
		}
		name = name || part != "" && part != "." && part != ".."
	}
	return false
}

// acceptsAll reports whether all inputs pass Check.
func (m *Capability) acceptsAll(inputs []map[string]any) bool {
	return !slices.ContainsFunc(inputs, func(in map[string]any) bool { _, err := m.Check(in, true); return err != nil })
}

// argvMatch is the state of one match.
type argvMatch struct {
	input    map[string]any
	many     string // the input that has one call for each word in several
	several  []string
	musts    []string
	operands []operand
	after    []operand
	place    int      // how many of the pattern's words were found
	began    bool     // an operand was found
	plain    bool     // no further word is an option
	given    []string // first names of the options that the line must have
}

func (p pattern) matchArgv(argv []string) ([]map[string]any, bool) {
	if len(argv) < len(p.words) || !sameProgram(argv[0], p.words[0]) {
		return nil, false
	}
	t := &argvMatch{input: map[string]any{}, musts: p.musts, operands: p.operands, after: p.after, place: 1}
	for rest := argv[1:]; len(rest) > 0 || t.place < len(p.words); {
		if len(rest) == 0 {
			return nil, false
		}
		a := rest[0]
		rest = rest[1:]
		t.plain = t.plain || t.place == len(p.words) && len(t.operands) > 0 && t.operands[0].plain
		switch {
		case t.plain:
			if !t.matchOperand(a, false) {
				return nil, false
			}
		case t.place < len(p.words) && a == p.words[t.place]:
			t.place++
		case t.place < len(p.words) && (len(a) < 2 || a[0] != '-' || a == "--"):
			return nil, false
		case a == "--" && p.noDashes:
			return nil, false
		case a == "--" && slices.ContainsFunc(p.tables, func(l tableOptions) bool { return l.table.open }):
			return nil, false // the items would not show where the options end
		case t.takesRest(a):
			return t.takeRest(a, rest)
		case a == "--":
			for _, word := range rest {
				if !t.matchOperand(word, true) {
					return nil, false
				}
			}
			return t.buildInputs()
		case len(a) > 1 && a[0] == '-':
			before := maps.Clone(t.input)
			n, ok := p.matchOption(t, a, rest)
			switch {
			case ok:
				rest = rest[n:]
			case t.place == len(p.words) && len(t.operands) > 0 && t.operands[0].loose:
				t.input = before // some letters of the word may have matched
				return t.takeRest(a, rest)
			default:
				return nil, false
			}
		case !t.matchOperand(a, false):
			return nil, false
		}
	}
	return t.buildInputs()
}

// takesRest reports whether a word and all that follow belong to a program that the tool starts.
func (t *argvMatch) takesRest(word string) bool {
	return len(t.operands) > 0 && t.operands[0].rest &&
		(t.began || len(word) < 2 || word[0] != '-' || word == "--" && t.operands[0].loose)
}

// takeRest consumes all words.
func (t *argvMatch) takeRest(word string, rest []string) ([]map[string]any, bool) {
	for _, w := range append([]string{word}, rest...) {
		if !t.matchOperand(w, false) {
			return nil, false
		}
	}
	return t.buildInputs()
}

// sameProgram reports whether a word starts the named program, which may have the usual system path.
func sameProgram(word, name string) bool {
	return word == name || word == "/usr/bin/"+name || word == "/bin/"+name
}

// matchOption consumes a word that begins with a dash. It returns the number of following words that belong to it.
func (p pattern) matchOption(t *argvMatch, a string, rest []string) (n int, ok bool) {
	if !p.joinsOptions(t, a) {
		if n, ok := p.matchOne(t, a, rest); ok || a[1] == '-' || len(a) == 2 {
			return n, ok
		}
	}
	if slices.ContainsFunc(p.tables, func(l tableOptions) bool { return l.place == t.place && l.table.flags }) {
		return 0, false // package flag of Go knows no joined letters
	}
	// several short options in one word: the text after the first one with a value is its value (getopt(3))
	for at := 1; at < len(a); at++ {
		letter, left := "-"+a[at:at+1], a[at+1:]
		if !p.takesValue(t, letter) {
			if _, ok := p.matchOne(t, letter, nil); !ok {
				return 0, false
			}
			continue
		}
		if left != "" {
			_, ok := p.matchOne(t, letter, []string{left})
			return 0, ok
		}
		return p.matchOne(t, letter, rest)
	}
	return 0, true
}

// joinsOptions reports whether a word joins several short options, of which the pattern itself has one.
func (p pattern) joinsOptions(t *argvMatch, a string) bool {
	if a[1] == '-' || len(a) == 2 || p.takesValue(t, a[:2]) || p.hasOption(t, a) {
		return false
	}
	for at := range a[1:] {
		if p.hasOption(t, "-"+a[at+1:at+2]) {
			return true
		}
	}
	return false
}

func (p pattern) hasOption(t *argvMatch, name string) bool {
	return slices.ContainsFunc(p.options, func(o option) bool { return o.place == t.place && slices.Contains(o.names, name) })
}

// takesValue reports whether the option with this name must have a value.
func (p pattern) takesValue(t *argvMatch, name string) bool {
	for _, o := range p.options {
		if o.place == t.place && slices.Contains(o.names, name) {
			return o.value
		}
	}
	for _, l := range p.tables {
		if o := l.table.findOption(name); l.place == t.place && o != nil {
			return o.value && !o.optional
		}
	}
	return false
}

// matchOne consumes one option: of the pattern, or, if its input is set already, of a table.
func (p pattern) matchOne(t *argvMatch, a string, rest []string) (n int, ok bool) {
	name, value, joined := strings.Cut(a, "=")
	for _, o := range p.options {
		known := o.place == t.place && slices.Contains(o.names, a)
		switch {
		case o.place != t.place:
		case joined && o.value && slices.Contains(o.names, name+"="):
			ok = t.setInput(o, value)
		case known && !o.value:
			ok = t.setInput(o, true)
		case known && len(rest) > 0:
			n, ok = 1, t.setInput(o, rest[0])
		case joined && strings.HasPrefix(a, "--") && o.value && slices.Contains(o.names, name):
			ok = t.setInput(o, value)
		case slices.Contains(o.names, "-#") && strings.Trim(a[1:], "0123456789") == "":
			ok = t.setInput(o, a[1:])
		case o.value && a[1] != '-' && len(a) > 2 && slices.Contains(o.names, a[:2]):
			ok = t.setInput(o, a[2:])
		}
		if ok {
			return n, true
		}
		n = 0
	}
	for _, l := range p.tables {
		if l.place != t.place {
			continue
		}
		items, used := l.table.readWord(a, rest)
		if len(items) > 0 && !slices.ContainsFunc(items, l.refusesItem) {
			had, _ := t.input[l.input].([]any)
			for _, item := range items {
				had = append(had, item)
			}
			t.input[l.input] = had
			return used, true
		}
		// The words after an option with an unknown number of values must go to the same list.
		if o := t.operands; len(o) > 0 && o[0].list && o[0].input == l.input && l.table.isUnlisted(a) {
			had, _ := t.input[l.input].([]any)
			t.input[l.input] = append(had, a)
			return 0, true
		}
	}
	return 0, false
}

// refusesItem reports whether the schema of the items excludes an option of the table, for example by not: {enum: […]}.
// Another table can have it.
func (l tableOptions) refusesItem(item string) bool { return !new(checker).satisfies(l.items, item) }

// setInput sets the value of an input, or adds it to a list. It returns false if the input is set already.
func (t *argvMatch) setInput(o option, v any) bool {
	if o.must {
		t.given = append(t.given, o.names[0])
	}
	if o.input == "" {
		return !o.count || isCount(v)
	}
	if o.list {
		had, _ := t.input[o.input].([]any)
		t.input[o.input] = append(had, v)
		return true
	}
	if _, twice := t.input[o.input]; twice {
		return false
	}
	if o.is != "" {
		v = o.is
	}
	t.input[o.input] = v
	return true
}

// isCount reports whether a value is a number, maybe with a sign and a unit: 20, +3, -1, 10K.
func isCount(v any) bool {
	text, _ := v.(string)
	digits := strings.TrimRight(strings.TrimLeft(text, "+-"), "bkBKMG")
	return digits != "" && len(text)-len(digits) <= 3 && strings.Trim(digits, "0123456789") == ""
}

// matchOperand consumes a word that is not an option. After -- it uses the operands for --, if there are any.
func (t *argvMatch) matchOperand(word string, after bool) bool {
	from := &t.operands
	if after && len(t.after) > 0 {
		from = &t.after
	}
	if len(*from) == 0 {
		return false
	}
	o := (*from)[0]
	if o.enum != nil && !slices.Contains(o.enum, any(word)) {
		return false
	}
	t.began = true
	if o.list {
		had, _ := t.input[o.input].([]any)
		t.input[o.input] = append(had, word)
		return true
	}
	if o.many {
		t.many, t.several = o.input, append(t.several, word)
		return len(t.several) <= maxMany
	}
	*from = (*from)[1:]
	if o.asIs != "" {
		url, err := gitremote.Address(word)
		return err == nil && url != word && t.setInput(option{input: o.asIs}, word) && t.setInput(option{input: o.input}, url)
	}
	return o.input == "_" || t.setInput(option{input: o.input}, word)
}

// buildInputs adds the defaults of missing operands and returns one input for each call.
func (t *argvMatch) buildInputs() ([]map[string]any, bool) {
	missing := func(name string) bool { return t.input[name] == nil && !slices.Contains(t.given, name) }
	if slices.ContainsFunc(t.musts, missing) {
		return nil, false
	}
	for _, o := range slices.Concat(t.operands, t.after) {
		switch {
		case o.many && len(t.several) > 0:
		case o.def != nil && o.input != "_":
			t.setInput(option{input: o.input}, *o.def)
		case o.input == "_":
			return nil, false // a required operand is missing
		}
	}
	if len(t.several) == 0 {
		return []map[string]any{t.input}, true
	}
	var inputs []map[string]any
	for _, word := range t.several {
		in := map[string]any{t.many: word}
		maps.Copy(in, t.input)
		inputs = append(inputs, in)
	}
	return inputs, true
}

// parsePatterns parses argvPattern. The inputs must be known.
func (r *reader) parsePatterns(n ast.Node, texts []string, s *schema) (list []pattern) {
	for _, text := range texts {
		p, wrong := readPattern(text, s)
		if wrong != "" {
			r.AddFault(n, "argvPattern %q: %s", strictyaml.Clip(text), wrong)
		}
		list = append(list, p)
	}
	return list
}

func readPattern(text string, s *schema) (p pattern, wrong string) {
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimLeft(rest, " ") {
		end, ok := " ", true
		switch rest[0] {
		case '{':
			end = "}"
		case '[':
			end = "]"
		}
		var item string
		if item, rest, ok = strings.Cut(rest, end); !ok && end != " " {
			return p, "a bracket is not closed"
		}
		switch end {
		case " ":
			if len(p.operands)+len(p.after) > 0 || len(p.words) == 0 && len(p.options)+len(p.tables) > 0 {
				return p, "write the program before options, and words before operands"
			}
			p.words = append(p.words, item)
		case "}":
			wrong = p.readOption(item[1:], s)
		default:
			wrong = p.readOperand(item[1:], s)
		}
		if wrong != "" {
			return p, wrong
		}
	}
	if len(p.words) == 0 {
		return p, "it needs a program"
	}
	return p, ""
}

func (p *pattern) readOption(item string, s *schema) string {
	names, input, _ := strings.Cut(item, " ")
	input, must := strings.CutSuffix(input, "!")
	if name, _, _ := strings.Cut(input, "="); must && name == "_" {
		name, _, _ = strings.Cut(names, "|")
		p.musts = append(p.musts, name)
	} else if must {
		p.musts = append(p.musts, name)
	}
	if names == "..." {
		in := s.props[input]
		if in == nil || in.Items.followRef() == nil || in.Items.followRef().options == nil {
			return "{... " + safeText(input) + "} needs a list whose items have x-bailey options"
		}
		p.tables = append(p.tables, tableOptions{len(p.words), input, in.Items.followRef().options,
			in.Items.followRef()})
		return ""
	}
	o := option{names: strings.Split(names, "|"), place: len(p.words)}
	o.input, o.is, _ = strings.Cut(input, "=")
	in := s.props[o.input]
	switch {
	case slices.ContainsFunc(o.names, func(n string) bool { return len(n) < 2 || n[0] != '-' }):
		return "an option must begin with a dash"
	case o.input == "_":
		o.input, o.value, o.must = "", true, must
	case o.input == "#":
		o.input, o.value, o.count = "", true, true
	case must && in == nil:
		return "! needs an input"
	case o.input != "" && in == nil:
		return "there is no input " + safeText(o.input)
	case o.input != "":
		o.value = o.is == "" && !in.hasOnlyTypes("boolean")
		o.list = o.value && in.hasOnlyTypes("array")
	}
	p.options = append(p.options, o)
	return ""
}

func (p *pattern) readOperand(item string, s *schema) string {
	if item == "--" {
		p.noDashes = true
		return ""
	}
	to := &p.operands
	if after, ok := strings.CutPrefix(item, "-- "); ok {
		to, item = &p.after, after
	}
	var o operand
	if item, o.loose = strings.CutPrefix(item, "... "); !o.loose {
		if item, o.rest = strings.CutPrefix(item, "+ "); !o.rest {
			item, o.plain = strings.CutPrefix(item, "+")
		}
	}
	o.rest = o.rest || o.loose
	item, o.many = strings.CutSuffix(item, "...")
	name, def, given := strings.Cut(item, "=")
	if name, o.asIs, _ = strings.Cut(name, "<"); o.asIs != "" && s.props[o.asIs] == nil {
		return "there is no input " + safeText(o.asIs)
	}
	if o.input = name; given {
		o.def = &def
	}
	switch in := s.props[name]; {
	case name == "_":
	case in == nil:
		return "there is no input " + safeText(name)
	default:
		o.list, o.enum = in.hasOnlyTypes("array"), in.Enum
	}
	if o.rest && (!o.list || o.many || given || to == &p.after) {
		return "[+ " + safeText(name) + "] and [... " + safeText(name) + "] need a list, before --"
	}
	*to = append(*to, o)
	return ""
}

// Meaning is a capability that is equivalent to a command line, with the inputs of the equivalent calls.
type Meaning struct {
	*Capability
	Inputs []map[string]any // several if the line names several values for an input that takes one
}

// Meanings returns all meanings of a command line, in the order of the list. If the inputs of some of them are valid,
// only these count. If the inputs of several are invalid, the line has no meaning.
func Meanings(list []*Capability, argv []string) (found []Meaning) {
	if len(argv) == 0 {
		return nil
	}
	fits := false
	for _, m := range list {
		inputs, ok := m.Match(argv)
		if !ok {
			continue
		}
		valid := m.acceptsAll(inputs)
		if valid && !fits {
			fits, found = true, nil
		}
		if valid == fits {
			found = append(found, Meaning{m, inputs})
		}
	}
	if !fits && len(found) > 1 {
		return nil // none of them accepts the line, and no complaint of one of them would tell why
	}
	return found
}

// maxNear limits the result of Near.
const maxNear = 5

// Near returns the capabilities that are closest to a command line without a meaning: those that share the most leading
// words, but at least the program.
func Near(list []*Capability, argv []string) (near []*Capability) {
	argv, _ = GitDirectory(argv)
	most := 1
	for _, m := range list {
		shared := 0
		for _, p := range m.patterns {
			n := 0
			for n < len(argv) && n < len(p.words) &&
				(argv[n] == p.words[n] || n == 0 && sameProgram(argv[0], p.words[0])) {
				n++
			}
			shared = max(shared, n)
		}
		if shared > most {
			most, near = shared, nil
		}
		if shared == most {
			near = append(near, m)
		}
	}
	return slices.Clip(near[:min(len(near), maxNear)])
}

// CwdInput returns the input that names the working directory of the tool, or "".
func (m *Capability) CwdInput() string { return m.spec.Backend.CwdFromInput }
