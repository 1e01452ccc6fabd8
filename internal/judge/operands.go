package judge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// gitReadCommands lists the git commands that show the file named by an operand REVISION:PATH.
var gitReadCommands = []string{"show", "diff", "log", "cat-file", "grep", "blame", "archive", "ls-tree", "rev-parse",
	"ls-files", "shortlog"}

// gitOperands returns paths outside dir that git would read for its operands: the file that an operand names, which git
// diff reads if dir is not in a repository, and the path behind a colon, which is relative to the top of the repository
// and may therefore lie above dir.
func gitOperands(words []string, dir string) (paths []string) {
	i := slices.IndexFunc(words[1:], func(w string) bool { return slices.Contains(gitReadCommands, w) })
	if i < 0 {
		return nil
	}
	add := func(path string) {
		if path != dir && !strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator)) && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	top := topOf(dir)
	for _, w := range words[i+2:] {
		if strings.HasPrefix(w, "-") {
			continue // an option: the pattern of the capability decides
		}
		if len(w) > maxPath {
			continue // too long for a path, and git does not accept it
		}
		if _, err := os.Stat(absoluteLinks(dir, w)); err == nil {
			add(resolvePath(dir, w))
		}
		if _, path, ok := strings.Cut(w, ":"); ok && top != "" {
			switch {
			case strings.HasPrefix(path, "("): // pathspec magic, such as :(top)x
				add(top)
			case strings.HasPrefix(path, "./"), strings.HasPrefix(path, "../"):
				add(filepath.Join(dir, path))
			default:
				add(filepath.Join(top, path))
			}
		}
	}
	return paths
}

// absoluteLinks makes path absolute but does not clean it, as a program opens it: the part before a ".." may be a link.
func absoluteLinks(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + string(filepath.Separator) + path
}

// topOf returns the top directory of the repository that contains dir, or "" if no repository contains it.
func topOf(dir string) string {
	for dir = resolveLinks(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}
