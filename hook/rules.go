package hook

import (
	"fmt"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"bailey"
)

// parseStrings reads strings. read returns the meaning of each, or what is wrong with it.
func (t *jsonParser) parseStrings(n node, into *[]string, read func(string) (means, wrong string)) error {
	if n.value != array {
		return t.errorAt(n.at, n.name+" is "+n.kindName()+", not a list of strings", `write ["…"]`)
	}
	for _, m := range n.members {
		s, ok := m.value.(string)
		if !ok {
			return t.errorAt(m.at, n.name+" has "+m.kindName()+" in it, not a string", `write "…"`)
		}
		means, wrong := read(s)
		if wrong != "" {
			return t.errorAt(m.at, fmt.Sprintf("%.64q in %s %s", s, n.name, wrong), "mend it, or take it out")
		}
		*into = append(*into, means)
	}
	return nil
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func parseVariable(name string) (string, string) { return name, Variable(name) }

// Variable returns why a hook must not get a variable with this name, or "". The values come from the process that
// started the gateway, which may have been an agent. They must not make a hook execute other code.
func Variable(name string) (wrong string) {
	switch {
	case !envName.MatchString(name):
		return "is no name of a variable: [A-Za-z_][A-Za-z0-9_]*, and no value"
	case strings.HasPrefix(name, "BAILEY_"):
		return "is one of Bailey's own, which no hook gets"
	case bailey.CageOwn(name):
		return "is set for every hook, and not from outside"
	case bailey.Loads(name):
		return "steers a loader or an interpreter, or where a program connects: a hook that needs it sets it in a script of its own"
	}
	return ""
}

func isAbsolute(p string) bool { return path.IsAbs(p) || filepath.IsAbs(p) }
func isClean(p string) bool    { return path.Clean(p) == p || filepath.Clean(p) == p }

func expandPath(p, home string) (string, string) {
	rest, ok := strings.CutPrefix(p, "~/")
	switch {
	case strings.ContainsRune(p, 0):
		return "", "has a NUL in it"
	case ok && home == "":
		return "", "begins with ~, and nobody knows what that is"
	case ok && (rest == "" || !isClean("/"+rest)):
		return "", "is not a clean path below the home directory"
	case ok:
		return filepath.Join(home, rest), ""
	case !isAbsolute(p) || !isClean(p) || p == "/":
		return "", "is not a clean absolute path below /"
	}
	return p, ""
}

var hostName = regexp.MustCompile(`^(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// parseNetwork parses entries as in docs/egress.md. The proxy checks them again, more strictly.
func (t *jsonParser) parseNetwork(n node, into *[]bailey.Endpoint) error {
	return t.parseStrings(n, new([]string), func(entry string) (string, string) {
		host, port, err := net.SplitHostPort(entry)
		number, bad := strconv.ParseUint(port, 10, 16)
		switch {
		case err != nil || bad != nil || number == 0 || strconv.FormatUint(number, 10) != port:
			return "", "is not host:port"
		case !hostName.MatchString(host) && net.ParseIP(host) == nil:
			return "", "names no host: lower case, exact or with a leading *."
		}
		*into = append(*into, bailey.Endpoint{Host: host, Port: int(number)})
		return "", ""
	})
}

func (t *jsonParser) onFailure(n node, h *Hook) error {
	word, _ := n.value.(string)
	h.OnFailure = OnFailure(word)
	switch {
	case h.OnFailure != Block && h.OnFailure != Pass:
		return t.errorAt(n.at, `onFailure is neither "block" nor "pass"`,
			"leave it out: PreToolUse blocks, the others pass")
	case h.OnFailure == Block && h.Event == OnSessionEnd:
		return t.errorAt(n.at, "nothing is left to block at SessionEnd", `write "pass", or leave it out`)
	}
	return nil
}

// parseMatcher refuses characters with a meaning in other globs, such as [ and {: they would be literal here and match
// nothing.
func (t *jsonParser) parseMatcher(n node, h *Hook) error {
	if err := storeInto(t, &h.Matcher, "a string")(n); err != nil {
		return err
	}
	switch {
	case !h.Event.Tool():
		return t.errorAt(n.keyAt, fmt.Sprintf("%s has no tool to match", h.Event),
			"take matcher out; it is for PreToolUse and PostToolUse")
	case h.Matcher == "" || len(h.Matcher) > 256 || strings.ContainsAny(h.Matcher, "|[]{}()\\^$+!, \t\r\n\x00"):
		return t.errorAt(n.at, fmt.Sprintf("%.64q is no glob on the names of tools", h.Matcher),
			"* is any text and ? any character; for several, write the hook once for each; for all, take matcher out")
	}
	return nil
}

// matchGlob needs linear time for each *. An * also matches a slash, because a tool's name may contain one.
func matchGlob(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	p, s := []rune(pattern), []rune(name)
	i, j, star, mark := 0, 0, -1, 0
	for j < len(s) {
		switch {
		case i < len(p) && p[i] == '*':
			star, mark = i, j
			i++
		case i < len(p) && (p[i] == '?' || p[i] == s[j]):
			i, j = i+1, j+1
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(p) && p[i] == '*' {
		i++
	}
	return i == len(p)
}
