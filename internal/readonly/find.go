package readonly

import (
	"slices"
	"strings"
)

// findFlags and findTests are the words of a find expression without and with an argument. Words that are missing here
// are refused: -delete removes, -fprint, -fprint0, -fprintf and -fls write a file, -ok and -okdir ask on the terminal,
// and -files0-from reads starting points that this package does not see.
var (
	findFlags = strings.Fields("( ) ! , -a -and -o -or -not -empty -executable -readable -writable -nouser -nogroup -depth -d -mount " +
		"-xdev -daystart -follow -noleaf -ignore_readdir_race -noignore_readdir_race -warn -nowarn -true " +
		"-false -print -print0 -ls -prune -quit")
	findTests = strings.Fields("-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -lname -ilname -type " +
		"-xtype -size -mtime -atime -ctime -mmin -amin -cmin -newer -anewer -cnewer -used -user -group -uid " +
		"-gid -perm -links -inum -samefile -fstype -context -maxdepth -mindepth -printf")
)

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
			return newRefusal(c.rule.Hint, "a word of the expression of find is not literal")
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
		n, ok := 0, slices.Contains(findFlags, v)
		if slices.Contains(findTests, v) {
			n, ok = 1, true
		}
		if !ok && strings.HasPrefix(v, "-newer") && len(v) == len("-newerXY") {
			n, ok = 1, strings.Trim(v[6:7], "aBcm") == "" && strings.Trim(v[7:], "aBcmt") == ""
		}
		switch {
		case !ok:
			return c.refuseFind(v)
		case i+n >= len(c.args):
			return newRefusal(c.rule.Hint, "%s of find needs an argument", v)
		}
		for range n {
			i++
			if c.args[i].data {
				return newRefusal(c.rule.Hint, "a word of the expression of find is data")
			}
			c.args[i].makeLiteral()
		}
	}
	return nil
}

func (c *call) refuseFind(v string) *refusal {
	if a := c.rule.findAct(v); a != nil {
		return newRefusal(c.rule.Hint, "the action %s of find %s", v, a.Reason)
	}
	return newRefusal(c.rule.Hint, "the word %q of find is not in the read-only set", v)
}
