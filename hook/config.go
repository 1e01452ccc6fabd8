package hook

import (
	"encoding/json"
	"fmt"
	"net"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"bailey"
)

// DefaultTimeout is a hook's time limit if hooks.json sets none. MaxTimeout is the longest that it can set.
const (
	DefaultTimeout = 10 * time.Second
	MaxTimeout     = 10 * time.Minute
)

// Config is the content of hooks.json. The zero value has no hooks.
type Config struct {
	Hooks []Hook // in the order of the file, which is the order of a chain
}

// Hook is one program for one event. The zero value runs in a cage, without a network and without writable paths.
type Hook struct {
	Event       Name
	Argv        []string // the program, an absolute path or a bare name, and its arguments
	Timeout     time.Duration
	Env         []string // names of the environment variables that it gets
	Unsandboxed bool     // runs without a cage
	Matcher     string   // tools whose events it gets; "" means all
	Read, Write []string // absolute paths, in addition to those of every hook
	Network     []bailey.Endpoint
	OnFailure   OnFailure
	Line        int // its line in hooks.json
}

// Folder returns the hook's own directory, which it may read, or "" if its program is a bare name.
func (h Hook) Folder() string {
	if len(h.Argv) == 0 || !isAbsolute(h.Argv[0]) {
		return ""
	}
	return filepath.Dir(h.Argv[0])
}

// Matches reports whether the hook is asked about an event.
func (h Hook) Matches(e Event) bool {
	switch e := e.(type) {
	case PreToolUse:
		return h.Event == e.Name() && matchGlob(h.Matcher, e.ToolName)
	case PostToolUse:
		return h.Event == e.Name() && matchGlob(h.Matcher, e.ToolName)
	}
	return h.Event == e.Name()
}

// For returns the hooks that are asked about an event, in order.
func (c Config) For(e Event) (chain []Hook) {
	for _, h := range c.Hooks {
		if h.Matches(e) {
			chain = append(chain, h)
		}
	}
	return chain
}

// ParseConfig parses hooks.json. home replaces a leading ~. If home is not an absolute path, such paths are errors.
func ParseConfig(data []byte, home string) (c Config, err error) {
	if !isAbsolute(home) {
		home = ""
	}
	t, root, err := parseObject("hooks.json", data)
	if err != nil {
		return Config{}, err
	}
	events := keyReaders{}
	for _, name := range Names() {
		events[string(name)] = func(n node) error {
			if n.value != array {
				return t.errorAt(n.at, fmt.Sprintf("%s is %s, not a list of hooks", name, n.kindName()), "write [{…}]")
			}
			for _, m := range n.members {
				h, err := t.parseHook(m, name, home)
				if err != nil {
					return err
				}
				c.Hooks = append(c.Hooks, h)
			}
			return nil
		}
	}
	err = t.readObject(root, "hooks.json",
		keyReaders{"hooks": func(n node) error { return t.readObject(n, "hooks", events, false) }}, false)
	if err == nil && !root.hasMember("hooks") {
		err = t.errorAt(root.at, `hooks.json has no key "hooks"`, `write {"hooks": {}} if there are none`)
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

func (t *jsonParser) parseHook(n node, event Name, home string) (h Hook, err error) {
	h = Hook{Event: event, Timeout: DefaultTimeout, Line: 1 + strings.Count(string(t.b[:n.at]), "\n")}
	forms := 0
	err = t.readObject(n, "a hook", keyReaders{
		"command":    func(n node) error { forms++; return t.parseCommand(n, home, &h.Argv) },
		"argv":       func(n node) error { forms++; return t.parseArgv(n, &h.Argv) },
		"timeout_ms": func(n node) error { return t.parseTimeout(n, &h.Timeout) },
		"env":        func(n node) error { return t.parseStrings(n, &h.Env, parseVariable) },
		"sandbox": func(n node) error {
			caged := true
			err := storeInto(t, &caged, "a boolean")(n)
			h.Unsandboxed = !caged
			return err
		},
		"matcher": func(n node) error { return t.parseMatcher(n, &h) },
		"filesystem": func(n node) error {
			path := func(p string) (string, string) { return expandPath(p, home) }
			return t.readObject(n, "filesystem", keyReaders{
				"read":  func(n node) error { return t.parseStrings(n, &h.Read, path) },
				"write": func(n node) error { return t.parseStrings(n, &h.Write, path) },
			}, false)
		},
		"network": func(n node) error {
			return t.readObject(n, "network",
				keyReaders{"allow": func(n node) error { return t.parseNetwork(n, &h.Network) }}, false)
		},
		"onFailure": func(n node) error { return t.onFailure(n, &h) },
	}, false)
	if err == nil && forms != 1 {
		err = t.errorAt(n.at, fmt.Sprintf("a hook must have command or argv, but has %d of them", forms), "use exactly one of them")
	}
	return h, err
}

// parseCommand splits at white space: quotes and other shell syntax have no special meaning.
func (t *jsonParser) parseCommand(n node, home string, argv *[]string) error {
	var line string
	if err := storeInto(t, &line, "a string")(n); err != nil {
		return err
	}
	for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) }) {
		if rest, ok := strings.CutPrefix(word, "~/"); ok {
			if home == "" {
				return t.errorAt(n.at, fmt.Sprintf("the home directory for ~ in %.64q is unknown", word), "use an absolute path")
			}
			word = filepath.Join(home, rest)
		}
		*argv = append(*argv, word)
	}
	return t.checkProgram(n, *argv)
}

func (t *jsonParser) parseArgv(n node, argv *[]string) error {
	if err := t.parseStrings(n, argv, func(w string) (string, string) { return w, "" }); err != nil {
		return err
	}
	return t.checkProgram(n, *argv)
}

// checkProgram requires a path that is independent of the working directory, or a name to be found in PATH.
func (t *jsonParser) checkProgram(n node, argv []string) error {
	switch {
	case len(argv) == 0 || argv[0] == "":
		return t.errorAt(n.at, n.name+" does not name a program", "name one")
	case strings.ContainsRune(strings.Join(argv, ""), 0):
		return t.errorAt(n.at, n.name+" contains a NUL byte", "remove it: no program accepts one")
	case isAbsolute(argv[0]) && !isClean(argv[0]), strings.ContainsAny(argv[0], `/\`) && !isAbsolute(argv[0]),
		argv[0] == ".", argv[0] == "..":
		return t.errorAt(n.at,
			fmt.Sprintf("the program %.64q is neither a clean absolute path nor a bare name",
				argv[0]), "use an absolute path; command may also begin with ~/")
	}
	return nil
}

func (t *jsonParser) parseTimeout(n node, d *time.Duration) error {
	number, _ := n.value.(json.Number)
	ms, err := strconv.ParseInt(string(number), 10, 64)
	if most := MaxTimeout.Milliseconds(); err != nil || ms < 1 || ms > most {
		return t.errorAt(n.at, "timeout_ms must be a whole number of milliseconds from 1 to "+strconv.FormatInt(most, 10),
			"leave it out for the default, 10000")
	}
	*d = time.Duration(ms) * time.Millisecond
	return nil
}

// parseStrings reads strings. read returns the meaning of each, or what is wrong with it.
func (t *jsonParser) parseStrings(n node, into *[]string, read func(string) (means, wrong string)) error {
	if n.value != array {
		return t.errorAt(n.at, n.name+" is "+n.kindName()+", not a list of strings", `write ["…"]`)
	}
	for _, m := range n.members {
		s, ok := m.value.(string)
		if !ok {
			return t.errorAt(m.at, n.name+" contains "+m.kindName()+", not a string", `write "…"`)
		}
		means, wrong := read(s)
		if wrong != "" {
			return t.errorAt(m.at, fmt.Sprintf("%.64q in %s %s", s, n.name, wrong), "correct or remove it")
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
		return "is not the name of a variable: use [A-Za-z_][A-Za-z0-9_]*, without a value"
	case strings.HasPrefix(name, "BAILEY_"):
		return "is a variable of Bailey, which is not passed to hooks"
	case bailey.CageOwn(name):
		return "is set for every hook and cannot be passed from outside"
	case bailey.Loads(name):
		return "controls a loader or an interpreter, or where a program connects: if the hook needs it, set it in a script"
	}
	return ""
}

func isAbsolute(p string) bool { return path.IsAbs(p) || filepath.IsAbs(p) }
func isClean(p string) bool    { return path.Clean(p) == p || filepath.Clean(p) == p }

func expandPath(p, home string) (string, string) {
	rest, ok := strings.CutPrefix(p, "~/")
	switch {
	case strings.ContainsRune(p, 0):
		return "", "contains a NUL byte"
	case ok && home == "":
		return "", "begins with ~, but the home directory is unknown"
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
			return "", "does not name a host: use lower case, an exact name or a leading *."
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
			"leave it out for the default: PreToolUse blocks, the others pass")
	case h.OnFailure == Block && h.Event == OnSessionEnd:
		return t.errorAt(n.at, "SessionEnd cannot be blocked", `write "pass", or leave it out`)
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
			"remove matcher; it is for PreToolUse and PostToolUse")
	case h.Matcher == "" || len(h.Matcher) > 256 || strings.ContainsAny(h.Matcher, "|[]{}()\\^$+!, \t\r\n\x00"):
		return t.errorAt(n.at, fmt.Sprintf("%.64q is not a valid glob for the names of tools", h.Matcher),
			"* matches any text and ? any character; for several tools repeat the hook; for all, remove matcher")
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
