package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/gitremote"
	"bailey/pack"
)

// repositoryFinder finds the git repository of one opened directory. Each directory that it opens must be in the
// workspace, like the directory itself.
type repositoryFinder struct {
	w      *Workspaces
	call   bailey.Call
	in     pack.PathInput
	bounds Bounds
	opened []bailey.Place
}

// Repository finds the git repository around an opened directory, as git does: it searches upwards for a .git, or for a
// bare repository. It returns the top in place of the directory, and the common directory of the repository if it is not
// below the top, as in a linked worktree or a submodule. A .git that is a file must name a directory that points back.
// If there is no repository, Repository returns the place alone, and git says so itself.
func (w *Workspaces) Repository(call bailey.Call, in pack.PathInput, p bailey.Place) ([]bailey.Place, error) {
	f := &repositoryFinder{w: w, call: call, in: in, opened: []bailey.Place{p}}
	found, err := f.findTop(p)
	if err == nil && found == nil {
		found = []bailey.Place{p}
	}
	for _, o := range f.opened {
		if !slices.ContainsFunc(found, func(p bailey.Place) bool { return p.File == o.File }) {
			o.File.Close()
		}
	}
	return found, err
}

func (f *repositoryFinder) findTop(p bailey.Place) (found []bailey.Place, err error) {
	if f.bounds, err = f.w.boundsFor(f.call); err != nil {
		return nil, err
	}
	for at := p; ; {
		repo, err := f.repositoryAt(at)
		if err != nil {
			return nil, err
		}
		if repo != nil {
			repo.Dir = p.Path
			return f.placesOf(at, repo)
		}
		up := filepath.Dir(at.Path)
		if up == at.Path {
			return nil, nil
		}
		if !f.bounds.Hold(up) {
			if up = repositoryAbove(up); up == "" {
				return nil, nil
			}
		}
		if at, err = f.openDir(up, "the top of the repository"); err != nil {
			return nil, err
		}
	}
}

// repositoryAbove returns the nearest directory with a .git, from dir upwards, or "". It opens nothing.
func repositoryAbove(dir string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git", "HEAD")); err == nil {
			return dir
		}
		if info, err := os.Lstat(filepath.Join(dir, ".git")); err == nil && !info.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// openDir opens a directory of the repository, which must be in the workspace. There is one exception: if the home names no
// workspace, a session of one call that only reads may use the repository around its directory, because each such call
// chooses its directory anyway. Policy sees the path of each directory that is opened.
func (f *repositoryFinder) openDir(path, what string) (bailey.Place, error) {
	none := bailey.Place{}
	f.w.mu.Lock()
	_, wall := f.w.walls[f.call.Session.ID]
	f.w.mu.Unlock()
	in := f.in
	in.Dir, in.Repository = true, false
	var p bailey.Place
	var err error
	switch {
	case f.bounds.Hold(path):
		p, err = f.w.Open(f.call, in, path)
	case !f.bounds.named && !wall && f.call.Session.Single && !in.Write:
		if _, err = f.w.Resolve(path); err == nil {
			p, err = OpenPlace(path, false)
		}
	default:
		return none, bailey.Denied.Errorf("if the repository is theirs, a person can add its top to the workspaces: bailey init DIR",
			"%s, %s, is outside the %s", what, path, f.bounds.name)
	}
	if err != nil {
		return none, err
	}
	f.opened = append(f.opened, p)
	if p.Path != path {
		return none, bailey.Denied.Errorf("call again", "%s, %s, has moved to %s", what, path, p.Path)
	}
	p.Input, p.Write = in.Name, in.Write
	return p, nil
}

// repositoryAt returns the repository whose top is the directory, or nil.
func (f *repositoryFinder) repositoryAt(at bailey.Place) (*bailey.Repository, error) {
	dotGit := filepath.Join(at.Path, ".git")
	info, err := os.Lstat(dotGit)
	switch {
	case err != nil:
		return f.bareAt(at)
	case info.Mode()&os.ModeSymlink != 0:
		real := Canonical(dotGit)
		if !Within(at.Path, real) {
			return nil, refusedGit(dotGit, "is a symbolic link that leaves its directory")
		}
		return &bailey.Repository{Top: at.Path, GitDir: real, Common: real}, nil
	case info.IsDir():
		if is, err := f.isGitDir(at, ".git/"); err != nil || !is {
			return nil, err // like git, which searches on
		}
		return &bailey.Repository{Top: at.Path, GitDir: dotGit, Common: dotGit}, nil
	}
	text, there, err := f.w.Load(at, ".git", maxGitFile)
	if err != nil || !there {
		return nil, errors.Join(err, refusedGit(dotGit, "is neither a directory nor a short file"))
	}
	dir, ok := gitremote.Elsewhere(text)
	if !ok || len(dir) > maxPathName || strings.ContainsFunc(dir, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
		return nil, refusedGit(dotGit, "is a file, and does not name the directory of a repository")
	}
	return f.repositoryElsewhere(at, dir)
}

// Limits of a file .git, which contains one path, in bytes.
const (
	maxPathName = 4096
	maxGitFile  = maxPathName + 64
)

func refusedGit(path, why string) error {
	return bailey.Denied.Errorf("a person can look at it; git worktree repair and git submodule update write it again",
		"%s %s", path, why)
}

// isGitDir reports whether a directory, given with a final slash or "", has what git expects of a repository.
func (f *repositoryFinder) isGitDir(at bailey.Place, below string) (bool, error) {
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if has, err := f.w.Has(at, below+name); err != nil || !has {
			return false, err
		}
	}
	return true, nil
}

// bareAt returns the bare repository that the directory is, or nil. The directory .git of a work tree is none: a tool
// there would change what git manages.
func (f *repositoryFinder) bareAt(at bailey.Place) (*bailey.Repository, error) {
	if is, err := f.isGitDir(at, ""); err != nil || !is {
		return nil, err
	}
	config, err := f.loadConfig(at, "config")
	if err != nil {
		return nil, err
	}
	commondir, err := f.w.Has(at, "commondir")
	switch {
	case err != nil:
		return nil, err
	case filepath.Base(at.Path) == ".git", commondir, config.Last("core", "worktree") != "":
		return nil, bailey.Invalid.Errorf("call it in the work tree",
			"%s is the directory in which git keeps a repository, and not a bare repository", at.Path)
	}
	return &bailey.Repository{Top: at.Path, GitDir: at.Path, Common: at.Path, Bare: true}, nil
}

// loadConfig reads a file of a git configuration. If there is none, it is empty.
func (f *repositoryFinder) loadConfig(at bailey.Place, name string) (*gitremote.Config, error) {
	text, _, err := f.w.Load(at, name, maxConfig)
	if err != nil {
		return nil, err
	}
	return gitremote.Parse(text)
}

// repositoryElsewhere returns the repository of a work tree whose .git is a file that names dir. A directory outside the
// work tree must be that of a linked worktree or of a submodule, and must point back to this work tree. Otherwise a file
// could make any repository of the workspace the one that a call reads or changes.
func (f *repositoryFinder) repositoryElsewhere(at bailey.Place, dir string) (*bailey.Repository, error) {
	dotGit := filepath.Join(at.Path, ".git")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(at.Path, dir)
	}
	if dir = filepath.Clean(dir); Canonical(dir) != dir {
		return nil, refusedGit(dotGit, "names a directory through a symbolic link")
	}
	own, err := f.openDir(dir, "the repository of "+at.Path)
	if err != nil {
		return nil, err
	}
	repo := &bailey.Repository{Top: at.Path, GitDir: dir, Common: dir}
	text, linked, err := f.w.Load(own, "commondir", maxGitFile)
	switch {
	case err != nil:
		return nil, err
	case linked:
		repo.Common, err = f.linkedWorktree(at, own, string(text))
	case !Within(at.Path, dir):
		err = f.checkSubmodule(at, own)
	default: // bare repositories are kept so, with a work tree for each branch beside them
		var config *gitremote.Config
		if config, err = f.loadConfig(own, "config"); err == nil {
			repo.Bare = config.IsTrue("core", "bare")
		}
	}
	if err != nil {
		return nil, err
	}
	return repo, f.checkCommon(at, repo)
}

// linkedWorktree returns the common directory of a linked worktree. Its own directory is COMMON/worktrees/NAME and names
// the file .git that names it (gitrepository-layout(5)).
func (f *repositoryFinder) linkedWorktree(at, own bailey.Place, common string) (string, error) {
	dotGit := filepath.Join(at.Path, ".git")
	if common = strings.TrimRight(common, "\r\n"); !filepath.IsAbs(common) {
		common = filepath.Join(own.Path, common)
	}
	common = filepath.Clean(common)
	if filepath.Dir(own.Path) != filepath.Join(common, "worktrees") {
		return "", refusedGit(dotGit, "names a directory that is not one of a linked worktree")
	}
	text, _, err := f.w.Load(own, "gitdir", maxGitFile)
	if err != nil {
		return "", err
	}
	back := strings.TrimRight(string(text), "\r\n")
	if !filepath.IsAbs(back) {
		back = filepath.Join(own.Path, back)
	}
	if filepath.Clean(back) != dotGit {
		return "", refusedGit(dotGit, "names the directory of another worktree: "+own.Path+" does not point back")
	}
	return common, nil
}

// checkSubmodule checks that the directory of a submodule names this work tree in its configuration.
func (f *repositoryFinder) checkSubmodule(at, own bailey.Place) error {
	back := ""
	for _, name := range []string{"config", "config.worktree"} {
		config, err := f.loadConfig(own, name)
		if err != nil {
			return err
		}
		if v := config.Last("core", "worktree"); v != "" {
			back = v
		}
	}
	if back != "" && !filepath.IsAbs(back) {
		back = filepath.Join(own.Path, back)
	}
	if back == "" || Canonical(back) != at.Path {
		return refusedGit(filepath.Join(at.Path, ".git"), "names another repository: core.worktree of "+own.Path+
			" does not point back")
	}
	return nil
}

// checkCommon checks that the common directory is the whole of a repository, and belongs to the owner of the work tree.
func (f *repositoryFinder) checkCommon(at bailey.Place, repo *bailey.Repository) error {
	common, err := f.openDir(repo.Common, "the repository of "+at.Path)
	if err != nil {
		return err
	}
	is, err := f.isGitDir(common, "")
	if err != nil {
		return err
	}
	chained, err := f.w.Has(common, "commondir")
	switch {
	case err != nil:
		return err
	case !is || chained:
		return refusedGit(filepath.Join(at.Path, ".git"), "names "+repo.Common+", which is no repository")
	case !sameOwner(at.File, common.File):
		return refusedGit(filepath.Join(at.Path, ".git"), "names "+repo.Common+", which belongs to another user")
	}
	return nil
}

// placesOf returns the places of a repository: the top, and the common directory if the top does not contain it.
func (f *repositoryFinder) placesOf(at bailey.Place, repo *bailey.Repository) ([]bailey.Place, error) {
	at.Repository = repo
	if Within(at.Path, repo.Common) {
		return []bailey.Place{at}, nil
	}
	i := slices.IndexFunc(f.opened, func(p bailey.Place) bool { return p.Path == repo.Common })
	common := f.opened[i]
	common.Input, common.Write = bailey.CommonInput(f.in.Name), f.in.Write
	return []bailey.Place{at, common}, nil
}
