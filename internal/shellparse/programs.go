package shellparse

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Limits of the names that [Programs] returns.
const (
	maxPrograms    = 64
	maxProgramName = 64 // bytes
)

// moreRunners lists further programs that run their operands. A name that ends with * stands for all names that begin
// with the text before it.
var moreRunners = []string{"busybox*", "toybox", "ip", "taskset", "chrt", "numactl", "prlimit", "cgexec", "valgrind", "perf",
	"start-stop-daemon", "tini", "dumb-init", "gosu", "su-exec", "chpst", "setarch", "linux32", "linux64", "proot", "tmux", "screen",
	"torsocks", "proxychains*", "sshpass", "sg", "chronic", "eatmydata", "xvfb-run", "nsjail", "ld-linux*", "ld-musl*", "ld.so*"}

// Programs returns the names of the programs that an argument list may run, without their directories, sorted. It looks
// through shells, loops, substitutions and programs that run their operands. If it cannot tell which operand of such a
// program is run, it returns all that may be. hidden is not empty if the list may run other programs than those, for
// example because a name comes from a variable, and says why. A program that another one starts by itself, such as a
// script in a file, does not show.
func Programs(argv []string) (names []string, hidden string) {
	f := &programFinder{names: map[string]bool{}}
	f.addWords(argv, 0)
	if len(f.names) > maxPrograms {
		f.markHidden("it names too many programs")
	}
	names = slices.Sorted(maps.Keys(f.names))
	return names[:min(len(names), maxPrograms)], f.hidden
}

// programFinder collects the programs that lines and argument lists name.
type programFinder struct {
	names  map[string]bool
	hidden string
}

// markHidden records why programs do not show. The first reason stays.
func (f *programFinder) markHidden(why string) {
	if f.hidden == "" {
		f.hidden = why
	}
}

// addLine adds the programs of a shell line, at any depth of its syntax tree.
func (f *programFinder) addLine(line string, depth int) {
	switch {
	case depth > maxDepth:
		f.markHidden("shells are nested too deeply")
		return
	case len(line) > MaxLine, strings.Count(line, "(")+strings.Count(line, "{")+strings.Count(line, "`") > maxNest:
		f.markHidden("a script is too long")
		return
	case strings.ContainsFunc(line, isInvisible):
		f.markHidden("a script contains invisible characters")
		return
	}
	tree, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		f.markHidden("a script cannot be parsed as a shell would")
		return
	}
	syntax.Walk(tree, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Stmt:
			f.addStatement(n, depth)
		case *syntax.Redirect:
			f.addDevice(n)
		}
		return true
	})
}

// addDevice adds the names /dev/tcp and /dev/udp: bash connects if a redirection names them.
func (f *programFinder) addDevice(n *syntax.Redirect) {
	if n.Word == nil || n.Op == syntax.Hdoc || n.Op == syntax.DashHdoc || n.Op == syntax.WordHdoc {
		return // of the last three, the word is text
	}
	start, literal := literalStart(n.Word.Parts)
	for _, device := range []string{"/dev/tcp", "/dev/udp"} {
		switch {
		case strings.HasPrefix(path.Clean(start), device):
			f.names[device] = true
		case !literal && strings.HasPrefix(device, start):
			f.markHidden("the target of a redirection is not literal")
		}
	}
}

// literalStart returns the text before the first expansion of a word, and whether that is the whole word.
func literalStart(parts []syntax.WordPart) (string, bool) {
	r := &lineWalker{home: "/root"}
	if v, ok := r.literalWord(&syntax.Word{Parts: parts}); ok {
		return v, true
	}
	var b strings.Builder
	for i, p := range parts {
		if v, ok := r.literalPart(p, i == 0, len(parts) == 1); ok {
			b.WriteString(v)
			continue
		}
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(removeBackslashes(p.Value[:max(0, strings.IndexAny(p.Value, "*?[{}~="))], ""))
		case *syntax.DblQuoted:
			start, _ := literalStart(p.Parts)
			b.WriteString(start)
		}
		break
	}
	return b.String(), false
}

// addStatement adds the program of a simple command. Those of its substitutions are statements of their own.
func (f *programFinder) addStatement(s *syntax.Stmt, depth int) {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	var words []string
	for i, w := range call.Args {
		v, literal := (&lineWalker{home: "/root"}).literalWord(w)
		switch {
		case !literal && i == 0:
			f.markHidden("the name of a program is not literal")
			return
		case !literal:
			v = notLiteral
		}
		words = append(words, v)
	}
	if len(s.Redirs) == 1 && s.Redirs[0].N == nil && len(words) == 1 {
		if text, ok := hereText(s.Redirs[0]); ok && isShell(words[0]) {
			f.names[path.Base(words[0])] = true
			f.addLine(text, depth+1)
			return
		}
	}
	f.addWords(words, depth)
}

// notLiteral stands for a word whose value a line does not show.
const notLiteral = "\x00"

// hereText returns the text of a here document or here string without expansions.
func hereText(n *syntax.Redirect) (string, bool) {
	switch {
	case n.Op == syntax.WordHdoc:
		return (&lineWalker{}).literalWord(n.Word)
	case n.Hdoc != nil:
		return (&lineWalker{}).literalWord(&syntax.Word{Parts: []syntax.WordPart{&syntax.DblQuoted{Parts: n.Hdoc.Parts}}})
	}
	return "", false
}

func isShell(word string) bool { return slices.Contains(shells, path.Base(word)) }

// addWords adds the program of an argument list, and those that it runs.
func (f *programFinder) addWords(words []string, depth int) {
	if depth > maxDepth {
		f.markHidden("programs are nested too deeply")
		return
	}
	for len(words) > 0 {
		name := f.addName(words[0])
		w, wraps := wrappers[name]
		switch {
		case name == "":
			return
		case name == "command" && len(words) > 1 && (words[1] == "-v" || words[1] == "-V"):
			return // it looks a program up
		case isShell(name):
			f.addShell(words, depth)
			return
		case name == "find":
			f.addFound(words, depth)
			return
		case name == "eval" || name == "trap":
			f.addScript(strings.Join(words[1:], " "), depth)
			return
		case name == "." || name == "source":
			f.checkSource(words[1:])
			return
		case isRunner(name):
			f.addEvery(words[1:], depth)
			return
		case !wraps:
			return
		}
		rest, _, plain := w.wrappedCommand(words[1:])
		if !plain {
			f.addEvery(words[1:], depth)
			return
		}
		words, depth = rest, depth+1
	}
}

// addName adds the name of a program and returns it, or "" if it does not show.
func (f *programFinder) addName(word string) string {
	name := path.Base(word)
	switch {
	case word == "":
		return ""
	case word == notLiteral, len(name) > maxProgramName, strings.ContainsFunc(name, isInvisible):
		f.markHidden("the name of a program is not literal")
		return ""
	}
	f.names[name] = true
	return name
}

func isRunner(name string) bool {
	if slices.Contains(programRunners, name) {
		return true
	}
	return slices.ContainsFunc(moreRunners, func(r string) bool {
		start, many := strings.CutSuffix(r, "*")
		return name == r || many && strings.HasPrefix(name, start)
	})
}

// checkSource marks what a shell reads commands from, other than a file that the line names. Options are not known.
func (f *programFinder) checkSource(words []string) {
	if len(words) > 1 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) > 0 && (strings.HasPrefix(words[0], "-") || isUnnamed(words[0])) {
		f.markHidden("a shell reads its commands from no file that the line names")
	}
}

// isUnnamed says whether a word, as the script of a shell, does not name a file: it is not literal, or names a stream.
func isUnnamed(word string) bool {
	name := strings.TrimLeft(path.Clean(word), "./")
	streams := []string{"dev/std", "dev/fd/", "dev/tty", "dev/pts/", "dev/console", "proc/"}
	return word == notLiteral || word == "-" ||
		slices.ContainsFunc(streams, func(s string) bool { return strings.HasPrefix(name, s) })
}

// addShell adds the programs of the script of a shell. The words after a script are its parameters, which it may run too.
func (f *programFinder) addShell(words []string, depth int) {
	values := 0 // of options before the word. Bash takes one for each o, zsh may not: then more words are looked at
	for i, word := range words[1:] {
		option := len(word) > 1 && strings.ContainsRune("-+", rune(word[0]))
		switch {
		case isUnnamed(word):
			f.markHidden("a shell reads its commands from no file that the line names")
			return
		case option && slices.Contains([]string{"rcfile", "init-file", "emulate"}, strings.TrimLeft(word, "-")):
			values++
		case strings.HasPrefix(word, "--"): // --norc, or the end of the options
		case option && strings.Contains(word, "c"):
			f.addShellScript(words[i+2:], depth)
			return
		case option && strings.Contains(word, "s"):
			f.markHidden("a shell reads its commands from standard input")
			return
		case option:
			values += strings.Count(strings.ToLower(word), "o")
		case values > 0:
			values--
		default:
			return // a file with a script
		}
	}
	f.markHidden("a shell reads its commands from standard input")
}

// addShellScript adds the programs of the first word that is no option, and of the parameters after it.
func (f *programFinder) addShellScript(words []string, depth int) {
	for i, word := range words {
		if strings.HasPrefix(word, "-") || strings.HasPrefix(word, "+") {
			continue
		}
		f.addScript(word, depth)
		f.addEvery(words[i+1:], depth+1)
		return
	}
}

// addFound adds the programs that find runs.
func (f *programFinder) addFound(words []string, depth int) {
	for i, word := range words {
		if slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, word) {
			run := words[i+1:]
			if end := slices.IndexFunc(run, func(w string) bool { return w == ";" || w == "+" }); end >= 0 {
				run = run[:end]
			}
			f.addWords(run, depth+1)
		}
	}
}

// addScript adds the programs of a text that a shell evaluates.
func (f *programFinder) addScript(text string, depth int) {
	if strings.Contains(text, notLiteral) {
		f.markHidden("a script is not literal")
		return
	}
	f.addLine(text, depth+1)
}

// addEvery adds each word that could be a program or a script.
func (f *programFinder) addEvery(words []string, depth int) {
	for i, word := range words {
		word = strings.TrimPrefix(word, "-S") // of env
		switch {
		case word == notLiteral:
			f.markHidden("a script is not literal")
		case word == "" || word == "--":
		case strings.ContainsAny(word, " \t\n;&|<>()$`'\"\\{}*?[") || isShell(word) && depth == 0:
			if isShell(word) {
				f.addWords(words[i:], depth+1)
				return
			}
			if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") { // as in --command='curl x'
				word = value
			}
			f.addScript(word, depth)
		default:
			f.addName(word[strings.LastIndexByte(word, '=')+1:])
		}
	}
}
