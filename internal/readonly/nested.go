package readonly

import (
	"slices"
	"strings"
)

// checkNested checks the command that begins at index i of the arguments and runs with the given input.
func (c *call) checkNested(i int, in input, feed bool) *refusal {
	if c.k.depth++; c.k.depth > 4 {
		return newRefusal("Run the command directly.", "commands run each other more than 4 levels deep")
	}
	inner, r := c.k.bindCommand(c.args[i:], in, c.rule.Name, feed)
	c.k.depth--
	if r != nil {
		return r
	}
	c.args = append(c.args[:i], inner...)
	return nil
}

// checkTimeout checks the duration and the command of timeout.
func checkTimeout(c *call) *refusal {
	duration := c.operandText(0)
	if strings.Trim(duration, "0123456789.smhd") != "" {
		return newRefusal("Write for example: timeout 10 df -h", "%q is not a duration", duration)
	}
	return c.checkNested(c.operands[1], c.in, false)
}

// checkXargs checks the command that xargs runs. Data becomes arguments, so no argument of the command may act. If no
// command is given, xargs finds echo in PATH, so the path of echo is added.
func checkXargs(c *call) *refusal {
	if len(c.operands) == 0 {
		c.operands = append(c.operands, len(c.args))
		c.args = append(c.args, word{value: "echo", plain: true})
	}
	at := c.operands[0]
	mark, replaces := c.xargsReplacement()
	if replaces {
		if mark == "" {
			return newRefusal("Write xargs -I{} COMMAND {}", "the replacement string of xargs is empty")
		}
		for i := at + 1; i < len(c.args); i++ {
			if strings.Contains(c.args[i].value, mark) {
				c.args[i].data = true
			}
		}
	}
	if replaces && strings.Contains(c.args[at].value, mark) {
		return newRefusal("Write xargs -I{} COMMAND {}", "xargs replaces a part of the command name with data")
	}
	if r := c.checkNested(at, inputEmpty, true); r != nil {
		return r
	}
	inner := c.args[at].value
	if replaces && strings.Contains(inner, mark) {
		return newRefusal("Write xargs -I{} COMMAND {}", "xargs replaces a part of the path %s with data", inner)
	}
	return nil
}

// xargsReplacement returns the string that xargs replaces with data. The last option wins; an option without a value
// means {}.
func (c *call) xargsReplacement() (mark string, replaces bool) {
	for _, o := range c.options {
		switch o.name {
		case "I":
			mark, replaces = o.value, true
		case "i", "replace":
			if mark, replaces = o.value, true; mark == "" {
				mark = "{}"
			}
		}
	}
	return mark, replaces
}

// nestExec checks the command of a find action that begins at index i, and returns the index of the word that ends it.
// find replaces {} with a path that begins with one of its starting points, which never begin with a hyphen.
func (c *call) nestExec(i int) (int, *refusal) {
	end := i
	for end < len(c.args) && c.args[end].value != ";" &&
		(c.args[end].value != "+" || end == i || c.args[end-1].value != "{}") {
		end++
	}
	if end >= len(c.args) || end == i {
		return i, newRefusal(`Write find DIR -exec COMMAND {} \; or end it with {} +`,
			"the command of -exec has no end")
	}
	words := slices.Clone(c.args[i:end])
	for j := range words {
		switch v := words[j].value; {
		case v == "{}":
			words[j].data = true
		case v == "+":
			return i, newRefusal(c.rule.Hint, "some versions of find end the command of -exec at the word +")
		case strings.Contains(v, "{}"):
			return i, newRefusal("Write {} as a word of its own.", "find replaces {} inside of %q", v)
		}
	}
	inner, r := c.k.bindCommand(words, inputInherited, "find", false)
	if r != nil {
		return i, r
	}
	copy(c.args[i:end], inner)
	return end, nil
}
