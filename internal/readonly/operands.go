package readonly

import (
	"slices"
	"strconv"
	"strings"
)

// checkDate accepts a format as operand. Any other operand sets the clock.
func checkDate(c *call) *refusal {
	for _, at := range c.operands {
		if w := &c.args[at]; !strings.HasPrefix(w.value, "+") || w.data {
			return newRefusal("Write a format with a leading +, for example: date +%F. Use -d for another time.",
				"the operand %q of date sets the clock", w.value)
		}
	}
	return nil
}

// checkInterface accepts the name of an interface, and nothing that could be a command of ifconfig.
func checkInterface(c *call) *refusal {
	if v := c.operandText(0); strings.Trim(v,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:@") != "" {
		return newRefusal(c.rule.usageHint(), "%q is not the name of an interface", v)
	}
	return nil
}

// checkPing limits the rate and the size: -i below 0.2 and large packets flood the network.
func checkPing(c *call) *refusal {
	for _, o := range c.options {
		switch n, err := strconv.ParseFloat(o.value, 64); {
		case o.name == "i" && (err != nil || !(n >= 0.2 && n < 1e6)):
			return newRefusal("Use an interval of 0.2 seconds or more.", "the interval %q of ping floods the network",
				o.value)
		case o.name == "s" && (err != nil || !(n >= 0 && n <= 9000)):
			return newRefusal("Use a size of at most 9000 bytes.", "the size %q of ping is not accepted", o.value)
		}
	}
	return nil
}

// checkNslookup refuses the interactive mode, which reads commands.
func checkNslookup(c *call) *refusal {
	if c.operandText(0) == "-" || len(c.operands) == 0 {
		return newRefusal("Write nslookup NAME", "nslookup without a name reads commands from its standard input")
	}
	return nil
}

// checkRPM accepts queries. The first option must select the mode, because several options, for example -i, mean
// something else in a query. rpm expands macros in some of its arguments, and %(…) runs a command.
func checkRPM(c *call) *refusal {
	const hint = "Use rpm -q, for example: rpm -qa, rpm -qi NAME, rpm -V --noscripts NAME"
	for _, w := range c.args[1:] {
		if strings.Contains(w.value, "%(") || strings.Contains(w.value, "%{lua") || strings.Contains(w.value, "://") {
			return newRefusal(hint, "the argument %q of rpm can run a command or connect", w.value)
		}
	}
	first := ""
	if len(c.options) > 0 && c.options[0].at == 1 {
		first = c.options[0].name
	}
	switch first {
	case "q", "query", "version", "querytags", "help":
		if c.hasOption("V", "verify") {
			return newRefusal(hint, "a verification runs the scripts of packages")
		}
		return nil
	case "V", "verify":
		if c.hasOption("noscripts") && !c.hasOption("i", "install") {
			return nil
		}
		return newRefusal("Write rpm -V --noscripts NAME", "rpm -V runs the verify scripts of packages")
	}
	return newRefusal(hint, "the first argument of rpm is not -q or --query")
}

// checkDpkg requires an action that reads, because dpkg needs exactly one action.
func checkDpkg(c *call) *refusal {
	if len(c.options) == 0 {
		return newRefusal(c.rule.usageHint(), "dpkg has no action")
	}
	return nil
}

// checkUniq refuses an option after the operand: a version without permutation reads it as the file to write.
func checkUniq(c *call) *refusal {
	if len(c.operands) == 1 && len(c.options) > 0 && c.options[len(c.options)-1].at > c.operands[0] {
		return newRefusal("Put the options of "+c.rule.Name+" before the file.",
			"some versions of %s write the file that follows the first operand", c.rule.Name)
	}
	return nil
}

// checkPip accepts -f for show only, where it lists files. For list it names a package index.
func checkPip(c *call) *refusal {
	if c.hasOption("f") && c.sub != "show" {
		return newRefusal("Write pip show -f NAME", "the option -f of pip %s connects to a package index", c.sub)
	}
	return nil
}

// checkBlkid accepts the cache file /dev/null only. blkid writes any other cache file.
func checkBlkid(c *call) *refusal {
	for _, o := range c.options {
		if (o.name == "c" || o.name == "cache-file") && o.value != "/dev/null" {
			return newRefusal("Write blkid -c /dev/null", "blkid writes the cache file %q", o.value)
		}
	}
	return nil
}

// checkSysctl refuses assignments of kernel parameters.
func checkSysctl(c *call) *refusal {
	for _, at := range c.operands {
		if strings.ContainsAny(c.args[at].value, "= ") {
			return newRefusal("Write sysctl NAME", "the operand %q of sysctl sets a kernel parameter", c.args[at].value)
		}
	}
	return nil
}

// testOperators are the operators of test. -v and -R are missing: in bash they evaluate their operand, which can
// contain a command. -t and -o (option of the shell) have the same name as accepted ones.
var testOperators = strings.Fields("! ( ) -a -o = == != < > -b -c -d -e -f -g -G -h -k -L -N -O -p -r -s -S -t -u " +
	"-w -x -z -n " +
	"-nt -ot -ef")

// checkTest checks the expression of test. Some shells evaluate the operands of numeric operators as arithmetic,
// which can contain a command, so these must be numbers.
func checkTest(c *call) *refusal {
	if r := c.makeLiteralFrom(1); r != nil {
		return r
	}
	words := c.args[1:]
	for i, w := range words {
		switch v := w.value; {
		case len(v) == 3 && strings.Contains(" -eq -ne -lt -le -gt -ge ", " "+v+" "):
			if i == 0 || i+1 >= len(words) || !isInteger(words[i-1].value) || !isInteger(words[i+1].value) {
				return newRefusal("Compare numbers with "+v+" and text with =", "an operand of %s is not a number", v)
			}
		case strings.HasPrefix(v, "-") && len(v) <= 3 && !isInteger(v) && !slices.Contains(testOperators, v):
			return newRefusal("Use -e, -f, -d, -r, -x, -s, -z, -n or =",
				"the operator %s of test is not in the read-only set", v)
		}
	}
	return nil
}

func isInteger(v string) bool {
	_, err := strconv.ParseInt(v, 10, 64)
	return err == nil
}
