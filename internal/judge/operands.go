package judge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// looks are the commands of git that show the file of an operand REVISION:PATH.
var looks = []string{"show", "diff", "log", "cat-file", "grep", "blame", "archive", "ls-tree", "rev-parse", "ls-files", "shortlog"}

// operands are places outside of dir that git would read for the words of its command: a file that an operand is the path of, which
// git diff reads where there is no repository, and in a repository whose top is further up a path behind the colon, which counts
// from there.
func operands(words []string, dir string) (paths []string) {
	i := slices.IndexFunc(words[1:], func(w string) bool { return slices.Contains(looks, w) })
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
			continue // an option: the capability's pattern decides it
		}
		if len(w) > maxPath {
			continue // no path, and nothing that git takes
		}
		if _, err := os.Stat(absoluteLinks(dir, w)); err == nil {
			add(follow(dir, w))
		}
		if _, path, ok := strings.Cut(w, ":"); ok && top != "" {
			switch {
			case strings.HasPrefix(path, "("): // a pathspec's magic, such as :(top)x
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

// absoluteLinks is a path as a program opens it: not cleaned, since the part before a .. may be a link.
func absoluteLinks(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return dir + string(filepath.Separator) + path
}

// topOf is the top of the repository that dir lies in, "" for none.
func topOf(dir string) string {
	for dir = real(dir); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}
