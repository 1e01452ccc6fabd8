package agenthook

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"bailey/internal/shellparse"
)

// plainUse is the use of a program whose whole effect are the files that it opens.
type plainUse struct {
	paths   []string
	writes  bool
	written []string // paths that are written in any case
	inPlace bool     // each path is replaced by a new file, also if it is a link
}

// plainProgram is a program without options that take a value or have another effect than the files that it opens.
type plainProgram struct {
	options []string
	writes  bool
	names   bool // its operands are names, not paths
}

var plainPrograms = map[string]plainProgram{
	"mkdir":    {options: []string{"-p", "-v", "-pv", "--parents"}, writes: true},
	"touch":    {options: []string{"-c", "-a", "-m"}, writes: true},
	"which":    {options: []string{"-a"}, names: true},
	"basename": {names: true},
	"dirname":  {names: true},
	"tr":       {options: []string{"-d", "-s", "-c", "-cd", "-ds"}, names: true},
	"tac":      {},
	"nl":       {},
	"sleep":    {names: true},
	"test":     {options: fileTests},
	"sort":     {options: []string{"-u", "-r", "-n", "-h", "-V", "-rn", "-nr", "-ru", "-un", "-rh", "-hr", "-f"}},
}

// fileTests are the options of test that ask about a file or a text.
var fileTests = []string{"-f", "-d", "-e", "-s", "-x", "-r", "-w", "-L", "-h", "-z", "-n"}

// versionPrograms lists programs that only print their version with --version, wherever they are started.
var versionPrograms = []string{"node", "python", "python3", "gcc", "clang", "ruby", "curl", "jq", "rg", "bash"}

// translatePlain returns the files that a command opens, if that is its whole effect. The caller must know that the
// words are literal.
func translatePlain(words []string) (use plainUse, ok bool) {
	switch {
	case words[0] == "sed":
		return translateSed(words[1:])
	case words[0] == "cp":
		return translateCopy(words[1:])
	case words[0] == "date": // another operand would set the clock
		return use, len(words) == 1 || len(words) == 2 && (words[1] == "-u" || strings.HasPrefix(words[1], "+"))
	case len(words) == 2 && words[1] == "--version" && slices.Contains(versionPrograms, words[0]):
		return use, true
	}
	p, ok := plainPrograms[words[0]]
	if !ok {
		return use, false
	}
	use.writes = p.writes
	for i, w := range words[1:] {
		switch {
		case w == "--":
			use.paths = append(use.paths, words[i+2:]...)
			return p.checkPaths(use)
		case len(w) > 1 && w[0] == '-' && !slices.Contains(p.options, w):
			return use, false
		case len(w) > 1 && w[0] == '-', w == "-":
		default:
			use.paths = append(use.paths, w)
		}
	}
	return p.checkPaths(use)
}

func (p plainProgram) checkPaths(use plainUse) (plainUse, bool) {
	if p.names {
		use.paths = nil
	}
	return use, !p.writes || len(use.paths) > 0
}

// translateCopy accepts cp with two files. The second one may be a directory, which then gets a file.
func translateCopy(words []string) (use plainUse, ok bool) {
	if len(words) != 2 || strings.HasPrefix(words[0], "-") || strings.HasPrefix(words[1], "-") || words[0] == "" || words[1] == "" {
		return use, false
	}
	return plainUse{paths: words[:1], written: []string{words[1], words[1] + "/" + filepath.Base(words[0])}}, true
}

// translateSed accepts sed -n with a script that only prints lines by their numbers: other commands of sed write files
// and start programs.
func translateSed(words []string) (use plainUse, ok bool) {
	if len(words) > 2 && words[0] == "-i" && isReplacement(words[1]) {
		use.inPlace, words = true, append([]string{"-n", "p"}, words[2:]...)
	}
	if len(words) < 2 || words[0] != "-n" || words[1] == "" ||
		slices.ContainsFunc(strings.Split(words[1], ";"), func(one string) bool { return !printsLines(one) }) {
		return use, false
	}
	for _, w := range words[2:] {
		if strings.HasPrefix(w, "-") { // options count behind operands too
			return use, false
		}
		use.paths = append(use.paths, w)
	}
	use.writes = use.inPlace
	return use, true
}

// isReplacement reports whether a script of sed is s/…/…/ without a flag that writes a file or starts a program.
func isReplacement(script string) bool {
	if len(script) < 4 || script[0] != 's' || !strings.ContainsRune("/|#,:@", rune(script[1])) || strings.Contains(script, "\n") {
		return false
	}
	parts, escaped := []string{""}, false
	for _, c := range script[2:] {
		switch {
		case !escaped && c == rune(script[1]):
			parts = append(parts, "")
			continue
		case !escaped && c == '[': // a delimiter in brackets does not end the expression
			return false
		}
		escaped = !escaped && c == '\\'
		parts[len(parts)-1] += string(c)
	}
	return len(parts) == 3 && strings.Trim(parts[2], "gIi0123456789") == ""
}

// printsLines reports whether a command of sed is N,Mp or a part of that.
func printsLines(one string) bool {
	numbers, ok := strings.CutSuffix(strings.TrimSpace(one), "p")
	from, to, _ := strings.Cut(numbers, ",")
	isLine := func(s string) bool { return s == "" || s == "$" || strings.Trim(s, "0123456789") == "" }
	return ok && isLine(from) && isLine(strings.TrimPrefix(to, "+"))
}

// launchers lists programs that run their operands with the same files, directory and variables.
var launchers = []string{"timeout", "time", "nice", "ionice", "stdbuf"}

// programStart returns where the program of a command stands in its source text: at the start, or after a launcher such as
// timeout with its plain operands. It returns -1 if the program is quoted or stands elsewhere, or if any program before
// it is not a launcher: sudo and env may take the variables by which the shim knows its session.
func programStart(k shellparse.Command) int {
	if len(k.Words) == 0 || strings.ContainsAny(k.Words[0], "/=\\'\"") ||
		slices.ContainsFunc(k.Via, func(name string) bool { return !slices.Contains(launchers, name) }) {
		return -1
	}
	isPlain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("-.=", r)
	}
	for start := 0; ; {
		word, _, more := strings.Cut(k.Text[start:], " ")
		switch {
		case word == k.Words[0]:
			return start
		case !more, start == 0 && !slices.Contains(launchers, word), strings.ContainsFunc(word, func(r rune) bool { return !isPlain(r) }):
			return -1
		}
		start += len(word) + 1
	}
}

// shimLine returns a command line in which the shim starts some of the commands. It returns false unless the shell
// reads the new line as the old one, with these commands changed.
func shimLine(line, home, shim string, commands []string) (string, bool) {
	old, err := shellparse.Parse(line, home)
	if err != nil {
		return "", false
	}
	quoted := commandText(shellparse.Command{Words: []string{shim}})
	changed := line
	for _, text := range commands {
		at := slices.IndexFunc(old, func(k shellparse.Command) bool { return k.Text == text })
		if at < 0 || strings.Count(changed, text) != 1 {
			return "", false
		}
		start := programStart(old[at])
		if start < 0 {
			return "", false
		}
		changed = strings.Replace(changed, text, text[:start]+quoted+" ./"+text[start:], 1)
	}
	now, err := shellparse.Parse(changed, home)
	if err != nil || len(now) != len(old) {
		return "", false
	}
	n := 0
	for i := range old {
		want := old[i].Words
		if slices.Contains(commands, old[i].Text) {
			want = append([]string{shim, "./" + want[0]}, want[1:]...)
			n++
		}
		if !slices.Equal(now[i].Words, want) || now[i].Opaque != old[i].Opaque || now[i].Dir != old[i].Dir ||
			!reflect.DeepEqual(now[i].Files, old[i].Files) {
			return "", false
		}
	}
	return changed, n == len(commands)
}
