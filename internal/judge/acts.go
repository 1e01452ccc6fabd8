package judge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey/internal/guard"
)

const actsGit = "git: a repository's configuration, hooks and references"

// acts says which program outside of any cage acts on a file by itself, "" if none is known. Names are compared folded (see
// [guard.Fold]), and git's directories are found as git finds them: by what is in them, whatever they are called and wherever
// they lie, since .git may be a file or a link that leads to one.
func acts(path string) string {
	parts := strings.Split(filepath.ToSlash(path), "/")
	for i, part := range parts {
		if i > 0 {
			if e, ok := guard.Name(parts[i-1], part); ok {
				return e.Reason
			}
		}
		switch folded := guard.Fold(part); {
		case folded == ".git", i == len(parts)-1 && (folded == "head" || folded == "commondir"):
			return actsGit
		case i > 0 && (folded == "head" || slices.Contains(guard.OfGit, folded)) && repository(filepath.FromSlash(strings.Join(parts[:i], "/"))):
			return actsGit
		}
	}
	return ""
}

// repository reports whether git would take a directory for one of its own, or almost: an agent could make the missing files first.
func repository(dir string) bool {
	has := func(name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	return has("HEAD") || has("commondir") || has("objects") && has("refs")
}

// written is the input of a call that writes a file: its path as rules know it, and the program that acts on it.
func written(path string) map[string]any {
	input := map[string]any{"path": spelt(path)}
	if by := acts(path); by != "" {
		input["acts"] = by
	}
	return input
}

// spelt is a path with the names that rules know in their one spelling. Names without a dot are left alone: a directory Head is not HEAD
// where case counts, and input.acts covers it.
func spelt(path string) string {
	parts := strings.Split(path, string(filepath.Separator))
	for i, part := range parts {
		if folded := guard.Fold(part); folded == ".git" {
			parts[i] = folded
		} else if e, ok := guard.Name("", part); ok && strings.HasPrefix(e.Spelt, ".") && !strings.Contains(e.Name, "*") {
			parts[i] = e.Spelt
		}
	}
	return strings.Join(parts, string(filepath.Separator))
}
