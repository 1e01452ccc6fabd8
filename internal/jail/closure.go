//go:build linux

package jail

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
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
	return bailey.Unavailable.Wrap(err, path+" needs "+name+", which is not where its loader searches",
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

// An object holds the parts of a program or library that the kernel and the dynamic loader read.
type object struct {
	real    string   // canonical path
	line    []string // words of a script's first line; then only real is set besides
	class   elf.Class
	machine elf.Machine
	interp  string   // PT_INTERP, "" for a static program
	needed  []string // DT_NEEDED
	rpath   []string // DT_RPATH; empty if runpath is set
	runpath []string // DT_RUNPATH
}

// readObject reads an ELF file without executing it, which ldd might do.
func readObject(r io.ReaderAt) (object, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return object{}, err
	}
	o := object{class: f.Class, machine: f.Machine}
	dynamic := false
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_INTERP:
			text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err != nil {
				return object{}, err
			}
			o.interp, _, _ = strings.Cut(string(text), "\x00")
		case elf.PT_DYNAMIC:
			dynamic = true
		}
	}
	if !dynamic {
		return o, nil
	}
	if f.SectionByType(elf.SHT_DYNAMIC) == nil {
		return object{}, errors.New("it has no section table to read its libraries from")
	}
	for tag, list := range map[elf.DynTag]*[]string{elf.DT_NEEDED: &o.needed, elf.DT_RPATH: &o.rpath,
		elf.DT_RUNPATH: &o.runpath} {
		if *list, err = f.DynString(tag); err != nil {
			return object{}, err
		}
	}
	o.rpath, o.runpath = splitPath(o.rpath), splitPath(o.runpath)
	if len(o.runpath) > 0 {
		o.rpath = nil // ld.so(8): DT_RUNPATH overrides DT_RPATH
	}
	return o, nil
}

func splitPath(lists []string) []string {
	var dirs []string
	for _, l := range lists {
		dirs = append(dirs, strings.Split(l, ":")...)
	}
	return dirs
}

// expandTokens replaces the loader's tokens: $ORIGIN with the object's directory, $LIB with each directory that distributions
// use for it. If the result is not absolute, it is left out: the loader would look for it in the working directory,
// which belongs to the caller.
func expandTokens(dirs []string, origin string) []string {
	var out []string
	for _, d := range dirs {
		d = strings.NewReplacer("${ORIGIN}", origin, "$ORIGIN", origin, "${LIB}", "$LIB").Replace(d)
		for _, lib := range []string{"lib/" + multiarchDir(), "lib64", "lib"} {
			if e := strings.ReplaceAll(d, "$LIB", lib); strings.HasPrefix(e, "/") {
				out = append(out, e)
			}
			if !strings.Contains(d, "$LIB") {
				break
			}
		}
	}
	return out
}

// multiarchDir returns the directory name that Debian gives this architecture's libraries.
func multiarchDir() string {
	if runtime.GOARCH == "arm64" {
		return "aarch64-linux-gnu"
	}
	return "x86_64-linux-gnu"
}

// loaderDirs returns the directories that the loader named interp searches by default (ld.so(8); musl's ldso reads
// /etc/ld-musl-ARCH.path instead).
func loaderDirs(interp string) []string {
	base := filepath.Base(interp)
	if strings.HasPrefix(base, muslPrefix) {
		if text, err := os.ReadFile(muslPath(base)); err == nil {
			return strings.FieldsFunc(string(text), func(r rune) bool { return r == ':' || r == '\n' })
		}
		return []string{"/lib", "/usr/local/lib", "/usr/lib"}
	}
	dirs := confDirs("/etc/ld.so.conf", 0)
	return append(dirs, "/lib/"+multiarchDir(), "/usr/lib/"+multiarchDir(), "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

const muslPrefix = "ld-musl-"

// muslPath returns the file with the search path of the musl loader with this base name.
func muslPath(base string) string {
	return "/etc/" + strings.TrimSuffix(base, filepath.Ext(base)) + ".path"
}

// loaderData returns the files that the loader itself reads, if they exist.
func loaderData(base string) []toolFile {
	path := "/etc/ld.so.cache"
	if strings.HasPrefix(base, muslPrefix) {
		path = muslPath(base)
	}
	id, err := statIdent(path)
	if err != nil {
		return nil
	}
	return []toolFile{{path: path, id: id}}
}

// confDirs returns the directories of ld.so.conf and of the files that it includes, at most eight deep (ldconfig(8)).
func confDirs(path string, depth int) []string {
	text, err := os.ReadFile(path)
	if err != nil || depth > 8 {
		return nil
	}
	var dirs []string
	for _, l := range parseConf(text) {
		if !l.include {
			dirs = append(dirs, l.text)
			continue
		}
		pattern := l.text
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		files, _ := filepath.Glob(pattern) // sorted; as with ldconfig, a bad pattern matches nothing
		for _, f := range files {
			dirs = append(dirs, confDirs(f, depth+1)...)
		}
	}
	return dirs
}

type confLine struct {
	include bool
	text    string
}

// parseConf returns the absolute directories and the includes of one file, in order.
func parseConf(text []byte) []confLine {
	var lines []confLine
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		l, _, _ := strings.Cut(s.Text(), "#")
		f := strings.Fields(l)
		switch {
		case len(f) >= 2 && f[0] == "include":
			for _, pattern := range f[1:] {
				lines = append(lines, confLine{true, pattern})
			}
		case len(f) == 1 && filepath.IsAbs(f[0]):
			lines = append(lines, confLine{false, filepath.Clean(f[0])})
		}
	}
	return lines
}

// maxLoaded limits the shared objects of a directory together with their dependencies: each is a mount of the cage.
const maxLoaded = 256

// addToolLibs adds the shared objects that the tool loads while it runs, for example Python's extension modules, with their
// dependencies. Declared data is noexec, so no loader could map code from it (mmap(2), EPERM). Landlock prevents the
// execution of these objects.
func (r *run) addToolLibs(l *layout, job bailey.Job, t *tool) error {
	for _, dir := range job.Libs {
		loaded, err := r.jail.tools.librariesIn(dir, t)
		if err != nil {
			return err
		}
		if err := r.pinTool(job, loaded); err != nil {
			return err
		}
		l.addTool(loaded, false)
	}
	return nil
}

// librariesIn returns the shared objects in dir that fit the program, from the cache while nothing has changed. If the
// directory does not exist, it returns none.
func (t *tools) librariesIn(dir string, by *tool) (*tool, error) {
	key := dir + "\x00" + by.elf.interp
	t.mu.Lock()
	known := t.known[key]
	t.mu.Unlock()
	if known != nil && known.isUnchanged() {
		return known, nil
	}
	fresh, err := t.gatherLibs(dir, by.elf)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known[key] = fresh // by is known, so the map exists
	return fresh, nil
}

func (t *tools) gatherLibs(dir string, by object) (*tool, error) {
	made := &tool{}
	real, links, err := resolveLinks(filepath.Clean(dir))
	if os.IsNotExist(err) {
		return made, nil
	}
	var id ident
	var entries []os.DirEntry
	if err == nil {
		id, err = statIdent(real)
	}
	if err == nil {
		entries, err = os.ReadDir(real)
	}
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "the libraries in "+dir+" cannot be shown to the tool",
			"name the directory that contains them in the manifest")
	}
	made.dirs, made.links = []toolFile{{path: real, id: id}}, links
	all := t.newWalk(by.interp)
	for _, e := range entries {
		path := filepath.Join(real, e.Name())
		if !strings.HasSuffix(path, ".so") && !strings.Contains(path, ".so.") || !isLoadable(path, by) {
			continue
		}
		if err := t.gatherOne(all, path, by); err != nil {
			return nil, err
		}
		if len(all.files) > maxLoaded {
			return nil, bailey.Unavailable.Errorf("name a directory with fewer libraries in the manifest",
				"there are more libraries in %s than the %d that a jail can have", dir, maxLoaded)
		}
	}
	made.files, made.links = all.files, append(made.links, all.links...)
	return made, nil
}

// gatherOne adds a shared object with its dependencies. If one of those is not installed, the object is left out, since
// it could not be loaded outside either.
func (t *tools) gatherOne(all *walk, path string, by object) error {
	w := t.newWalk(by.interp)
	o, err := w.visitFile(path, library)
	if err == nil {
		err = w.addLibraries(path, o.real, o, by.rpath)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return unfitProgram(path, err)
	}
	for _, f := range w.files {
		if !all.seen[f.path] {
			all.addFile(f, nil)
		}
	}
	for _, k := range w.links {
		if !all.seen[k.path] {
			all.seen[k.path], all.links = true, append(all.links, k)
		}
	}
	return nil
}
