// Package guard knows the files of a project that programs outside of a cage act on by themselves. It is the one list of them: for
// the agent jail, for tools that build or clone, and for an agent's own hook.
package guard

import (
	_ "embed"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed names.txt
var text string

// An Entry is one line of the list.
type Entry struct {
	Dir    string // the directory in which the name counts, folded; "" for any
	Name   string // folded, with "*" for anything at one end
	Spelt  string // as the list has it
	Reason string // which program acts on it
}

// list has all entries, and names those without "*", by name.
var list, names = read(text)

func read(text string) (all []Entry, exact map[string][]Entry) {
	exact = map[string][]Entry{}
	for line := range strings.Lines(text) {
		spelt, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
		if spelt == "" || spelt == "#" {
			continue
		}
		e := Entry{Spelt: spelt, Reason: strings.TrimSpace(reason)}
		e.Dir, e.Name = filepath.Split(Fold(spelt))
		e.Dir = strings.TrimSuffix(e.Dir, "/")
		all = append(all, e)
		if !strings.Contains(e.Name, "*") {
			exact[e.Name] = append(exact[e.Name], e)
		}
	}
	return all, exact
}

// OfGit are the files that git acts on in a repository's own directory, whatever that directory is called (gitrepository-layout(5)).
var OfGit = []string{"config", "config.worktree", "hooks", "commondir"}

// All is the list.
func All() []Entry { return list }

// Name finds the entry of a name in a directory of this name.
func Name(dir, name string) (e Entry, ok bool) {
	name = Fold(name)
	for _, e := range names[name] {
		if e.Dir == "" || e.Dir == Fold(dir) {
			return e, true
		}
	}
	if name == "" || !strings.Contains(anyEnd, name[:1]) && !strings.Contains(anyBegin, name[len(name)-1:]) {
		return e, false
	}
	for _, e := range list {
		if e.matches(name) {
			return e, true
		}
	}
	return e, false
}

// anyEnd has the first letters of the names that end in "*", anyBegin the last letters of those that begin with "*".
const anyEnd, anyBegin = ".ls", "e"

func (e Entry) matches(name string) bool {
	begin, isBegin := strings.CutSuffix(e.Name, "*")
	end, isEnd := strings.CutPrefix(e.Name, "*")
	return isBegin && strings.HasPrefix(name, begin) || isEnd && strings.HasSuffix(name, end)
}

// Path finds the first entry among the names of a path.
func Path(path string) (e Entry, ok bool) {
	dir := ""
	for name := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if e, ok = Name(dir, name); ok {
			return e, true
		}
		dir = name
	}
	return e, false
}

// Fold returns a name as the least strict file systems compare it: in lower case, with Unicode's full case folding where that gives
// ASCII letters, without ignorable code points, and without dots and blanks at its end. Names that differ after folding are
// different files on every file system.
func Fold(name string) string {
	if plain(name) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(unicode.ToLower(r))
		case ligatures[r] != "":
			b.WriteString(ligatures[r])
		case !ignorable(r):
			b.WriteRune(folded(r))
		}
	}
	if short := strings.TrimRight(b.String(), ". "); short != "" {
		return short
	}
	return b.String()
}

// plain reports whether a name is its own folding, as most are.
func plain(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return name == "" || name[len(name)-1] != '.' && name[len(name)-1] != ' '
}

// folded is the letter of ASCII that a rune is without case (U+017F is s, U+212A is k), or the rune in small.
func folded(r rune) rune {
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f < utf8.RuneSelf {
			return unicode.ToLower(f)
		}
	}
	return unicode.ToLower(r)
}

// ligatures are the runes whose full case folding is letters of ASCII (Unicode, CaseFolding.txt, status F).
var ligatures = map[rune]string{'ß': "ss", 'ẞ': "ss", 'ﬀ': "ff", 'ﬁ': "fi", 'ﬂ': "fl", 'ﬃ': "ffi", 'ﬄ': "ffl", 'ﬅ': "st", 'ﬆ': "st"}

// ignorable tells the code points that file systems leave out when they compare names (Unicode, Default_Ignorable_Code_Point).
func ignorable(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x3164, r == 0xfeff, r == 0xffa0:
		return true
	case 0x115f <= r && r <= 0x1160, 0x17b4 <= r && r <= 0x17b5, 0x180b <= r && r <= 0x180f, 0x200b <= r && r <= 0x200f, 0x202a <= r && r <= 0x202e,
		0x2060 <= r && r <= 0x206f, 0xfe00 <= r && r <= 0xfe0f, 0xfff0 <= r && r <= 0xfff8, 0x1bca0 <= r && r <= 0x1bca3, 0x1d173 <= r && r <= 0x1d17a, 0xe0000 <= r && r <= 0xe0fff:
		return true
	}
	return false
}
