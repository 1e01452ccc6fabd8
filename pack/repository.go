package pack

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// checkRepositoryInput checks the input that the key repository of a backend names.
func (r *reader) checkRepositoryInput(n ast.Node, m *manifest, s *schema) {
	name := m.Backend.Repository
	switch {
	case name == "" && m.Backend.Signs != "":
		r.AddFault(n, "signs needs repository, whose configuration says what has to be signed")
	case name == "":
	case !pathInput(s, m, name):
		r.AddFault(n, "repository needs a path input, but %q is not%s", strictyaml.Clip(name),
			strictyaml.DidYouMean(name, s.names))
	case m.Isolation != Jail:
		r.AddFault(n, "repository needs isolation jail, which decides what of the repository the tool can reach")
	}
}

// RepositoryInput returns the path input that names a directory of a git repository, or "".
func (m *Capability) RepositoryInput() string { return m.spec.Backend.Repository }

// repositoryEnv returns the working directory of git and its environment. It tells git where the work tree is, because
// core.worktree could name another one (git(1)). A bare repository must be named, because git does not accept one that it
// finds if safe.bareRepository is explicit. If there is no repository, git says that it searched to the root, as it does
// outside of a cage, where no directory is a mount.
func repositoryEnv(env []string, p bailey.Place) (dir string, _ []string) {
	repo := p.Repository
	if repo == nil {
		return p.Path, append(slices.Clone(env), "GIT_DISCOVERY_ACROSS_FILESYSTEM=1")
	}
	env = slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "GIT_WORK_TREE=") })
	if !repo.Bare {
		return repo.Dir, append(env, "GIT_WORK_TREE="+repo.Top)
	}
	git := repo.GitDir
	if repo.Dir == repo.GitDir {
		git = "." // as git itself says
	}
	return repo.Dir, append(env, "GIT_DIR="+git, "GIT_IMPLICIT_WORK_TREE=0")
}

// InputPaths returns the values that replace path inputs in arguments, by input name. What a manifest writes as
// "{{ input.repo }}/.git/config" is elsewhere in a linked worktree, a submodule and a bare repository.
func InputPaths(places []bailey.Place) map[string]string {
	paths := map[string]string{}
	for _, p := range places {
		paths[p.Input] = p.Path
	}
	for _, p := range places {
		if repo := p.Repository; repo != nil {
			paths[p.Input+"/.git"], paths[p.Input+"/.git/"] = repo.Below("/.git"), repo.Common+"/"
		}
	}
	return paths
}

// gitPath returns an argument such as "--git-dir={{ input.repo }}/.git", and false if the parts have another form or the
// input is no repository.
func (w *argvWriter) gitPath(parts []templatePart) (arg string, ok bool) {
	if len(parts) == 3 && parts[0].input == "" {
		arg, parts = parts[0].text, parts[1:]
	}
	if len(parts) != 2 || parts[0].input == "" || parts[1].input != "" {
		return "", false
	}
	name, rest := parts[0].input, parts[1].text
	dir, isGit := w.paths[name+"/.git"]
	below, isBelow := strings.CutPrefix(rest, "/.git/")
	switch {
	case !isGit:
		return "", false
	case isBelow:
		return arg + w.paths[name+"/.git/"] + below, true
	}
	return arg + dir, rest == "/.git"
}
