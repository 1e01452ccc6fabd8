package readonly

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call is one command while it is checked. Checks may rewrite args.
type call struct {
	k        *checker
	rule     *Rule
	args     []word // args[0] is the name
	in       input
	feed     bool // data is appended to the arguments, or replaces a part of them
	options  []option
	operands []int  // indexes into args, without the subcommand
	end      int    // index of --, or 0
	sub      string // the subcommand
	network  bool   // this use of the command needs network access
}

// option is one option that the call contains.
type option struct {
	name  string // one character, or the full name of a long option
	value string
	at    int // index into args
}

// checkSimpleCommand checks and renders one simple command.
func (k *checker) checkSimpleCommand(n *syntax.CallExpr, in input) *refusal {
	if len(n.Args) == 0 {
		return newRefusal(assignHint, "the line sets a variable for the commands that follow")
	}
	if r := k.checkAssignments(n.Assigns); r != nil {
		return r
	}
	words := make([]word, 0, len(n.Args)+1)
	for _, w := range n.Args {
		more, r := expandWord(w)
		if r != nil {
			return r
		}
		words = append(words, more...)
	}
	if len(words) > maxWords {
		return newRefusal("Name fewer files.", "a command has more than %d words", maxWords)
	}
	args, r := k.bindCommand(words, in, "", false)
	if r != nil {
		return r
	}
	if len(n.Assigns) > 0 && args[0].value[0] != '/' {
		return newRefusal("Run the builtin without assignments.",
			"a builtin of the shell keeps the variables that are set before it")
	}
	for i := range args {
		if i > 0 {
			k.out.WriteByte(' ')
		}
		k.out.WriteString(args[i].renderSource())
	}
	return nil
}

// bindCommand finds the rule of a command, checks the command with it, and returns the words with the absolute path of
// the program as first word. inside names the command that runs it. feed is true if the arguments contain data that is
// not known yet.
func (k *checker) bindCommand(words []word, in input, inside string, feed bool) ([]word, *refusal) {
	if len(k.commands) >= MaxCommands {
		return nil, newRefusal("Split the line.", "the line has more than %d commands", MaxCommands)
	}
	name := words[0]
	if !name.plain || name.data || name.value == "" {
		return nil, newRefusal("Write the name without quotes, escapes and expansions, for example: ls",
			"the name of a "+
				"command is not a plain word")
	}
	if path.Base(name.value) == "[" {
		last := len(words) - 1
		if words[last].value != "]" || last == 0 {
			return nil, newRefusal("Write test -f /etc/hosts", "[ has no ] at its end")
		}
		name.value = name.value[:len(name.value)-1] + "test" // a quoted or unquoted [ has no fixed form as a name
		words = words[:last]
	}
	rule, where, own, r := k.findRule(name.value)
	if r != nil {
		return nil, r
	}
	if inside != "" && (rule.shell || rule.nests && inside != "timeout") {
		return nil, newRefusal("Run "+rule.Name+" directly.", "%s cannot run %s", inside, rule.Name)
	}
	at := len(k.commands)
	k.commands = append(k.commands, Command{})
	c := &call{k: k, rule: rule, args: words, in: in, feed: feed}
	if !rule.shell {
		c.args[0] = word{value: where, plain: true}
	}
	if r := c.checkArguments(); r != nil {
		return nil, r
	}
	if own {
		if r := c.checkOwnOperands(); r != nil {
			return nil, r
		}
	}
	done := Command{Name: rule.Name, Inside: inside, Network: rule.Network || c.network, Added: own,
		Args: make([]string, 0, len(c.args)-1)}
	if !rule.shell {
		done.Path = where
	}
	for _, w := range c.args[1:] {
		done.Args = append(done.Args, w.value)
	}
	k.commands[at] = done
	return c.args, nil
}

// findRule returns the rule of a command and the absolute path of its program. A path must be in a system directory,
// because a program of the same name elsewhere can be any program.
func (k *checker) findRule(name string) (rule *Rule, where string, own bool, ref *refusal) {
	dir, base := path.Split(name)
	rule = k.table.rules[base]
	if rule == nil {
		rule, own = k.own[base], true
	}
	switch {
	case rule == nil:
		if r := k.table.refused[base]; r != nil {
			return nil, "", false, r
		}
		return nil, "", false, newRefusal("Use a command of the read-only set, or ask for approval of this one.",
			"the "+
				"command %s is not in the read-only set", name)
	case own && dir != "" && name != rule.programDir()+"/"+base:
		return nil, "", false, newRefusal("Write "+base+" without a directory.", "%s is not the program that the "+
			"operator added", name)
	case dir == "" && k.paths[rule.Name] != "" && !own:
		where = k.paths[rule.Name]
		if d, b := path.Split(where); b == rule.Name && slices.Contains(systemDirs, strings.TrimSuffix(d, "/")) {
			return rule, where, own, nil
		}
		return rule, rule.programDir() + "/" + base, own, nil
	case dir == "":
		return rule, rule.programDir() + "/" + base, own, nil
	case rule.shell:
		return nil, "", false, newRefusal("Write "+rule.Name+" without a directory.", "%s is a builtin of the "+
			"shell", rule.Name)
	case slices.Contains(systemDirs, dir[:len(dir)-1]), dir[:len(dir)-1] == rule.programDir():
		return rule, name, own, nil
	}
	return nil, "", false, newRefusal("Write "+base+" without a directory.", "%s is not in a system directory", name)
}

// checkOwnOperands refuses operands by which programs are known to execute or connect: addresses, pipes, and files of
// further arguments. Nothing else is known about a program of an operator.
func (c *call) checkOwnOperands() *refusal {
	for _, at := range c.operands {
		v := c.args[at].value
		if strings.Contains(v, "://") || v != "" && strings.IndexByte("|<>!@+", v[0]) >= 0 || strings.HasSuffix(v, "|") {
			return newRefusal(c.rule.usageHint(), "the operand %q of %s can be an address, a pipe or a file of arguments",
				v, c.rule.Name)
		}
	}
	return nil
}

// checkArguments checks the arguments with the rule.
func (c *call) checkArguments() *refusal {
	if r := c.parseArguments(); r != nil {
		return r
	}
	if r := c.matchSubcommand(); r != nil {
		return r
	}
	if r := c.checkOperands(); r != nil {
		return r
	}
	if c.feed && !c.rule.Inert && !(c.rule.Tail && c.end > 0 && !c.dataBefore(c.end)) {
		hint := "Name the files in the line."
		if c.rule.Tail {
			hint = "End its options with --, for example: xargs " + c.rule.Name + " --"
		}
		return newRefusal(hint, "xargs turns data into arguments, and an argument of %s can be an option that acts",
			c.rule.Name)
	}
	if n := c.rule.Needs; n.Options != "" && !c.hasOption(strings.Fields(n.Options)...) {
		return newRefusal(c.rule.usageHint(), "%s", n.Reason)
	}
	if c.rule.check != nil {
		return c.rule.check(c)
	}
	return nil
}

// dataBefore reports whether an argument before index i contains data.
func (c *call) dataBefore(i int) bool {
	return slices.ContainsFunc(c.args[:i], func(w word) bool { return w.data })
}

// matchSubcommand matches the first operands with the subcommands of the rule and removes them from the operands.
func (c *call) matchSubcommand() *refusal {
	r := c.rule
	if len(r.Subs) == 0 || len(c.operands) == 0 && r.Bare {
		return nil
	}
	first, second := c.operandText(0), ""
	if len(c.operands) > 1 {
		second = c.operandText(1)
	}
	for _, sub := range r.Subs {
		one, two, pair := strings.Cut(sub, " ")
		if one != first || pair && two != second || first == "" {
			continue
		}
		c.sub = sub
		for range 1 + strings.Count(sub, " ") {
			w := &c.args[c.operands[0]]
			if w.data || w.tilde || w.bare != nil {
				return newRefusal(r.usageHint(), "the subcommand of %s is not a plain word", r.Name)
			}
			c.operands = c.operands[1:]
		}
		return nil
	}
	if first == "" {
		return newRefusal(r.usageHint(), "%s runs without a subcommand", r.Name)
	}
	return newRefusal(r.usageHint(), "the subcommand %q of %s is not in the read-only set", first, r.Name)
}

// checkOperands checks the number and the kind of the operands.
func (c *call) checkOperands() *refusal {
	r := c.rule
	n := len(c.operands)
	switch {
	case r.Operands == NoOperands && n > 0:
		return newRefusal(r.usageHint(), "%s accepts no operand, and %q is one", strings.TrimSpace(r.Name+" "+c.sub),
			c.operandText(0))
	case n < r.Least && !c.feed:
		return newRefusal(r.usageHint(), "%s needs %d operands", r.Name, r.Least)
	case r.Most > 0 && n > r.Most:
		return newRefusal(r.usageHint(), "%s accepts at most %d operands, and %q is one more", r.Name, r.Most,
			c.operandText(r.Most))
	}
	if r.Operands == checked {
		return nil
	}
	for i, at := range c.operands {
		kind := r.Operands
		if kind == Pattern {
			if kind = Files; i == 0 && !c.hasPattern() {
				kind = Words
			}
		}
		if ref := c.checkOperand(&c.args[at], kind); ref != nil {
			return ref
		}
	}
	return nil
}

func (c *call) checkOperand(w *word, kind Operands) *refusal {
	r := c.rule
	switch {
	case w.data && !r.Inert && (kind == Words || r.Most > 0):
		return newRefusal("Use a command that reads files, for example cat or grep.", "%s gets data as an argument",
			r.Name)
	case kind == Words:
		if w.tilde && !r.Inert {
			return newRefusal("Write the absolute path, or quote the ~.", "an operand of %s begins with ~", r.Name)
		}
		w.makeLiteral()
		return nil
	case w.bare != nil && r.Most > 0:
		return newRefusal("Write the name of the file.", "a glob can expand to more operands than %s accepts", r.Name)
	case w.hasLeadingGlob() && !r.Inert && c.end == 0:
		return newRefusal("Write ./"+w.value, "the glob %s can expand to a word that %s reads as an option", w.value,
			r.Name)
	case w.data || w.tilde:
		return nil
	case kind == Names:
		return checkName(w.value)
	}
	return checkRead(w.value)
}

// operandText returns the text of operand i, or "".
func (c *call) operandText(i int) string {
	if i < len(c.operands) {
		return c.args[c.operands[i]].value
	}
	return ""
}

// hasOption reports whether the call contains one of the options.
func (c *call) hasOption(names ...string) bool {
	return slices.ContainsFunc(c.options, func(o option) bool { return slices.Contains(names, o.name) })
}

// hasPattern reports whether an option gives the pattern, as -e and -f of grep do.
func (c *call) hasPattern() bool {
	return slices.ContainsFunc(c.options, func(o option) bool {
		return o.value != "" && slices.Contains([]string{"e", "regexp", "f", "file"}, o.name)
	})
}

// makeLiteralFrom makes the arguments from index i on literal: globs are quoted, and a leading ~ is refused.
func (c *call) makeLiteralFrom(i int) *refusal {
	for ; i < len(c.args); i++ {
		if c.args[i].tilde {
			return newRefusal("Write the absolute path.", "an argument of %s begins with ~", c.rule.Name)
		}
		c.args[i].makeLiteral()
	}
	return nil
}

// harmlessDevices may be read. Any other device can block or act when it is opened, for example /dev/watchdog.
var harmlessDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/stdin"}

// actingFiles are files and directories below which reading has an effect: it consumes kernel messages or trace events.
var actingFiles = []string{"/proc/kmsg", "/sys/kernel/debug", "/sys/kernel/tracing"}

// checkRead refuses a file of which reading acts.
func checkRead(name string) *refusal {
	clean := name
	if strings.Contains(name, "//") || strings.Contains(name, "/.") {
		clean = path.Clean(name)
	}
	if isBelow(clean, "/dev") && !slices.Contains(harmlessDevices, clean) {
		return newRefusal("Read /dev/null, /dev/zero or a regular file. ls and stat show a device.",
			"opening the device %s can act or block", name)
	}
	for _, f := range actingFiles {
		if isBelow(clean, f) {
			return newRefusal("Use dmesg or journalctl.", "reading %s changes the state of the kernel", name)
		}
	}
	return checkName(name)
}

// checkName refuses a file of which even the metadata is not free of effects: the automounter mounts names below /net.
func checkName(name string) *refusal {
	if isBelow(path.Clean(name), "/net") {
		return newRefusal("findmnt lists the mounted file systems.", "reading %s mounts a remote file system", name)
	}
	return nil
}

func isBelow(name, dir string) bool {
	return strings.HasPrefix(name, dir) && (len(name) == len(dir) || name[len(dir)] == '/')
}
