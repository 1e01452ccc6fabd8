package readonly

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// settableVariables lists the variables that may be set before a command, with the characters of their values besides letters
// and digits. No value contains a leading slash, since the C library loads locale and time zone data from a path. Any
// other variable can change the program that runs (for example LD_PRELOAD, PATH, PAGER, PYTHONPATH, AWKPATH) or the
// parsing of options (POSIXLY_CORRECT).
var settableVariables = map[string]string{
	"LC_ALL": "_.@-", "LANG": "_.@-", "LANGUAGE": "_.@-:", "LC_CTYPE": "_.@-", "LC_COLLATE": "_.@-",
	"LC_MESSAGES": "_.@-",
	"LC_NUMERIC":  "_.@-", "LC_TIME": "_.@-", "LC_MONETARY": "_.@-",
	"TZ": "_/+-,.", "COLUMNS": "", "LINES": "", "TERM": "-", "NO_COLOR": "", "SYSTEMD_COLORS": "", "SYSTEMD_URLIFY": "",
	"TIME_STYLE": "-", "BLOCK_SIZE": "-", "BLOCKSIZE": "", "QUOTING_STYLE": "-", "DEBIAN_FRONTEND": "",
}

// exactValues lists variables of which only the given values are accepted. A pager named cat, or none, starts no program of
// an agent.
var exactValues = map[string][]string{
	"PAGER": {"", "cat"}, "SYSTEMD_PAGER": {"", "cat"}, "DPKG_PAGER": {"", "cat"},
}

const assignHint = "Accepted before a command are locale, TZ, COLUMNS, TERM and color variables, for example " +
	"LC_ALL=C or TZ=UTC."

// checkAssignments checks and renders the assignments before a command.
func (k *checker) checkAssignments(list []*syntax.Assign) *refusal {
	for _, a := range list {
		if a.Append || a.Naked || a.Index != nil || a.Array != nil || a.Name == nil {
			return newRefusal(assignHint, "the line contains an assignment other than NAME=VALUE")
		}
		w := word{}
		if a.Value != nil {
			words, r := expandWord(a.Value)
			if r != nil {
				return r
			}
			if len(words) != 1 || words[0].bare != nil || words[0].tilde {
				return newRefusal(assignHint, "the value of %s is not one literal word", a.Name.Value)
			}
			w = words[0]
		}
		if !isSettable(a.Name.Value, w.value) {
			return newRefusal(assignHint, "setting %s to %q can change the meaning of the command", a.Name.Value,
				w.value)
		}
		k.out.WriteString(a.Name.Value)
		k.out.WriteByte('=')
		if w.value != "" {
			k.out.WriteString(w.renderSource())
		}
		k.out.WriteByte(' ')
	}
	return nil
}

func isSettable(name, value string) bool {
	for _, v := range exactValues[name] {
		if v == value {
			return true
		}
	}
	extra, ok := settableVariables[name]
	if !ok || len(value) > 64 || strings.HasPrefix(value, "/") || strings.Contains(value, "..") {
		return false
	}
	for i := 0; i < len(value); i++ {
		c := value[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte(extra, c) < 0 {
			return false
		}
	}
	return true
}
