package agenthook

import (
	"reflect"
	"slices"
	"strings"

	"bailey/internal/shellparse"
)

// plainUse is the use of a program whose whole effect are the files that it opens.
type plainUse struct {
	paths  []string
	writes bool
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
	"sort":     {options: []string{"-u", "-r", "-n", "-h", "-V", "-rn", "-nr", "-ru", "-un", "-rh", "-hr", "-f"}},
}

// translatePlain returns the files that a command opens, if that is its whole effect. The caller must know that the
// words are literal.
func translatePlain(words []string) (use plainUse, ok bool) {
	if words[0] == "sed" {
		return translateSed(words[1:])
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

// translateSed accepts sed -n with a script that only prints lines by their numbers: other commands of sed write files
// and start programs.
func translateSed(words []string) (use plainUse, ok bool) {
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
	return use, true
}

// printsLines reports whether a command of sed is N,Mp or a part of that.
func printsLines(one string) bool {
	numbers, ok := strings.CutSuffix(strings.TrimSpace(one), "p")
	from, to, _ := strings.Cut(numbers, ",")
	isLine := func(s string) bool { return s == "" || s == "$" || strings.Trim(s, "0123456789") == "" }
	return ok && isLine(from) && isLine(strings.TrimPrefix(to, "+"))
}

// startsWith reports whether the source text of a command begins with a word, unquoted.
func startsWith(text, word string) bool {
	rest, ok := strings.CutPrefix(text, word)
	return ok && (rest == "" || rest[0] == ' ') && !strings.ContainsAny(word, "/=\\'\"")
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
		if strings.Count(changed, text) != 1 {
			return "", false
		}
		changed = strings.Replace(changed, text, quoted+" ./"+text, 1)
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
