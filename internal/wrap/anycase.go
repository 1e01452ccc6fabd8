//go:build linux

package wrap

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"bailey"
)

// AnyCase refuses a project in which a name also finds its file if it is written in the other case, for example .GIT
// for .git. On Linux such a file system mostly belongs to another system and is reached over a network or from a
// virtual machine. The kernel treats the two spellings as two files, so a mount over one does not protect the other.
func (f Found) AnyCase(project string) error {
	for _, path := range append([]string{"."}, f.Paths...) {
		path := filepath.Join(project, filepath.FromSlash(path))
		if anyCase(path) {
			return bailey.Denied.New(path+
				" is also found when its name is written in another case, so an agent could get around what keeps it",
				"move the project to a file system where case counts, or start with --any-case if the agent may change its git configuration and hooks")
		}
	}
	return nil
}

// anyCase reports whether the last name of a path finds the same file in the other case, without a second directory
// entry.
func anyCase(path string) bool {
	dir, name := filepath.Split(path)
	other := strings.Map(func(r rune) rune {
		if unicode.IsUpper(r) {
			return unicode.ToLower(r)
		}
		return unicode.ToUpper(r)
	}, name)
	own, err := os.Lstat(path)
	if err != nil || other == name {
		return false
	}
	found, err := os.Lstat(filepath.Join(dir, other))
	if err != nil || !os.SameFile(own, found) {
		return false
	}
	at, err := os.Open(dir)
	if err != nil {
		return true
	}
	defer at.Close()
	names, err := at.Readdirnames(-1)
	return err != nil || !slices.Contains(names, other) // otherwise it is another link to the file
}
