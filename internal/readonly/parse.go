package readonly

import (
	"slices"
	"strings"
)

// parseArguments separates options from operands, as getopt_long(3) does: short options bundle, long options
// abbreviate, options may follow operands, and -- ends them.
func (c *call) parseArguments() *refusal {
	for i := 1; i < len(c.args); i++ {
		w := &c.args[i]
		v := w.value
		switch {
		case c.end > 0 && len(v) > 1 && v[0] == '-' && !c.rule.Inert && !c.rule.free:
			return newRefusal("Write ./"+v, "some versions of %s read %s as an option even after --", c.rule.Name, v)
		case c.end > 0 || c.rule.free || len(v) < 2 || v[0] != '-' || w.tilde:
			c.operands = append(c.operands, i)
			if c.rule.Ordered {
				for i++; i < len(c.args); i++ {
					c.operands = append(c.operands, i)
				}
			}
			continue
		case w.data:
			return newRefusal("Put data in an argument of its own.", "an option of %s contains data", c.rule.Name)
		case v == "--":
			c.end = i
			continue
		}
		w.makeLiteral()
		var r *refusal
		switch {
		case c.rule.Hyphen:
			i, r = c.parseLong(i, "-")
		case strings.HasPrefix(v, "--"):
			i, r = c.parseLong(i, "--")
		default:
			i, r = c.parseShort(i)
		}
		if r != nil {
			return r
		}
	}
	return nil
}

// parseLong parses the long option at index i and returns the index of the last word that it uses.
func (c *call) parseLong(i int, hyphens string) (int, *refusal) {
	name, value, joined := strings.Cut(c.args[i].value[len(hyphens):], "=")
	full, kind, r := c.rule.resolveLong(name)
	if r != nil {
		return i, r
	}
	if full != name {
		c.args[i].value = hyphens + full + c.args[i].value[len(hyphens)+len(name):]
	}
	o := option{name: full, value: value, at: i}
	switch {
	case joined && kind == flagOption:
		return i, newRefusal(c.rule.usageHint(), "the option %s%s of %s takes no value", hyphens, full, c.rule.Name)
	case kind == valueOption && !joined:
		return c.nextValue(i, o)
	}
	return i, c.addOption(o)
}

// parseShort parses the bundle of short options at index i and returns the index of the last word that it uses.
func (c *call) parseShort(i int) (int, *refusal) {
	r, bundle := c.rule, c.args[i].value
	last := i
	for j := 1; j < len(bundle); j++ {
		letter := bundle[j : j+1]
		o := option{name: letter, at: i}
		switch {
		case strings.Contains(r.Flags, letter):
		case strings.Contains(r.Maybes, letter):
			o.value = bundle[j+1:]
			return last, c.addOption(o)
		case !strings.Contains(r.Values, letter):
			if a := r.findAct("-" + letter); a != nil {
				return i, r.refuseActing("-"+letter, a)
			}
			return i, r.refuseUnknown("-" + letter)
		case r.Apart:
			next, ref := c.nextValue(last, o)
			if ref != nil {
				return i, ref
			}
			last = next
			continue
		case j+1 < len(bundle):
			o.value = bundle[j+1:]
			return last, c.addOption(o)
		default:
			return c.nextValue(i, o)
		}
		if ref := c.addOption(o); ref != nil {
			return i, ref
		}
	}
	return last, nil
}

// nextValue takes the word after index i as the value of an option.
func (c *call) nextValue(i int, o option) (int, *refusal) {
	if i++; i >= len(c.args) {
		return i, newRefusal(c.rule.usageHint(), "the option %s of %s needs a value", o.name, c.rule.Name)
	}
	w := &c.args[i]
	switch {
	case w.data && !c.rule.Inert && (c.feed || !c.isFileOption(o.name)):
		return i, newRefusal("Write the value.", "the value of an option of %s is data", c.rule.Name)
	case w.tilde && !c.rule.Inert && !c.isFileOption(o.name):
		return i, newRefusal("Write the absolute path.", "the value of an option of %s begins with ~", c.rule.Name)
	case len(c.rule.Acts) > 0 && len(w.value) > 1 && w.value[0] == '-' && (w.value[1] < '0' || w.value[1] > '9'):
		// Another implementation of the program might take no value here, and read the word as an option.
		return i, newRefusal("Attach the value to its option.", "the value %s of an option of %s looks like an "+
			"option", w.value, c.rule.Name)
	}
	w.makeLiteral()
	o.value = w.value
	return i, c.addOption(o)
}

// addOption records an option and checks the file that its value names.
func (c *call) addOption(o option) *refusal {
	c.options = append(c.options, o)
	if l, ok := c.rule.Limits[o.name]; ok && !l.accepts(o.value) {
		return newRefusal(l.hintFor(o.name), "the value %q of the option %s of %s is not accepted", o.value, o.name, c.rule.Name)
	}
	if o.value != "" && c.isFileOption(o.name) {
		return checkRead(o.value)
	}
	return nil
}

func (c *call) isFileOption(name string) bool {
	return c.rule.Reads != "" && slices.Contains(strings.Fields(c.rule.Reads), name)
}
