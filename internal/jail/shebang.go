//go:build linux

package jail

import (
	"bytes"
	"strings"
)

// lineBytes is how much of a file the kernel reads to determine its format (BINPRM_BUF_SIZE, linux/binfmts.h).
const lineBytes = 256

// maxScripts is how many first lines one start may follow: those of a script and of four levels of interpreters that
// are scripts themselves (execve(2)).
const maxScripts = 5

// parseShebang reads the first line of a script as execve(2) does: the interpreter, then at most one argument, which may be
// empty and may contain blanks. head is the beginning of the file. The line ends at a newline or a NUL. If neither
// comes in time, the argument is cut short, but a name never is: such a file is not a script.
func parseShebang(head []byte) (words []string, ok bool) {
	if !bytes.HasPrefix(head, []byte("#!")) {
		return nil, false
	}
	var buf [lineBytes]byte // if the file is shorter, the rest is NUL
	copy(buf[:], head)
	line := buf[2 : lineBytes-1]
	if end := bytes.IndexAny(buf[:], "\n\x00"); end >= 0 && buf[end] == '\n' {
		line = buf[2:end]
	} else if !bytes.ContainsAny(bytes.TrimLeft(buf[2:], " \t"), " \t\x00") {
		return nil, false
	}
	line = bytes.TrimLeft(bytes.TrimRight(line, " \t"), " \t")
	if len(line) == 0 {
		return nil, false
	}
	name, rest := line, []byte(nil)
	if i := bytes.IndexAny(line, " \t\x00"); i >= 0 {
		name, rest = line[:i], line[i:]
	}
	words = []string{string(name)}
	if len(rest) > 0 && rest[0] != 0 {
		arg, _, _ := bytes.Cut(bytes.TrimLeft(rest, " \t"), []byte{0})
		words = append(words, string(arg))
	}
	return words, true
}

// envWords returns the words that env(1) makes of the one argument that it gets from a first line: a name to look up,
// or, after -S, words to split. The syntax of -S has options, variables, quotes and escapes; only plain words are
// accepted.
func envWords(arg string) (words []string, ok bool) {
	if rest, split := strings.CutPrefix(arg, "-S"); split && strings.TrimLeft(rest, " \t") != rest {
		words = strings.FieldsFunc(rest, func(c rune) bool { return c == ' ' || c == '\t' })
	} else {
		words = []string{arg}
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "-") || strings.Contains(words[0], "=") {
		return nil, false
	}
	for _, w := range words {
		if w == "" || strings.ContainsFunc(w, notPlain) {
			return nil, false
		}
	}
	return words, true
}

func notPlain(c rune) bool {
	letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
	return !letter && !strings.ContainsRune("_./+:,@%=-", c)
}
