package shellparse

import (
	"path"
	"slices"
	"strings"
)

// Programs whose effect their operands do not show. changing lists shell builtins that change the meaning of later
// words; running lists programs that execute their operands in ways that this package does not look through.
var (
	stateBuiltins = []string{"eval", "source", ".", "alias", "unalias", "trap", "set", "shopt", "enable", "builtin",
		"hash", "unset", "export", "declare",
		"typeset", "local", "readonly", "read", "mapfile", "readarray", "pushd", "popd", "bind", "complete", "let", "getopts", "printf", "umask", "ulimit"}
	programRunners = []string{"ssh", "parallel", "watch", "script", "strace", "ltrace", "gdb", "unshare", "nsenter",
		"chroot", "su", "runuser", "pkexec", "entr",
		"flock", "systemd-run", "setpriv", "capsh", "bwrap", "firejail", "unbuffer", "expect", "fakeroot", "dbus-run-session", "coproc", "busybox", "toybox"}
	shells = []string{"sh", "bash", "zsh", "dash", "ksh", "ash", "rbash"}
)

// wrapper describes a program that runs its operands.
type wrapper struct {
	flags  string   // short options without a value
	values string   // short options with a value
	long   []string // long options; a final = means with a value, which may be the next word
	skip   int      // number of operands before the command
	why    string   // why the command is opaque, or ""
	env    bool     // NAME=value may precede the command
}

var wrappers = map[string]wrapper{
	"sudo":   {flags: "nEHSk", values: "ugpCT", why: "it runs as another user", env: true},
	"doas":   {flags: "n", values: "uC", why: "it runs as another user"},
	"env":    {flags: "i0v", values: "u", long: []string{"--ignore-environment", "--unset="}, env: true},
	"nice":   {values: "n", long: []string{"--adjustment="}},
	"ionice": {flags: "t", values: "cn"},
	"nohup":  {},
	"setsid": {flags: "cfw", why: "it runs in the background"},
	"stdbuf": {values: "ioe", long: []string{"--input=", "--output=", "--error="}},
	"timeout": {flags: "v", values: "sk",
		long: []string{"--foreground", "--preserve-status", "--verbose", "--signal=", "--kill-after="}, skip: 1},
	"time":    {flags: "p"},
	"command": {flags: "p"},
	"builtin": {},
	"exec":    {flags: "cl", values: "a"},
	"xargs": {flags: "0rtxo", values: "nPLIsdEa",
		long: []string{"--null", "--no-run-if-empty", "--max-args=", "--max-procs=", "--replace=", "--delimiter=",
			"--arg-file=", "--verbose"},
		why: "some of its operands come from elsewhere"},
}

// unwrapProgram looks through wrappers and adds the command that they run.
func (r *lineWalker) unwrapProgram(c Command) error {
	for range maxDepth {
		name := path.Base(c.Words[0])
		switch w, ok := wrappers[name]; {
		case !isSystemProgram(c.Words[0]): // A repository may contain its own program named env.
			if ok || name == "find" || slices.Contains(shells, name) || slices.Contains(programRunners, name) {
				c.markOpaque("a program of that name elsewhere may run something else")
			}
			r.addCommand(c)
			return nil
		case c.Words[0] == "cd":
			if slices.ContainsFunc(c.Files, func(f File) bool { return !path.IsAbs(f.Path) }) {
				c.markOpaque("its files are opened in the earlier working directory")
			}
			r.changeDir(c)
			c.markOpaque(r.unsure)
			r.addCommand(c)
			return nil
		case slices.Contains(shells, name):
			return r.addShell(c)
		case name == "find":
			return r.addFind(c)
		case slices.Contains(programRunners, name):
			c.markOpaque("it runs something else")
			r.addCommand(c)
			return nil
		case slices.Contains(stateBuiltins, c.Words[0]) && !(c.Words[0] == "printf" && !slices.Contains(c.Words, "-v")):
			c.markOpaque("it changes the shell")
			r.addCommand(c)
			r.tainted = "earlier commands may have changed it"
			return nil
		case !ok:
			r.addCommand(c)
			return nil
		default:
			rest, sets, plain := w.wrappedCommand(c.Words[1:])
			if !plain || len(rest) == 0 {
				if len(rest) == 0 && plain && name != "xargs" && name != "sudo" {
					r.addCommand(c)
					return nil
				}
				c.markOpaque("it runs something else")
				r.addCommand(c)
				return nil
			}
			if sets {
				c.markOpaque("it sets variables")
			}
			alone := name == "sudo" && r.root && len(rest) == len(c.Words)-1 // without options
			c.Via = append(c.Via, name)
			if c.Words = rest; !alone {
				c.markOpaque(w.why)
			}
		}
	}
	c.markOpaque("it runs something else")
	r.addCommand(c)
	return nil
}

// isSystemProgram reports whether a word refers to the system's program of that name: it has no directory, so that PATH decides,
// or it is in /bin or /usr/bin.
func isSystemProgram(word string) bool {
	dir, _ := path.Split(word)
	return dir == "" || dir == "/bin/" || dir == "/usr/bin/"
}

// wrappedCommand returns the command that the wrapper runs and whether variables are set for it. It returns false if an
// option is unknown.
func (w wrapper) wrappedCommand(args []string) (rest []string, sets, ok bool) {
	for len(args) > 0 {
		a := args[0]
		switch {
		case a == "--":
			return w.skipOperands(args[1:], sets)
		case strings.HasPrefix(a, "--"):
			name, _, joined := strings.Cut(a, "=")
			switch {
			case slices.Contains(w.long, name) && !joined, slices.Contains(w.long, name+"=") && joined:
			case slices.Contains(w.long, name+"=") && len(args) > 1:
				args = args[1:]
			default:
				return nil, sets, false
			}
		case len(a) > 1 && a[0] == '-':
			last := strings.TrimLeft(a[1:], w.flags+" ")
			switch {
			case last == "": // only flags
			case strings.IndexByte(w.values, last[0]) < 0:
				return nil, sets, false
			case len(last) == 1:
				if len(args) < 2 {
					return nil, sets, false
				}
				args = args[1:]
			}
		default:
			return w.skipOperands(args, sets)
		}
		args = args[1:]
	}
	return nil, sets, true
}

func (w wrapper) skipOperands(args []string, sets bool) ([]string, bool, bool) {
	for w.env && len(args) > 0 && strings.Contains(args[0], "=") {
		args, sets = args[1:], true
	}
	if len(args) < w.skip {
		return nil, sets, false
	}
	return args[w.skip:], sets, true
}

// addShell parses the script of sh -c. A shell that reads a file or standard input is opaque.
func (r *lineWalker) addShell(c Command) error {
	args := c.Words[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && args[0] != "--" && !strings.HasPrefix(args[0], "--") {
		set := args[0][1:]
		if strings.Trim(set, "ceuxl") != "" || set == "" {
			break
		}
		args = args[1:]
		if strings.Contains(set, "c") {
			if len(args) != 1 || c.Opaque != "" || len(c.Files) > 0 || strings.Contains(set, "l") {
				c.markOpaque("the effect of its script depends on more than the script")
				r.addCommand(c)
				return nil
			}
			return r.parseScript(args[0], c.Via)
		}
	}
	c.markOpaque("it is a shell")
	r.addCommand(c)
	return nil
}

// parseScript parses src as a separate shell, which the programs via start: its changes of directory and variables end
// with it.
func (r *lineWalker) parseScript(src string, via []string) error {
	dir, unsure, tainted, changed, outer := r.dir, r.unsure, r.tainted, r.changed, r.via
	r.via = via
	err := r.parseLine(src, r.depth+1)
	r.dir, r.unsure, r.tainted, r.changed, r.via = dir, unsure, tainted, changed, outer
	return err
}

// addFind adds the find command itself and the commands that it executes for each file.
func (r *lineWalker) addFind(c Command) error {
	r.addCommand(c)
	words := c.Words[1:]
	for i := 0; i < len(words); i++ {
		if !slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, words[i]) {
			continue
		}
		end := i + 1
		for end < len(words) && words[end] != ";" && words[end] != "+" {
			end++
		}
		run := Command{Words: words[i+1 : end], Text: c.Text, Opaque: "some of its operands come from elsewhere",
			Via: append(slices.Clone(c.Via), "find")}
		if len(run.Words) > 0 {
			if err := r.unwrapProgram(run); err != nil {
				return err
			}
		}
		i = end
	}
	return nil
}
