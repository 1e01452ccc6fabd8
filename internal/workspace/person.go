package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/gitremote"
	"bailey/pack"
)

// GitPerson returns the settings of git that the gate hands to a call in a repository: the person's name and address,
// whether commits and tags are to be signed, and the person's ignore file. places are those of the repository. The files
// are read with the parser of package gitremote; git runs on none of them.
func (w *Workspaces) GitPerson(places []bailey.Place) pack.GitPerson {
	home, _ := os.UserHomeDir()
	xdg := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(xdg) {
		xdg = filepath.Join(home, ".config")
	}
	s := &gitSettings{home: home}
	if len(places) > 0 && places[0].Repository != nil {
		s.gitDir = places[0].Repository.GitDir
	}
	files := []string{"/etc/gitconfig", filepath.Join(xdg, "git", "config"), filepath.Join(home, ".gitconfig")}
	if global, set := os.LookupEnv("GIT_CONFIG_GLOBAL"); set { // replaces the person's files (git-config(1))
		files = []string{files[0], global}
	}
	for _, path := range files {
		if path != "" && path != os.DevNull {
			s.readFile(path, 0)
		}
	}
	ignore := filepath.Join(xdg, "git", "ignore")
	if v, set := s.lastValue("core", "excludesfile"); set {
		ignore = s.expandHome(v, home)
	}
	own := s.personalSettings()
	w.addRepositorySettings(s, places)
	p := pack.GitPerson{Unknown: s.unknown, Settings: own}
	p.Name, _ = s.lastValue("user", "name")
	p.Email, _ = s.lastValue("user", "email")
	p.SignCommits, p.SignTags = s.isTrue("commit", "gpgsign"), s.isTrue("tag", "gpgsign") || s.isTrue("tag", "forcesignannotated")
	p.Ignore = w.openIgnore(ignore)
	return p
}

// gitSettings are variables in the order in which git reads them; the last value counts.
type gitSettings struct {
	home, gitDir string
	entries      []gitremote.Entry
	unknown      error // a file that could not be understood
}

func (s *gitSettings) lastValue(section, key string) (v string, set bool) {
	for _, e := range s.entries {
		if e.Section == section && e.Sub == "" && e.Key == key {
			v, set = e.Value, true
		}
	}
	return v, set
}

// personalSettings returns the variables that a call may show.
func (s *gitSettings) personalSettings() map[string]string {
	all := map[string]string{}
	for _, e := range s.entries {
		if name := e.Section + "." + e.Key; e.Sub == "" && pack.IsPersonal(name) {
			all[name] = e.Value
		}
	}
	return all
}

func (s *gitSettings) isTrue(section, key string) (is bool) {
	for _, e := range s.entries {
		if e.Section == section && e.Sub == "" && e.Key == key {
			is = e.IsTrue()
		}
	}
	return is
}

func (s *gitSettings) expandHome(path, dir string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(s.home, rest)
	}
	if path != "" && !filepath.IsAbs(path) {
		return filepath.Join(dir, path)
	}
	return path
}

func (s *gitSettings) setUnknown(err error) { s.unknown = errors.Join(s.unknown, err) }

// maxIncludes limits how deep files of the person include others, as git does.
const maxIncludes = 10

// readFile adds the variables of a file of the person. An absent file has none.
func (s *gitSettings) readFile(path string, depth int) {
	entries, err := parseConfigFile(path)
	if err == nil && depth > maxIncludes {
		err = errors.New("it is included too deep")
	}
	if err != nil {
		s.setUnknown(fmt.Errorf("%s: %w", path, err))
		return
	}
	for _, e := range entries {
		s.entries = append(s.entries, e)
		if e.Key != "path" || e.Section != "include" && e.Section != "includeif" {
			continue
		}
		target := s.expandHome(e.Value, filepath.Dir(path))
		before := len(s.entries)
		switch applies, known := s.includeApplies(e); {
		case known && applies:
			s.readFile(target, depth+1)
		case !known: // a signature that may be wanted counts as wanted, and nothing else
			s.readFile(target, depth+1)
			kept := slices.DeleteFunc(slices.Clone(s.entries[before:]), func(e gitremote.Entry) bool {
				return !e.IsTrue() || e.Key != "gpgsign" && e.Key != "forcesignannotated"
			})
			s.entries = append(s.entries[:before], kept...)
		}
	}
}

// includeApplies reports whether a file is included, and false if that is not known: of the conditions of git-config(1), only a
// directory of repositories is understood.
func (s *gitSettings) includeApplies(e gitremote.Entry) (applies, known bool) {
	if e.Section == "include" {
		return true, true
	}
	dir, ok := strings.CutPrefix(e.Sub, "gitdir:")
	if dir = s.expandHome(dir, "?"); !ok || !filepath.IsAbs(dir) || strings.ContainsAny(dir, "*?[\\") || s.gitDir == "" {
		return false, false
	}
	if strings.HasSuffix(e.Sub, "/") {
		return Within(Canonical(dir), s.gitDir), true
	}
	return Canonical(dir) == s.gitDir, true
}

func parseConfigFile(path string) ([]gitremote.Entry, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, pathErrorCause(err)
	case !info.Mode().IsRegular():
		if path == os.DevNull {
			return nil, nil
		}
		return nil, errors.New("it is no regular file")
	case info.Size() > maxConfig:
		return nil, errors.New("it is too large")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, pathErrorCause(err)
	}
	c, err := gitremote.Parse(text)
	if err != nil {
		return nil, err
	}
	return c.Entries(), nil
}

// addRepositorySettings adds the variables of the repository, which outrank those of the person. They may be hostile: what
// the file includes is not read, and then it is not known whether a signature is wanted.
func (w *Workspaces) addRepositorySettings(s *gitSettings, places []bailey.Place) {
	if len(places) == 0 || places[0].Repository == nil {
		return
	}
	repo := places[0].Repository
	for _, path := range []string{filepath.Join(repo.Common, "config"), filepath.Join(repo.GitDir, "config.worktree")} {
		i := slices.IndexFunc(places, func(p bailey.Place) bool { return Within(p.Path, path) })
		if i < 0 {
			continue
		}
		name, err := filepath.Rel(places[i].Path, path)
		var text []byte
		if err == nil {
			text, _, err = w.Load(places[i], name, maxConfig)
		}
		var config *gitremote.Config
		if err == nil {
			config, err = gitremote.Parse(text)
		}
		if err != nil {
			s.setUnknown(fmt.Errorf("%s: %w", path, err))
			continue
		}
		for _, e := range config.Entries() {
			if e.Section == "include" || e.Section == "includeif" {
				s.setUnknown(fmt.Errorf("%s includes another file", path))
			}
		}
		s.entries = append(s.entries, config.Entries()...)
	}
}

// openIgnore opens the ignore file of the person, or returns nil. A file that a cage must not show does not count.
func (w *Workspaces) openIgnore(path string) *bailey.Place {
	if path == "" || !filepath.IsAbs(path) {
		return nil
	}
	p, err := OpenPlace(path, false)
	if err != nil {
		return nil
	}
	info, err := p.File.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > pack.MaxStdin || w.checkUnmasked(pack.PathInput{}, p.Path) != nil {
		p.File.Close()
		return nil
	}
	return &p
}
