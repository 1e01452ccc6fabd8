//go:build linux

package jail

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"bailey"
)

// searchPath is PATH, outside when a command is looked up and inside for the tool. Never the caller's.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// A tool is a program with all that it needs to start: its interpreter, its libraries, and the
// symlinks through which they are found. It is immutable.
type tool struct {
	path   string // as it is executed
	real   string // where that leads
	digest string // SHA-256 of real, hex
	files  []toolFile
	data   []toolFile // what the loader reads
	links  []link
}

// A toolFile is bound at its canonical path, executable.
type toolFile struct {
	path string
	id   ident
}

// tools finds programs and remembers them for as long as nothing of them has changed.
type tools struct {
	trust trust
	mu    sync.Mutex
	known map[string]*tool // by path
}

// find resolves a command over searchPath, or takes an absolute path as it is.
func (t *tools) find(command string) (*tool, error) {
	if filepath.IsAbs(command) {
		return t.at(filepath.Clean(command))
	}
	if command == "" || strings.Contains(command, "/") {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("command %q is neither a name nor an absolute path", command),
			Hint: "name the program in the manifest as git or /usr/bin/git"}
	}
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, command)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return t.at(path)
		}
	}
	return nil, &bailey.Error{Kind: bailey.Unavailable, Message: command + " is not installed",
		Hint: "install it into one of " + searchPath}
}

// at returns the tool at an absolute path, from memory while every file and link is as it was.
func (t *tools) at(path string) (*tool, error) {
	t.mu.Lock()
	known := t.known[path]
	t.mu.Unlock()
	if known != nil && known.unchanged() {
		return known, nil
	}
	fresh, err := t.examine(path)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[string]*tool{}
	}
	t.known[path] = fresh
	return fresh, nil
}

func (t *tool) unchanged() bool {
	for _, l := range t.links {
		if now, err := os.Readlink(l.path); err != nil || now != l.target {
			return false
		}
	}
	for _, f := range append(t.files[:len(t.files):len(t.files)], t.data...) {
		if now, err := statIdent(f.path); err != nil || now != f.id {
			return false
		}
	}
	return true
}

// examine builds a tool from its file.
func (t *tools) examine(path string) (*tool, error) {
	w := walk{trust: t.trust, seen: map[string]bool{}}
	o, err := w.visit(path)
	var known *bailey.Error
	switch {
	case errors.As(err, &known):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: path + " is not installed", Err: err}
	case err != nil:
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: path + " cannot be run in a cage", Err: err,
			Hint: "a cage runs ELF programs that everybody may read"}
	}
	made := &tool{path: path, real: w.files[0].path, digest: w.digest}
	if o.interp != "" {
		if _, err := w.visit(o.interp); err != nil {
			return nil, missing(path, o.interp, err)
		}
	}
	w.dirs = loaderDirs(o.interp)
	w.loader = filepath.Base(o.interp)
	if err := w.libraries(path, made.real, o, nil); err != nil {
		return nil, err
	}
	made.files, made.links = w.files, w.links
	if o.interp != "" {
		made.data = loaderData(w.loader)
	}
	return made, nil
}

// walk collects what a program loads.
type walk struct {
	trust  trust
	seen   map[string]bool // canonical files and symlinks
	files  []toolFile
	links  []link
	dirs   []string // the loader's own
	loader string   // base name of the interpreter: a library by this name is loaded already
	digest string   // of the first file visited
}

// visit adds the file at path with the symlinks that lead to it, and reads it. What it reads is the
// descriptor it identifies.
func (w *walk) visit(path string) (object, error) {
	real, links, err := trace(path)
	if err != nil {
		return object{}, err
	}
	f, err := openProgram(real)
	if err != nil {
		return object{}, err
	}
	defer f.Close()
	id, err := fileIdent(f)
	if err != nil {
		return object{}, err
	}
	if err := w.trust.guarded(real); err != nil {
		return object{}, err
	}
	if len(w.files) == 0 {
		if w.digest, err = hash(f); err != nil {
			return object{}, err
		}
	}
	o, err := parse(f, real)
	if err != nil || w.seen[real] {
		return o, err
	}
	w.seen[real] = true
	w.files = append(w.files, toolFile{real, id})
	for _, l := range links {
		if !w.seen[l.path] {
			w.seen[l.path] = true
			w.links = append(w.links, l)
		}
	}
	return o, nil
}

// libraries adds what o, found at path, needs, and what that needs. inherited are the RPATHs of those
// who loaded it.
func (w *walk) libraries(path, real string, o object, inherited []string) error {
	rpath := append(expand(o.rpath, filepath.Dir(real)), inherited...)
	dirs := append(expand(o.runpath, filepath.Dir(real)), w.dirs...)
	if len(o.runpath) == 0 {
		dirs = append(append([]string(nil), rpath...), dirs...)
	}
	for _, name := range o.needed {
		if name == w.loader || strings.HasPrefix(name, "libc.musl-") && strings.HasPrefix(w.loader, "ld-musl-") {
			continue
		}
		if err := w.library(path, name, o, dirs, rpath); err != nil {
			return err
		}
	}
	return nil
}

// library adds the first file called name that fits o.
func (w *walk) library(path, name string, o object, dirs, rpath []string) error {
	candidates := []string{name}
	if !strings.Contains(name, "/") {
		candidates = candidates[:0]
		for _, d := range dirs {
			candidates = append(candidates, filepath.Join(d, name))
		}
	}
	for _, c := range candidates {
		real, _, err := trace(c)
		if err != nil || !filepath.IsAbs(c) || !fits(real, o) {
			continue
		}
		known := w.seen[real]
		lib, err := w.visit(c)
		if err != nil {
			return missing(path, c, err)
		}
		if known {
			return nil
		}
		return w.libraries(c, real, lib, rpath)
	}
	return missing(path, name, fs.ErrNotExist)
}

// fits tells whether the loader of o would take the file: it passes over those of another machine.
func fits(path string, o object) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == o.class && f.Machine == o.machine && f.Type == elf.ET_DYN
}

func missing(path, name string, err error) error {
	var known *bailey.Error
	if errors.As(err, &known) {
		return err
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: path + " needs " + name + ", which is not where its loader looks",
		Hint: "install the library, or name its directory in /etc/ld.so.conf", Err: err}
}

// openProgram opens a regular file, without waiting for a FIFO's other end.
func openProgram(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func fileIdent(f *os.File) (ident, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return ident{}, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ident{}, fmt.Errorf("%s is not a regular file", f.Name())
	}
	return identOf(&st), nil
}

func hash(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// parse reads an ELF file and says of a script that it is one.
func parse(f *os.File, path string) (object, error) {
	var head [2]byte
	if _, err := f.ReadAt(head[:], 0); err == nil && string(head[:]) == "#!" {
		return object{}, &bailey.Error{Kind: bailey.Unavailable, Message: path + " is a script, and a cage runs ELF programs only",
			Hint: "name the interpreter as the manifest's command and the script as its argument"}
	}
	o, err := readObject(f)
	if err != nil {
		return object{}, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}
