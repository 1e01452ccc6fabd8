package hooks

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// refuseWorkspaceFile refuses a file in a workspace, whether it is the program, an interpreter in its first line, or an argument. If
// an agent could write such a file, it would get all rights of the user when the hook runs without a cage.
func (d *Dispatcher) refuseWorkspaceFile(argv []string) error {
	if d.Workspaces == nil || len(d.Workspaces()) == 0 {
		return nil
	}
	for _, word := range append(slices.Clone(argv), interpreterWords(argv[0])...) {
		info, err := os.Stat(word)
		if !filepath.IsAbs(word) || err == nil && info.IsDir() {
			continue
		}
		if w := d.workspaceOf(word); w != "" {
			return bailey.Denied.Errorf("move it out of the workspace",
				"%s is in the workspace %s, where agents write", word, w)
		}
	}
	return nil
}

// workspaceOf returns the workspace in which an agent can write the file, or a link on the way to it, or "". It checks
// the name and the target.
func (d *Dispatcher) workspaceOf(path string) string {
	if d.Workspaces == nil {
		return ""
	}
	for _, w := range d.Workspaces() {
		in := func(at string) bool { return isWithin(resolveLinks(w), at) }
		if in(resolveLinks(path)) || isWithin(filepath.Clean(w), filepath.Clean(path)) ||
			slices.ContainsFunc(pathSteps(path), in) {
			return w
		}
	}
	return ""
}

// pathSteps returns the files and directories on the way to path, as the kernel resolves it. The target of a link alone is
// not enough: an agent can change a link in a workspace.
func pathSteps(path string) (all []string) {
	volume := filepath.VolumeName(path)
	root, split := volume+string(filepath.Separator), func(p string) []string {
		return strings.FieldsFunc(filepath.ToSlash(p), func(c rune) bool { return c == '/' })
	}
	at, rest := root, split(path[len(volume):])
	for links := 0; len(rest) > 0 && links <= 40; { // ELOOP
		name := rest[0]
		rest = rest[1:]
		switch to, err := os.Readlink(filepath.Join(at, name)); {
		case name == ".":
		case name == "..":
			at = filepath.Dir(at)
		case err != nil:
			at = filepath.Join(at, name)
			all = append(all, at)
		default:
			links, all = links+1, append(all, filepath.Join(at, name))
			if rest = append(split(to[len(filepath.VolumeName(to)):]), rest...); filepath.IsAbs(to) {
				at = root
			}
		}
	}
	return all
}

// interpreterWords returns the words of a script's first line, and of the first lines of the programs that these name: the
// kernel follows four (execve(2)).
func interpreterWords(path string) (words []string) {
	for range 4 {
		if !filepath.IsAbs(path) {
			break
		}
		line := firstLine(path)
		if len(line) == 0 {
			break
		}
		words = append(words, line...)
		path = line[0]
	}
	return words
}

// firstLine returns the words after #!, as far as the kernel reads.
func firstLine(path string) []string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // opening a FIFO would block
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil // the start will report it
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(f, 256))
	line, _, _ := bytes.Cut(head, []byte("\n"))
	rest, ok := strings.CutPrefix(string(line), "#!")
	if !ok {
		return nil
	}
	return strings.Fields(rest)
}

// checkFolder refuses a folder that contains more than the files of the hook.
func (d *Dispatcher) checkFolder(dir string) error {
	if d.Private == nil {
		return nil
	}
	dir = resolveLinks(dir)
	for _, p := range d.Private() {
		if p = resolveLinks(p); isWithin(dir, p) {
			return bailey.Denied.Errorf("move it into a folder of its own",
				"a hook reads its own folder, and %s contains %s", dir, p)
		}
	}
	return nil
}

func resolveLinks(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return filepath.Clean(path)
}

// isWithin reports whether path is dir or lies in it.
func isWithin(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
