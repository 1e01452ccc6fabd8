package readonly

import (
	"strings"
)

// findTests are the words of a find expression and the number of their arguments. Words that are missing here are
// refused: -delete removes, -fprint, -fprint0, -fprintf and -fls write a file, -ok and -okdir ask on the terminal, and
// -files0-from reads starting points that this package does not see.
var findTests = map[string]int{
	"(": 0, ")": 0, "!": 0, ",": 0, "-a": 0, "-and": 0, "-o": 0, "-or": 0, "-not": 0,
	"-name": 1, "-iname": 1, "-path": 1, "-ipath": 1, "-wholename": 1, "-iwholename": 1, "-regex": 1, "-iregex": 1,
	"-regextype": 1, "-lname": 1, "-ilname": 1, "-type": 1, "-xtype": 1, "-size": 1, "-mtime": 1, "-atime": 1,
	"-ctime": 1,
	"-mmin":  1, "-amin": 1, "-cmin": 1, "-newer": 1, "-anewer": 1, "-cnewer": 1, "-used": 1, "-user": 1, "-group": 1,
	"-uid": 1, "-gid": 1, "-perm": 1, "-links": 1, "-inum": 1, "-samefile": 1, "-fstype": 1, "-context": 1,
	"-maxdepth": 1, "-mindepth": 1,
	"-empty": 0, "-executable": 0, "-readable": 0, "-writable": 0, "-nouser": 0, "-nogroup": 0, "-depth": 0, "-d": 0,
	"-mount": 0, "-xdev": 0, "-daystart": 0, "-follow": 0, "-noleaf": 0, "-ignore_readdir_race": 0,
	"-noignore_readdir_race": 0, "-warn": 0, "-nowarn": 0, "-true": 0, "-false": 0,
	"-print": 0, "-print0": 0, "-ls": 0, "-prune": 0, "-quit": 0, "-printf": 1,
}

const findHint = "Use tests with -print, -print0, -printf, -ls, or -exec with a command of the read-only set."

// checkFind parses the options, the starting points and the expression of find.
func checkFind(c *call) *refusal {
	i := 1
	for ; i < len(c.args) && findOption(c.args[i].value); i++ {
		c.args[i].makeLiteral()
	}
	for ; i < len(c.args) && !findExpression(&c.args[i]); i++ {
		w := &c.args[i]
		switch {
		case w.data:
			return newRefusal("Write the starting point.", "a starting point of find is data")
		case w.hasLeadingGlob():
			return newRefusal("Write ./"+w.value, "the glob %s can expand to a word that find reads as an action",
				w.value)
		}
		if !w.tilde {
			if r := checkName(w.value); r != nil {
				return r
			}
		}
	}
	return c.findExpression(i)
}

// findOption reports whether v is one of the options that precede the starting points.
func findOption(v string) bool {
	switch v {
	case "-H", "-L", "-P", "-O0", "-O1", "-O2", "-O3", "--help", "--version", "-help", "-version":
		return true
	}
	return false
}

// findExpression reports whether find reads the word as the start of its expression.
func findExpression(w *word) bool {
	return !w.tilde && w.value != "" && strings.IndexByte("-(),!", w.value[0]) >= 0
}

func (c *call) findExpression(i int) *refusal {
	for ; i < len(c.args); i++ {
		w := &c.args[i]
		if w.data || w.tilde {
			return newRefusal(findHint, "a word of the expression of find is not literal")
		}
		w.makeLiteral()
		v := w.value
		if v == "-exec" || v == "-execdir" {
			end, r := c.nestExec(i + 1)
			if r != nil {
				return r
			}
			i = end
			continue
		}
		n, ok := findTests[v]
		if !ok && strings.HasPrefix(v, "-newer") && len(v) == len("-newerXY") {
			n, ok = 1, strings.Trim(v[6:7], "aBcm") == "" && strings.Trim(v[7:], "aBcmt") == ""
		}
		switch {
		case !ok:
			return refuseFind(c.rule, v)
		case i+n >= len(c.args):
			return newRefusal(findHint, "%s of find needs an argument", v)
		}
		for range n {
			i++
			if c.args[i].data {
				return newRefusal(findHint, "a word of the expression of find is data")
			}
			c.args[i].makeLiteral()
		}
	}
	return nil
}

func refuseFind(r *Rule, v string) *refusal {
	if a := r.findAct(v); a != nil {
		return newRefusal(findHint, "the action %s of find %s", v, a.Reason)
	}
	return newRefusal(findHint, "the word %q of find is not in the read-only set", v)
}
