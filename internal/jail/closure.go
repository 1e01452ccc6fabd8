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

	"golang.org/x/sys/unix"

	"bailey"
)

// walk collects the files that a program loads.
type walk struct {
	trust  trust
	copies *copies
	seen   map[string]bool // canonical paths of files and symlinks
	files  []toolFile
	links  []link
	dirs   []string // search directories of the loader
	loader string   // base name of the interpreter: a library by this name is loaded already
}

// visitFile adds the file at path with the symlinks that lead to it, and parses it. It identifies, hashes and parses the
// same descriptor.
func (w *walk) visitFile(path string, as use) (object, error) {
	real, links, err := resolveLinks(path)
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
	o, err := parseProgram(f, real, as)
	o.real = real
	if err != nil || w.seen[real] {
		return o, err
	}
	if o.line != nil {
		as = script
	}
	file := toolFile{path: real, id: id, use: as}
	if err := w.setDigest(&file, f); err != nil {
		return object{}, err
	}
	w.addFile(file, links)
	return o, nil
}

// setDigest sets the digest of a file that is executed or copied. A library that only root can write is pinned by its
// identity instead.
func (w *walk) setDigest(file *toolFile, f *os.File) error {
	loose, err := w.trust.untrustedPart(file.path)
	switch {
	case err != nil:
		return err
	case loose != "":
		file.copied = true
		c, err := w.copies.acquireCopy(file.path, file.id)
		if err != nil {
			return err
		}
		file.digest = c.digest
		w.copies.releaseCopy(c)
	case file.use != library:
		file.digest, err = hashFile(f)
	}
	return err
}

func (w *walk) addFile(file toolFile, links []link) {
	w.seen[file.path] = true
	w.files = append(w.files, file)
	for _, l := range links {
		if !w.seen[l.path] {
			w.seen[l.path] = true
			w.links = append(w.links, l)
		}
	}
}

// addLibraries adds the libraries that o, found at path, needs, and those that they need. inherited holds the RPATHs of
// the objects that loaded o.
func (w *walk) addLibraries(path, real string, o object, inherited []string) error {
	rpath := append(expandTokens(o.rpath, filepath.Dir(real)), inherited...)
	dirs := append(expandTokens(o.runpath, filepath.Dir(real)), w.dirs...)
	if len(o.runpath) == 0 {
		dirs = append(append([]string(nil), rpath...), dirs...)
	}
	for _, name := range o.needed {
		if name == w.loader || strings.HasPrefix(name, "libc.musl-") && strings.HasPrefix(w.loader, "ld-musl-") {
			continue
		}
		if err := w.addLibrary(path, name, o, dirs, rpath); err != nil {
			return err
		}
	}
	return nil
}

// addLibrary adds the first file called name that fits o, with its libraries.
func (w *walk) addLibrary(path, name string, o object, dirs, rpath []string) error {
	// a name with a slash is a path, which may begin with $ORIGIN (ld.so(8))
	candidates := expandTokens([]string{name}, filepath.Dir(o.real))
	if !strings.Contains(name, "/") {
		candidates = nil
		for _, d := range dirs {
			candidates = append(candidates, filepath.Join(d, name))
		}
	}
	for _, c := range candidates {
		real, _, err := resolveLinks(c)
		if err != nil || !filepath.IsAbs(c) || !isLoadable(real, o) {
			continue
		}
		known := w.seen[real]
		lib, err := w.visitFile(c, library)
		if err != nil {
			return missingLibrary(path, c, err)
		}
		if known {
			return nil
		}
		return w.addLibraries(c, lib.real, lib, rpath)
	}
	return missingLibrary(path, name, fs.ErrNotExist)
}

// isLoadable reports whether the loader of o would accept the file: it skips files of another machine.
func isLoadable(path string, o object) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	return f.Class == o.class && f.Machine == o.machine && f.Type == elf.ET_DYN
}

func missingLibrary(path, name string, err error) error {
	var known *bailey.Error
	if errors.As(err, &known) {
		return err
	}
	return bailey.Unavailable.Wrap(err, path+" needs "+name+", which is not where its loader looks",
		"install the library, or name its directory in /etc/ld.so.conf")
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

func hashFile(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// parseProgram reads an ELF file or, if the program is a script, its first line.
func parseProgram(f *os.File, path string, as use) (object, error) {
	if as == executable {
		if info, err := f.Stat(); err != nil || info.Mode()&0o111 == 0 {
			return object{}, errors.Join(err, fmt.Errorf("%s is not marked as executable", path))
		}
		var head [lineBytes]byte
		n, err := f.ReadAt(head[:], 0)
		if err != nil && err != io.EOF {
			return object{}, err
		}
		if words, ok := parseShebang(head[:n]); ok {
			return object{line: words}, nil
		}
	}
	o, err := readObject(f)
	if err != nil {
		return object{}, fmt.Errorf("%s: %w", path, err)
	}
	return o, nil
}
