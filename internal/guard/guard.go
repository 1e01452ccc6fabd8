// Package guard lists the project files that programs outside a cage act on by themselves, for example git hooks. The
// agent jail, tools that build or clone, and an agent's own hook use this one list.
package guard

import (
	_ "embed"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

//go:embed names.txt
var namesText string

// An Entry is one line of the list.
type Entry struct {
	Dir    string // directory in which the name counts, folded; "" for any
	Name   string // folded; "*" at one end matches any text
	Spelt  string // spelling in the list
	Reason string // program that acts on the file
}

// allEntries has all entries. names indexes the entries without "*" by name.
var allEntries, entriesByName = parseEntries(namesText)

func parseEntries(text string) (all []Entry, exact map[string][]Entry) {
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

// OfGit lists the files that git acts on in a repository's own directory, whatever its name (gitrepository-layout(5)).
var OfGit = []string{"config", "config.worktree", "hooks", "commondir"}

// All returns the list, which the caller must not change.
func All() []Entry { return allEntries }

// Name returns the entry that matches name in a directory called dir. ok is false if no entry matches.
func Name(dir, name string) (e Entry, ok bool) {
	name = Fold(name)
	for _, e := range entriesByName[name] {
		if e.Dir == "" || e.Dir == Fold(dir) {
			return e, true
		}
	}
	if name == "" || !strings.Contains(anyEnd, name[:1]) && !strings.Contains(anyBegin, name[len(name)-1:]) {
		return e, false
	}
	for _, e := range allEntries {
		if e.matchesWildcard(name) {
			return e, true
		}
	}
	return e, false
}

// anyEnd has the first letters of the names that end in "*", anyBegin the last letters of those that begin with "*". If
// a name has neither, Name skips the wildcard entries.
const anyEnd, anyBegin = ".ls", "e"

func (e Entry) matchesWildcard(name string) bool {
	begin, isBegin := strings.CutSuffix(e.Name, "*")
	end, isEnd := strings.CutPrefix(e.Name, "*")
	return isBegin && strings.HasPrefix(name, begin) || isEnd && strings.HasSuffix(name, end)
}

// Path returns the first entry that matches an element of path.
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

// Fold returns a name as the least strict file systems compare it: in lower case, with Unicode's full case folding if
// that gives ASCII letters, without ignorable code points and trailing dots and spaces. If two folded names differ,
// they are different files on every file system.
func Fold(name string) string {
	if isFolded(name) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		switch {
		case r < utf8.RuneSelf:
			b.WriteRune(unicode.ToLower(r))
		case ligatures[r] != "":
			b.WriteString(ligatures[r])
		case !isIgnorable(r):
			b.WriteRune(foldRune(r))
		}
	}
	if short := strings.TrimRight(b.String(), ". "); short != "" {
		return short
	}
	return b.String()
}

// isFolded reports whether a name equals its folded form, as most names do.
func isFolded(name string) bool {
	for i := range len(name) {
		if c := name[i]; c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return name == "" || name[len(name)-1] != '.' && name[len(name)-1] != ' '
}

// foldRune returns the ASCII letter that r equals if case is ignored (for example U+017F is s and U+212A is k), or r in
// lower case.
func foldRune(r rune) rune {
	for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
		if f < utf8.RuneSelf {
			return unicode.ToLower(f)
		}
	}
	return unicode.ToLower(r)
}

// ligatures maps the runes whose full case folding consists of ASCII letters (Unicode, CaseFolding.txt, status F).
var ligatures = map[rune]string{'ß': "ss", 'ẞ': "ss", 'ﬀ': "ff", 'ﬁ': "fi", 'ﬂ': "fl", 'ﬃ': "ffi", 'ﬄ': "ffl",
	'ﬅ': "st", 'ﬆ': "st"}

// isIgnorable reports whether file systems ignore r when they compare names (Unicode, Default_Ignorable_Code_Point).
func isIgnorable(r rune) bool {
	switch {
	case r == 0xad, r == 0x34f, r == 0x61c, r == 0x3164, r == 0xfeff, r == 0xffa0:
		return true
	case 0x115f <= r && r <= 0x1160, 0x17b4 <= r && r <= 0x17b5, 0x180b <= r && r <= 0x180f, 0x200b <= r && r <= 0x200f,
		0x202a <= r && r <= 0x202e,
		0x2060 <= r && r <= 0x206f, 0xfe00 <= r && r <= 0xfe0f, 0xfff0 <= r && r <= 0xfff8, 0x1bca0 <= r &&
			r <= 0x1bca3, 0x1d173 <= r && r <= 0x1d17a, 0xe0000 <= r && r <= 0xe0fff:
		return true
	}
	return false
}
