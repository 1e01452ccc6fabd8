// Package toolchain finds the tools of a language that a person installed in the home directory: with rustup, pyenv, nvm,
// fnm, mise, asdf, uv, Homebrew, or by hand. It reads directories and the files that name a version. It starts no
// program: the shims of such managers are scripts that run whatever their variables and files name.
//
// A project only chooses among the versions that the person installed. The file in which it does so may have been
// written by an agent, so a version must be a plain word, and the directory of that name must lie directly in the
// manager's directory of versions. A program that leads out of the directory of its version is not used.
//
// Every later call trusts these programs, so they must be as safe as those of the system: no call, and no user other
// than the person and root, may be able to write them.
package toolchain

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/safefile"
)

// A Toolchain is one installed version of a language's tools, or a program that is installed by itself.
type Toolchain struct {
	Language string `json:"language"`
	Manager  string `json:"manager"`
	Version  string `json:"version"`
	Dir      string `json:"dir"`              // canonical; all files of the version
	Bin      string `json:"bin"`              // canonical; its programs
	Chosen   string `json:"chosen,omitempty"` // the file that names the version

	single string // the program, if it is installed by itself
}

// Name returns the text for people, such as "python 3.12.1 of pyenv".
func (t Toolchain) Name() string {
	if t.single != "" {
		return t.Language + " of " + t.Manager
	}
	return t.Language + " " + t.Version + " of " + t.Manager
}

// Program returns the path of a program, as a shell that searches Bin would find it, or "" if there is none or if it lies
// outside of the version.
func (t Toolchain) Program(name string) string {
	path := filepath.Join(t.Bin, name)
	if t.single != "" && name == t.Language {
		path = t.single
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || !isWithin(t.Dir, real) {
		return ""
	}
	if info, err := os.Stat(real); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return ""
	}
	return path
}

// Finder finds toolchains in one home. It is safe for concurrent use.
type Finder struct {
	// Home is the person's home directory, canonical.
	Home string
	// Getenv returns a variable of the person, such as PYENV_ROOT. A directory that it names counts only if it lies in
	// Home.
	Getenv func(string) string
	// Writable returns the directories that calls can write. It may be nil.
	Writable func() []string

	mu      sync.Mutex
	checked map[string]verdict // by directory
}

// verdict is the result of a search for files that other users can write.
type verdict struct {
	loose string
	err   error
	at    time.Time
}

// verdictAge is how long a verdict about all files of a version is used again: there are tens of thousands. The files of
// the call's own program are examined each time by the jail.
const verdictAge = 10 * time.Minute

// NewFinder returns a Finder for the home of this user and its environment.
func NewFinder(writable func() []string) *Finder {
	home, err := os.UserHomeDir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil || home == "/" {
		home = "" // nothing is found
	}
	return &Finder{Home: home, Getenv: os.Getenv, Writable: writable}
}

// Select returns the version of a language for a project: the one that the project names, otherwise the person's
// default. It returns nil if the system's program is the right one.
func (f *Finder) Select(language, project string) (*Toolchain, error) {
	l := languageNamed(language)
	if f.Home == "" || l == nil {
		return nil, nil
	}
	wanted, err := f.projectVersion(l, project)
	if err != nil || wanted.version == systemVersion {
		return nil, err
	}
	installed := f.installedVersions(l)
	if len(installed) == 0 {
		return nil, nil
	}
	if wanted.version == "" {
		return f.usualVersion(l, installed), nil
	}
	t := l.pickVersion(installed, wanted)
	switch {
	case t == nil && !wanted.least:
		return nil, notInstalled(l, installed, wanted)
	case t != nil && wanted.least && t.Version != wanted.version && compareVersions(systemGo(), wanted.version) >= 0:
		return nil, nil // the system's will do
	}
	return t, nil
}

// systemGo returns the version of the system's Go, or "".
func systemGo() string {
	for _, path := range []string{"/usr/local/go/bin/go", "/usr/local/bin/go", "/usr/bin/go"} {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(real)), "VERSION"))
		if version, _, _ := strings.Cut(string(text), "\n"); err == nil {
			return strings.TrimPrefix(version, "go")
		}
	}
	return ""
}

func notInstalled(l *language, installed []Toolchain, wanted choice) error {
	var have []string
	for _, t := range installed {
		have = append(have, t.Version)
	}
	return bailey.NotFound.Errorf("install it with "+installed[0].Manager+", or name an installed version in "+wanted.file+
		": "+strings.Join(have, ", "), "%s selects %s %s, which is not installed", wanted.file, l.name, wanted.version)
}

// usualVersion returns the person's default version. A manager without a default has none, except for Go, whose newest version
// is used if the system has no Go.
func (f *Finder) usualVersion(l *language, installed []Toolchain) *Toolchain {
	for _, m := range l.managers {
		version, file := f.defaultVersion(m, l)
		if version == systemVersion {
			return nil
		}
		if version == "" {
			continue
		}
		own := slices.DeleteFunc(slices.Clone(installed), func(t Toolchain) bool { return t.Manager != m.name })
		if t := l.pickVersion(own, choice{version: version, file: file}); t != nil {
			return t
		}
	}
	if systemHas(l.programs[0]) {
		return nil
	}
	newest := slices.MaxFunc(installed, func(a, b Toolchain) int { return compareVersions(a.Version, b.Version) })
	return &newest
}

// systemHas reports whether the system has a program.
func systemHas(program string) bool {
	return slices.ContainsFunc(strings.Split(systemPath, ":"), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, program))
		return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
	})
}

// systemPath is where the jail looks for commands, with the directory in which Go's own installer puts Go.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin"

// All returns the versions of all languages for a project, with an error for each language whose version cannot be used.
func (f *Finder) All(project string) (list []Toolchain, errs []error) {
	for _, l := range languages {
		t, err := f.Select(l.name, project)
		if err == nil && t != nil {
			err = f.Check(*t, nil)
		}
		if err != nil {
			errs = append(errs, err)
		} else if t != nil {
			list = append(list, *t)
		}
	}
	return list, errs
}

// ForCommand returns the toolchain that has a command, for a project: a language's, or a program that is installed by
// itself if the system has none of its name.
func (f *Finder) ForCommand(command, project string) (*Toolchain, error) {
	if f.Home == "" || strings.ContainsAny(command, "/\\") {
		return nil, nil
	}
	for _, l := range languages {
		if !l.hasProgram(command) {
			continue
		}
		if t, err := f.Select(l.name, project); err != nil || t != nil && t.Program(command) != "" {
			return t, err
		}
	}
	if systemHas(command) {
		return nil, nil
	}
	return f.singleProgram(command), nil
}

// Installed reports whether a command is in some toolchain, whatever a project selects.
func (f *Finder) Installed(command string) bool {
	if t, err := f.ForCommand(command, ""); err == nil && t != nil && t.Program(command) != "" {
		return true
	}
	return slices.ContainsFunc(languages, func(l *language) bool {
		return f.Home != "" && l.hasProgram(command) &&
			slices.ContainsFunc(f.installedVersions(l), func(t Toolchain) bool { return t.Program(command) != "" })
	})
}

// singleProgram returns a program that is installed by itself in a directory of programs of the home, or by Homebrew. It must be
// in the machine's own format: a script needs an interpreter and modules that lie elsewhere, and may be a shim.
func (f *Finder) singleProgram(command string) *Toolchain {
	for _, at := range []struct{ manager, dir, within string }{
		{"~/.local/bin", filepath.Join(f.Home, ".local/bin"), f.Home},
		{"cargo", filepath.Join(f.managerRoot("CARGO_HOME", ".cargo"), "bin"), f.Home},
		{"go", filepath.Join(f.Home, "go/bin"), f.Home},
		{"Homebrew", "/home/linuxbrew/.linuxbrew/bin", "/home/linuxbrew/.linuxbrew"},
		{"Homebrew", filepath.Join(f.Home, ".linuxbrew/bin"), filepath.Join(f.Home, ".linuxbrew")},
		{"Homebrew", "/opt/homebrew/bin", "/opt/homebrew"},
	} {
		real, err := filepath.EvalSymlinks(filepath.Join(at.dir, command))
		if err != nil || !isWithin(at.within, real) || isShim(command, real) || !isNative(real) {
			continue
		}
		return &Toolchain{Language: command, Manager: at.manager, Version: "installed", Dir: real, Bin: filepath.Dir(real),
			single: real}
	}
	return nil
}

// isShim reports whether a program would choose another program by the name under which it is called.
func isShim(command, real string) bool {
	base := filepath.Base(real)
	return filepath.Base(filepath.Dir(real)) == "shims" || base != command &&
		slices.Contains([]string{"rustup", "mise", "asdf", "fnm", "volta", "volta-shim", "proto-shim"}, base)
}

// isNative reports whether a file is an executable in ELF or Mach-O format.
func isNative(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [4]byte
	if _, err := f.Read(head[:]); err != nil {
		return false
	}
	return slices.Contains([]string{"\x7fELF", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe"}, string(head[:]))
}

// Check refuses a toolchain that a call could write, or a user other than the person and root. writes are the directories
// that the present call can write.
func (f *Finder) Check(t Toolchain, writes []string) error {
	if f.Writable != nil {
		writes = slices.Concat(writes, f.Writable())
	}
	for _, w := range writes {
		if real, err := filepath.EvalSymlinks(w); err == nil {
			w = real
		}
		if isWithin(w, t.Dir) || isWithin(t.Dir, w) {
			return refuseToolchain("calls", w, t, "name a workspace that does not contain it, or install it elsewhere")
		}
	}
	loose, err := f.looseIn(t.Dir)
	switch {
	case err != nil:
		return bailey.Unavailable.Wrap(err, t.Dir+" cannot be examined, so the toolchain "+t.Name()+" is not used",
			"make it readable, or install it again")
	case loose != "":
		return refuseToolchain("other users", loose, t, "run chmod go-w on it and make it yours, or install the toolchain again")
	}
	return nil
}

func refuseToolchain(who, path string, t Toolchain, cure string) error {
	return bailey.Denied.Errorf(cure,
		"%s can write %s and so change programs of the toolchain %s, which is therefore not used", who, path, t.Name())
}

// looseIn returns a path with which a user other than the person and root could change the files in dir, or "".
func (f *Finder) looseIn(dir string) (string, error) {
	f.mu.Lock()
	v, known := f.checked[dir]
	f.mu.Unlock()
	if known && time.Since(v.at) < verdictAge {
		return v.loose, v.err
	}
	v = verdict{at: time.Now()}
	if v.loose, v.err = looseAbove(dir, f.Home); v.loose == "" && v.err == nil {
		v.loose, v.err = looseBelow(dir, f.Home)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.checked == nil || len(f.checked) > 256 {
		f.checked = map[string]verdict{}
	}
	f.checked[dir] = v
	return v.loose, v.err
}

// maxFiles limits the files of one version that are examined.
const maxFiles = 400_000

// looseBelow examines the files in dir, and dir itself.
func looseBelow(dir, home string) (loose string, err error) {
	owners, n := ownersOf(home), 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if n++; n > maxFiles {
			return fmt.Errorf("it has more than %d files", maxFiles)
		}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			return nil
		case d.IsDir() && path == filepath.Join(dir, "share/doc"): // half of the files of Rust
			return fs.SkipDir
		}
		info, err := d.Info()
		if err == nil && owners.othersCanWrite(info) {
			loose, err = path, fs.SkipAll
		}
		return err
	})
	return loose, err
}

// looseAbove examines the directories above dir. In a sticky directory, such as /tmp, only the owner of an entry can
// replace it.
func looseAbove(dir, home string) (string, error) {
	owners := ownersOf(home)
	for p := filepath.Dir(dir); ; p = filepath.Dir(p) {
		info, err := os.Lstat(p)
		if err != nil {
			return "", err
		}
		if owners.othersCanWrite(info) && (info.Mode()&fs.ModeSticky == 0 || !owners.ownsFile(info)) {
			return p, nil
		}
		if p == filepath.Dir(p) {
			return "", nil
		}
	}
}

// isWithin reports whether path is dir or lies in it. Both must be clean.
func isWithin(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// managerRoot returns the directory of a manager: what a variable names, if that lies in the home, otherwise a directory below the
// home. An agent can set variables of a gateway that it starts, but that lets it choose only among the person's files.
func (f *Finder) managerRoot(variable, usual string) string {
	dir := filepath.Join(f.Home, usual)
	if variable == "" || f.Getenv == nil {
		return dir
	}
	if named := f.Getenv(variable); filepath.IsAbs(named) {
		if real, err := filepath.EvalSymlinks(named); err == nil && isWithin(f.Home, real) && real != f.Home {
			return real
		}
	}
	return dir
}

// readSmall reads a file that names a version. It must be small, regular, and no symbolic link, which could lead to a
// file that nobody meant to be read.
func readSmall(path string) (string, error) {
	text, err := safefile.Read(path, maxChoice)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return string(text), nil
	}
	return "", bailey.Invalid.Wrap(err, path+" cannot be read for the version that it selects",
		fmt.Sprintf("it must be a regular file of at most %d bytes; remove it if the project needs no certain version", maxChoice))
}

// maxChoice limits, in bytes, a file that selects a version. A go.mod can be long.
const maxChoice = 256 << 10
