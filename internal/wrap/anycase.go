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

// AnyCase refuses a project in which a name also leads to its file when it is written in the other case, as .GIT to .git. On
// Linux such a file system is mostly one of another system's, reached over a network or from a virtual machine: the kernel
// takes the two spellings for two files, and what is mounted over one of them is not in the way of the other.
func (f Found) AnyCase(project string) error {
	for _, path := range append([]string{"."}, f.Paths...) {
		path := filepath.Join(project, filepath.FromSlash(path))
		if anyCase(path) {
			return &bailey.Error{Kind: bailey.Denied, Message: path + " is also found when its name is written in another case, so an agent could get around what keeps it",
				Hint: "move the project to a file system where case counts, or start with --any-case if the agent may change its git configuration and hooks"}
		}
	}
	return nil
}

// anyCase tells whether the last name of a path leads to the same file in the other case, without being there twice.
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
	return err != nil || !slices.Contains(names, other) // else it is another link to the file
}
