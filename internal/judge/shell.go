package judge

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey/internal/command"
	"bailey/pack"
)

// nothing are programs that do nothing to anything.
var nothing = []string{"true", "false", ":"}

// nowhere are files that swallow what is written.
var nowhere = []string{"/dev/null", "/dev/stdout", "/dev/stderr"}

// command is what a simple command comes to: the files that the shell opens for it, what it names of what is masked, and itself, as a
// capability where one means the same.
func (c Config) command(k command.Command, start string) (parts []part) {
	dir := start
	if k.Dir != "" {
		dir = absolute(start, k.Dir)
	}
	file := func(path string, writes bool, about string) {
		p := part{id: read, dir: start, input: map[string]any{"path": follow(dir, path)}, about: about}
		if writes {
			p.id, p.input = write, written(follow(dir, path))
		}
		parts = append(parts, p)
	}
	for _, f := range k.Files {
		if !slices.Contains(nowhere, f.Path) {
			file(f.Path, f.Write, "the shell would open it")
		}
	}
	if hidden := c.masked(k, dir); hidden != "" {
		file(hidden, false, "it lies among secrets or what Bailey itself goes by, and stays hidden from agents")
	}
	if len(k.Words) > 0 && filepath.Base(k.Words[0]) == "git" && k.Opaque == "" {
		k.Opaque = bare(dir)
	}
	input := map[string]any{"command": text(k), "literal": k.Opaque == "", "cwd": dir}
	if k.Opaque != "" {
		input["why"] = k.Opaque
	}
	if verb := c.operator(k); verb != "" {
		input["operator"] = verb
	}
	whole := part{id: shell, dir: start, input: input, about: k.Opaque}
	switch {
	case k.Opaque != "" || input["operator"] != nil || len(k.Words) == 0:
		return append(parts, whole)
	case k.Words[0] == "cd":
		where := dir
		if k.Dir == "" && len(k.Words) > 1 {
			where = absolute(start, k.Words[len(k.Words)-1])
		}
		file(where, false, "the shell would go there")
		return parts
	case slices.Contains(nothing, k.Words[0]):
		return append(parts, part{id: read, dir: start, input: map[string]any{"path": dir}})
	}
	if filepath.Base(k.Words[0]) == "git" {
		for _, path := range operands(k.Words, dir) {
			file(path, false, "git would read it")
		}
	}
	for _, m := range pack.Meanings(c.Catalog(), k.Words) {
		if len(m.Wants()) > 0 || len(m.Waivers()) > 0 { // in a cage it has what it is lent, and runs what is there; out here it has all that is the user's
			continue
		}
		for _, in := range m.Inputs {
			for _, p := range m.PathInputs() { // as the shell's child will find it, links before ..
				if v, ok := in[p.Name].(string); ok {
					in[p.Name] = follow(dir, v)
				}
			}
			parts = append(parts, part{id: m.ID, dir: start, input: in, instead: &whole})
		}
		return parts
	}
	return append(parts, whole)
}

// bare says why git may take dir, or what it lies in, for a repository although there is no .git: it goes by the names of files,
// and starts programs that a file config beside them names. What could become one while the line runs counts.
func bare(dir string) string {
	dir = real(dir) // git goes up from where it is
	there := func(name ...string) bool {
		_, err := os.Lstat(filepath.Join(append([]string{dir}, name...)...))
		return err == nil
	}
	for {
		switch up := filepath.Dir(dir); {
		case there("HEAD"), there("commondir"), there("objects") && there("refs"):
			return "git may take " + dir + " for a repository, and start what it says there"
		case there(".git", "HEAD"), up == dir:
			return ""
		default:
			dir = up
		}
	}
}

// text is a command as rules see it: its words alone, quoted where they have to be, or all of it where they do not say what it does.
func text(k command.Command) string {
	if k.Opaque != "" || len(k.Words) == 0 {
		return k.Text
	}
	words := make([]string, len(k.Words))
	for i, w := range k.Words {
		if words[i] = w; w == "" || strings.ContainsAny(w, " \t\n\"'\\$`*?[]{}()<>|&;#~!") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// maxPath is as long as a path can be that Linux opens, in bytes (PATH_MAX); others open less.
const maxPath = 4096

// follow is where a path leads that a program opens in dir: each link before what comes after it. What cannot be told leads to the
// root, where no workspace is.
func follow(dir, path string) string {
	if path == "" {
		return dir
	}
	if !filepath.IsAbs(path) {
		path = dir + string(filepath.Separator) + path
	}
	if len(path) > maxPath {
		return string(filepath.Separator)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if strings.Contains(strings.TrimPrefix(path, dir), "..") {
		parent := path[:strings.LastIndexByte(path, filepath.Separator)]
		real, err := filepath.EvalSymlinks(parent)
		if name := filepath.Base(path); err == nil && name != ".." {
			return filepath.Join(real, name)
		}
		return string(filepath.Separator)
	}
	return real(path)
}

// real resolves the links of a path, as far as there is something: rules shall see where it leads, and so may go by names. A link that
// leads nowhere stays, and the gate refuses it.
func real(path string) string {
	if path = filepath.Clean(path); len(path) > maxPath {
		return string(filepath.Separator)
	}
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	dir, name := filepath.Split(path)
	if dir == path || name == "" {
		return path
	}
	return filepath.Join(real(dir), name)
}

// masked is the first word of a command that leads to something masked. Of what is no plain word, all parts are tried: after
// =, : and @, in quotes, of options.
func (c Config) masked(k command.Command, dir string) string {
	words := k.Words
	if k.Opaque != "" {
		words = append(slices.Clone(words), pieces(k.Text)...)
	}
	for _, word := range words {
		for _, path := range append(pieces(word), word) {
			for _, v := range []string{path, strings.TrimLeft(path, "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")} {
				if hit := c.hit(v, dir); hit != "" {
					return hit
				}
			}
		}
	}
	return ""
}

func (c Config) hit(path, dir string) string {
	for _, home := range []string{"~", "$HOME", "${HOME}"} {
		if rest, ok := strings.CutPrefix(path, home); ok && (rest == "" || rest[0] == '/') {
			path = c.Home + rest
		}
	}
	if path == "" || len(path) > maxPath || strings.ContainsRune(path, 0) || !strings.ContainsAny(path, "/.") {
		return ""
	}
	for _, real := range []string{follow(dir, path), absolute(dir, path)} {
		for _, m := range c.Masks {
			if real == m || strings.HasPrefix(real, m+string(filepath.Separator)) {
				return real
			}
		}
	}
	return ""
}

// pieces are the parts of a text that could be paths or words.
func pieces(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`=:,@;&|<>()", r) })
}

// operator is the verb of Bailey's that a command would run and that is an operator's, "" where there is none.
func (c Config) operator(k command.Command) string {
	if strings.Contains(k.Text+" "+strings.Join(k.Words, " "), "BAILEY_OPERATOR") {
		return "BAILEY_OPERATOR"
	}
	if verb := c.verb(k.Words, true); verb != "" {
		return verb
	}
	var words []string
	for _, w := range k.Words {
		words = append(words, pieces(w)...)
	}
	if verb := c.verb(words, false); verb != "" {
		return verb
	}
	if k.Opaque != "" {
		return c.verb(pieces(k.Text), false)
	}
	return ""
}

// verb looks for bailey among words and returns what it is told to do, if agents may not.
func (c Config) verb(words []string, program bool) string {
	for i, w := range words {
		if name := filepath.Base(w); name != "bailey" && name != "bailey.exe" {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(words[i+1:]), func(w string) bool { return w == "--json" || w == "--yes" })
		if len(rest) == 0 {
			continue
		}
		two := strings.Join(rest[:min(2, len(rest))], " ")
		switch {
		case slices.Contains(c.Open, rest[0]), slices.Contains(c.Open, two), rest[0] == "-h", rest[0] == "--help", rest[0] == "--version":
		case program && i == 0, slices.Contains(c.Verbs, rest[0]):
			return rest[0]
		}
	}
	return ""
}
