//go:build linux

package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

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
	run  bool // executed: the program itself and its interpreter, not what they load
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
	w.files[0].run = true
	made := &tool{path: path, real: w.files[0].path, digest: w.digest}
	if o.interp != "" {
		if _, err := w.visit(o.interp); err != nil {
			return nil, missing(path, o.interp, err)
		}
		w.files[len(w.files)-1].run = true
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
