package toolchain

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"bailey"
)

// choice is a version that a file names.
type choice struct {
	version string // "" if the file names none
	file    string
	least   bool // a newer version will do
}

const (
	systemVersion = "system" // the program of the system
	newestVersion = "newest" // whichever installed version is the newest
)

// selector reads the version that one kind of file names.
type selector struct {
	file string
	read func(text string) (version string, least bool)
}

// maxUp limits how many directories above the project are searched.
const maxUp = 32

// projectVersion returns the version that the nearest file in the project, or above it, names for a language. The home
// itself is not searched: files there are defaults of the person.
func (f *Finder) projectVersion(l *language, project string) (choice, error) {
	if project == "" {
		return choice{}, nil
	}
	if c, ok := f.virtualEnv(l, project); ok {
		return c, nil
	}
	dir := project
	for range maxUp {
		if dir == f.Home || dir == filepath.Dir(dir) {
			break
		}
		for _, s := range l.allFiles() {
			path := filepath.Join(dir, s.file)
			text, err := readSmall(path)
			if err != nil {
				return choice{}, err
			}
			version, least := s.read(text)
			if version == "" {
				continue
			}
			c, err := l.checkedChoice(version, path)
			c.least = least
			return f.followAlias(l, c), err
		}
		dir = filepath.Dir(dir)
		if info, err := os.Lstat(dir); err != nil || ownersOf(f.Home).othersCanWrite(info) {
			break // in /tmp, another user could choose
		}
	}
	return choice{}, nil
}

// allFiles returns the language's own files and those that several languages share.
func (l *language) allFiles() []selector {
	return append(slices.Clone(l.files), selector{".tool-versions", l.toolVersions}, selector{"mise.toml", l.miseVersion},
		selector{".mise.toml", l.miseVersion})
}

// checkedChoice refuses a version that is not a plain word. The message does not repeat it: the file may be a link that
// was put there for its content, or hold anything else.
func (l *language) checkedChoice(version, file string) (choice, error) {
	version = strings.TrimPrefix(strings.TrimPrefix(version, "v"), l.prefix)
	if strings.HasPrefix(version, "lts/") && isVersion(version[len("lts/"):]) || version == "lts/*" {
		return choice{version: version, file: file}, nil
	}
	if !isVersion(version) {
		return choice{}, bailey.Invalid.Errorf("write a version, such as 1.2.3; a project cannot name a path or an address",
			"%s selects a version of %s that is not a plain version", file, l.name)
	}
	switch version {
	case "latest", "node", "stable", "lts":
		if l.name != "rust" {
			version = newestVersion
		}
	}
	return choice{version: version, file: file}, nil
}

// isVersion reports whether a text is a plain word: the name of a directory, without a way out of the one that has it.
func isVersion(s string) bool {
	if s == "" || len(s) > 64 || strings.Contains(s, "..") || strings.ContainsRune(".-+", rune(s[0])) {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !(c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("._+-", c))
	})
}

// followAlias replaces a name of nvm, such as lts/iron, by the version for which it stands in the person's nvm.
func (f *Finder) followAlias(l *language, c choice) choice {
	if l.name != "node" {
		return c
	}
	aliases := filepath.Join(f.managerRoot("NVM_DIR", ".nvm"), "alias")
	for range 8 {
		text, err := readSmall(filepath.Join(aliases, filepath.FromSlash(c.version)))
		next, _ := firstWord(text)
		if err != nil || next == "" {
			return c
		}
		to, err := l.checkedChoice(next, c.file)
		if err != nil {
			return c
		}
		c.version = to.version
	}
	return c
}

// defaultVersion returns the person's default version in a manager, and the file that names it.
func (f *Finder) defaultVersion(m manager, l *language) (version, file string) {
	file = filepath.Join(f.managerRoot(m.variable, m.root), m.usual)
	read := firstWord
	switch {
	case m.name == "mise":
		file, read = filepath.Join(f.Home, ".config/mise/config.toml"), l.miseVersion
	case m.name == "asdf":
		file, read = filepath.Join(f.Home, ".tool-versions"), l.toolVersions
	case m.name == "rustup":
		read = rustChannel
	case m.usual == "":
		return "", ""
	}
	if m.name == "fnm" { // a link to the version
		to, err := os.Readlink(file)
		if err != nil {
			return "", ""
		}
		return strings.TrimPrefix(filepath.Base(strings.TrimSuffix(to, "/installation")), "v"), file
	}
	text, err := readSmall(file)
	if err != nil {
		return "", ""
	}
	word, _ := read(text)
	c, err := l.checkedChoice(word, file)
	if err != nil {
		return "", ""
	}
	return plainVersion(f.followAlias(l, c).version, l), file
}

// virtualEnv returns the version for which a virtual environment of the project was made, if the person has it installed.
// The project's link says where the interpreter is; it counts only as a choice among the installed versions.
func (f *Finder) virtualEnv(l *language, project string) (choice, bool) {
	if l.name != "python" || f.Home == "" {
		return choice{}, false
	}
	for _, env := range []string{".venv", "venv"} {
		path := filepath.Join(project, env, "bin/python")
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		for _, t := range f.installedVersions(l) {
			if isWithin(t.Bin, real) {
				return choice{version: t.Version, file: path}, true
			}
		}
	}
	return choice{}, false
}

// firstWord returns the first word of the first line that is neither empty nor a comment.
func firstWord(text string) (string, bool) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 0 {
			return words[0], false
		}
	}
	return "", false
}

// goModVersion returns the version of go.mod: that of its toolchain line, or the least version of its go line. The Go
// command takes both as the least version that will do.
func goModVersion(text string) (version string, least bool) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "//")
		switch words := strings.Fields(line); {
		case len(words) != 2:
		case words[0] == "toolchain" && words[1] != "default":
			return strings.TrimPrefix(words[1], "go"), true
		case words[0] == "go":
			version = words[1]
		}
	}
	return version, true
}

// rustChannel returns the channel of rust-toolchain.toml, of the older rust-toolchain with one line, or the default of
// rustup's settings. A path, which rustup would accept in a project's file, is no plain version and is refused.
func rustChannel(text string) (string, bool) {
	var file struct {
		Toolchain        struct{ Channel, Path string }
		DefaultToolchain string `toml:"default_toolchain"`
	}
	if err := toml.Unmarshal([]byte(text), &file); err != nil {
		return firstWord(text)
	}
	for _, v := range []string{file.Toolchain.Path, file.Toolchain.Channel, file.DefaultToolchain} {
		if v != "" {
			return v, false
		}
	}
	return "", false
}

// toolVersions returns the version of a line in the file of asdf.
func (l *language) toolVersions(text string) (string, bool) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 1 && slices.Contains(l.keys, words[0]) {
			return words[1], false
		}
	}
	return "", false
}

// miseVersion returns the version in the file of mise: a text, a list whose first element counts, or a table.
func (l *language) miseVersion(text string) (string, bool) {
	var file struct{ Tools map[string]any }
	if toml.Unmarshal([]byte(text), &file) != nil {
		return "", false
	}
	for _, key := range l.keys {
		value := file.Tools[key]
		if list, ok := value.([]any); ok && len(list) > 0 {
			value = list[0]
		}
		if table, ok := value.(map[string]any); ok {
			value = table["version"]
		}
		if version, ok := value.(string); ok {
			return version, false
		}
	}
	return "", false
}
