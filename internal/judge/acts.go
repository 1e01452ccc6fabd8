package judge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey/internal/guard"
)

const actsGit = "git: a repository's configuration, hooks and references"

// actingProgram returns which program outside any cage acts on a file by itself, or "" if no such program is known. Names are
// compared in folded form (see [guard.Fold]). Git directories are recognised as git recognises them, by their content
// and not by their name or location, because .git may be a file or a link that points to such a directory.
func actingProgram(path string) string {
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
		case i > 0 && (folded == "head" || slices.Contains(guard.OfGit, folded)) &&
			isRepository(filepath.FromSlash(strings.Join(parts[:i], "/"))):
			return actsGit
		}
	}
	return ""
}

// isRepository reports whether git would accept a directory as a repository. A partial match counts too, because an agent
// could create the missing files first.
func isRepository(dir string) bool {
	has := func(name string) bool { _, err := os.Lstat(filepath.Join(dir, name)); return err == nil }
	return has("HEAD") || has("commondir") || has("objects") && has("refs")
}

// writeInput returns the input of a call that writes a file: its path as the rules know it, and the program that acts on
// it.
func writeInput(path string) map[string]any {
	input := map[string]any{"path": canonicalSpelling(path)}
	if by := actingProgram(path); by != "" {
		input["acts"] = by
	}
	return input
}

// canonicalSpelling returns a path in which every name known to the rules has its canonical spelling. Names without a dot are left
// alone: on a case-sensitive file system, a directory Head is not HEAD; input.acts covers that case.
func canonicalSpelling(path string) string {
	parts := strings.Split(path, string(filepath.Separator))
	for i, part := range parts {
		if folded := guard.Fold(part); folded == ".git" {
			parts[i] = folded
		} else if e, ok := guard.Name("", part); ok && strings.HasPrefix(e.Spelt, ".") &&
			!strings.Contains(e.Name, "*") {
			parts[i] = e.Spelt
		}
	}
	return strings.Join(parts, string(filepath.Separator))
}
