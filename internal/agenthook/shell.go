package agenthook

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey/internal/shellparse"
	"bailey/pack"
)

// noopPrograms lists programs that have no effect.
var noopPrograms = []string{"true", "false", ":"}

// discardFiles lists files that keep none of the data written to them.
var discardFiles = []string{"/dev/null", "/dev/stdout", "/dev/stderr"}

// Reasons why a call reads or writes a file whose name is in the line.
const (
	shellOpens   = "the shell would open it"
	programOpens = "the program would open it"
	gitOpens     = "git would read it"
)

var openingReasons = []string{shellOpens, programOpens, gitOpens}

// translateCommand translates a simple command into calls: one for each file that the shell opens for it, one for the
// first
// masked path that it names, and one for the command itself. If a capability means the same as the command, that
// capability is called.
func (c Config) translateCommand(k shellparse.Command, e Event) (parts []plannedCall) {
	start := e.Dir
	dir := start
	if k.Dir != "" {
		dir = absolutePath(start, k.Dir)
	}
	file := func(path string, writes bool, about string) {
		p := plannedCall{id: read, dir: start, input: map[string]any{"path": resolvePath(dir, path)},
			about: about, of: k.Text,
			opens: slices.Contains(openingReasons, about)}
		if writes {
			p.id, p.input = write, writeInput(resolvePath(dir, path))
		}
		parts = append(parts, p)
	}
	for _, f := range k.Files {
		if !slices.Contains(discardFiles, f.Path) {
			file(f.Path, f.Write, shellOpens)
		}
	}
	if hidden := c.findMasked(k, dir); hidden != "" {
		// an agent may read its settings, but not with a program that could also change them
		file(hidden, slices.Contains(c.Settings, hidden),
			"it is hidden from agents: it contains secrets or controls Bailey")
	}
	text, at := commandText(k), dir
	if len(k.Words) > 0 && filepath.Base(k.Words[0]) == "git" && k.Opaque == "" {
		var to string
		if k.Words, to = pack.GitDirectory(k.Words); to != "" { // git changes to it, like the shell with cd
			dir = resolvePath(dir, to)
			file(dir, false, "git would enter it")
		}
		k.Opaque = bareRepoReason(dir)
	}
	input := map[string]any{"command": text, "literal": k.Opaque == "", "cwd": at}
	if k.Opaque != "" {
		input["why"] = k.Opaque
	}
	if verb := c.operatorCommand(k); verb != "" {
		input["operator"] = verb
	}
	whole := plannedCall{id: shell, dir: start, input: input, about: k.Opaque}
	switch {
	case k.Opaque != "" || input["operator"] != nil || len(k.Words) == 0:
		return append(parts, whole)
	case k.Words[0] == "cd":
		where := dir
		if k.Dir == "" && len(k.Words) > 1 {
			where = absolutePath(start, k.Words[len(k.Words)-1])
		}
		file(where, false, "the shell would enter it")
		return parts
	case slices.Contains(noopPrograms, k.Words[0]):
		return append(parts, plannedCall{id: read, dir: start, input: map[string]any{"path": dir}})
	}
	if filepath.Base(k.Words[0]) == "git" {
		for _, path := range gitOperands(k.Words, dir) {
			file(path, false, gitOpens)
		}
	}
	plain, ok := translatePlain(k.Words)
	if ok && !(plain.inPlace && slices.ContainsFunc(plain.paths,
		func(p string) bool { return isLink(absoluteLinks(dir, p)) })) {
		for _, path := range plain.written {
			file(path, true, programOpens)
		}
		for _, path := range plain.paths {
			file(path, plain.writes, programOpens)
		}
		if len(plain.paths) == 0 {
			file("", false, "")
		}
		return parts
	}
	if found := pack.Meanings(c.Catalog(), k.Words); len(found) > 0 {
		m := slices.MaxFunc(found, func(a, b pack.Meaning) int {
			return cmp.Compare(a.SideEffect.Rank(), b.SideEffect.Rank())
		})
		return append(parts, translateMeaning(found, m, k, e, dir, whole)...)
	}
	return append(parts, whole)
}

// translateMeaning translates a command with the meaning m into calls. If the shim can start the command and the call
// can
// change something, the call runs in its jail, as rules demand of changes. Otherwise the tool runs outside of a cage.
func translateMeaning(found []pack.Meaning, m pack.Meaning, k shellparse.Command, e Event, dir string,
	whole plannedCall) (parts []plannedCall) {
	changes := m.SideEffect.Rank() > pack.ReadOnly.Rank()
	jailed := plannedCall{id: m.ID, dir: dir, shimmed: k.Text, instead: &whole, of: k.Text, changes: changes}
	canShim := len(found) == 1 && len(m.Inputs) == 1 && e.Shim != "" && programStart(k) >= 0
	if canShim {
		jailed.input = maps.Clone(m.Inputs[0])
	}
	// In a cage, the tool holds only what it is lent and runs only the programs there; outside, it has all rights of
	// the
	// user.
	if len(m.Wants()) > 0 || len(m.Waivers()) > 0 || m.CagedLines() {
		if canShim {
			return []plannedCall{jailed}
		}
		return []plannedCall{whole}
	}
	file := func(path string, writes bool) {
		p := plannedCall{id: read, dir: e.Dir, input: map[string]any{"path": resolvePath(dir, path)},
			about: programOpens,
			of:    k.Text, opens: true}
		if writes {
			p.id, p.input = write, writeInput(resolvePath(dir, path))
		}
		parts = append(parts, p)
	}
	for _, in := range m.Inputs {
		for _, path := range m.Subpaths(in) { // outside of a cage, a link there may lead anywhere
			file(path, m.Writes())
		}
		opens := false
		for _, p := range m.PathInputs() { // resolve as the shell's child will: links before ".."
			if v, ok := in[p.Name].(string); ok {
				in[p.Name] = resolvePath(dir, v)
				opens = opens || in[p.Name] != dir
			}
		}
		parts = append(parts, plannedCall{id: m.ID, dir: e.Dir, input: in, instead: &whole, of: k.Text, opens: opens})
	}
	if !changes || !canShim {
		return parts
	}
	own := parts[len(parts)-1]
	jailed.asksAgent, jailed.instead = true, &own
	jailed.opensOutside = slices.ContainsFunc(parts, func(p plannedCall) bool { return p.opens })
	for i := range parts[:len(parts)-1] { // the paths count in any case, but only the tool in the jail opens them
		parts[i].opens = false
	}
	parts[len(parts)-1] = jailed
	return parts
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSymlink != 0
}

// bareRepoReason returns why git might accept dir, or a parent directory, as a repository although it has no .git. Git
// recognises
// a repository by file names, and it starts programs that a neighbouring file named config specifies. A directory that
// could become a repository while the line runs counts too.
func bareRepoReason(dir string) string {
	dir = resolveLinks(dir) // git searches upwards from the real path
	there := func(name ...string) bool {
		_, err := os.Lstat(filepath.Join(append([]string{dir}, name...)...))
		return err == nil
	}
	for {
		switch up := filepath.Dir(dir); {
		case there("HEAD"), there("commondir"), there("objects") && there("refs"):
			return "git may read " + dir + " as a repository and start programs that its configuration names"
		case there(".git", "HEAD"), up == dir:
			return ""
		default:
			dir = up
		}
	}
}

// commandText returns a command as rules see it: its words, quoted if necessary. If the command is opaque, it returns
// the
// source text.
func commandText(k shellparse.Command) string {
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

// maxPath is the longest path that Linux opens, in bytes (PATH_MAX). The limit of other systems is lower.
const maxPath = 4096

// resolvePath returns the file that a program would open for path in dir, with each link resolved before the element
// after
// it. If this cannot be determined, it returns the root, which no workspace contains.
func resolvePath(dir, path string) string {
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
	return resolveLinks(path)
}

// resolveLinks resolves the links of a path as far as it exists. The rules see the real location and may therefore
// match by
// path. A dangling link stays, and the gate refuses it.
func resolveLinks(path string) string {
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
	return filepath.Join(resolveLinks(dir), name)
}

// findMasked returns the first masked path that a word of a command refers to, or "". If a word is not a plain path,
// its
// parts are tried too, for example the text after "=", ":" or "@", inside quotes, or attached to an option.
func (c Config) findMasked(k shellparse.Command, dir string) string {
	words := k.Words
	if k.Opaque != "" {
		words = append(slices.Clone(words), splitPieces(k.Text)...)
	}
	for _, word := range words {
		for _, path := range append(splitPieces(word), word) {
			for _, v := range []string{path,
				strings.TrimLeft(path, "-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")} {
				if hit := c.matchMask(v, dir); hit != "" {
					return hit
				}
			}
		}
	}
	return ""
}

func (c Config) matchMask(path, dir string) string {
	for _, home := range []string{"~", "$HOME", "${HOME}"} {
		if rest, ok := strings.CutPrefix(path, home); ok && (rest == "" || rest[0] == '/') {
			path = c.Home + rest
		}
	}
	if path == "" || len(path) > maxPath || strings.ContainsRune(path, 0) || !strings.ContainsAny(path, "/.") {
		return ""
	}
	for _, real := range []string{resolvePath(dir, path), absolutePath(dir, path)} {
		for _, m := range c.Masks {
			if real == m || strings.HasPrefix(real, m+string(filepath.Separator)) {
				return real
			}
		}
	}
	return ""
}

// splitPieces returns the parts of a text that could be paths or words.
func splitPieces(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`=:,@;&|<>()", r) })
}

// operatorCommand returns the operator-only bailey command that a command would run, or "".
func (c Config) operatorCommand(k shellparse.Command) string {
	if strings.Contains(k.Text+" "+strings.Join(k.Words, " "), "BAILEY_OPERATOR") {
		return "BAILEY_OPERATOR"
	}
	if verb := c.operatorVerb(k.Words, true); verb != "" {
		return verb
	}
	var words []string
	for _, w := range k.Words {
		words = append(words, splitPieces(w)...)
	}
	if verb := c.operatorVerb(words, false); verb != "" {
		return verb
	}
	if k.Opaque != "" {
		return c.operatorVerb(splitPieces(k.Text), false)
	}
	return ""
}

// operatorVerb finds bailey among words and returns its command, or "" if agents may use that command.
func (c Config) operatorVerb(words []string, program bool) string {
	for i, w := range words {
		if name := filepath.Base(w); name != "bailey" && name != "bailey.exe" {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(words[i+1:]),
			func(w string) bool { return w == "--json" || w == "--yes" })
		if len(rest) == 0 {
			continue
		}
		two := strings.Join(rest[:min(2, len(rest))], " ")
		switch {
		case slices.Contains(c.Open, rest[0]), slices.Contains(c.Open, two), rest[0] == "-h", rest[0] == "--help",
			rest[0] == "--version":
		case program && i == 0, slices.Contains(c.Verbs, rest[0]):
			return rest[0]
		}
	}
	return ""
}

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
		if path != dir && !strings.HasPrefix(path, strings.TrimSuffix(dir,
			string(filepath.Separator))+string(filepath.Separator)) && !slices.Contains(paths, path) {
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
