//go:build linux

package jail

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"bailey"
)

// A tool is a program with everything that it needs to start: its interpreters, its libraries, and the symlinks through
// which they are found. It is immutable.
type tool struct {
	// the executed file, then the arguments before those of the caller: if it is a script, first its interpreter
	run   []string
	files []toolFile // the program itself first
	data  []toolFile // files that the loader reads
	links []link
	dirs  []toolFile // searched directories of host libraries: files added there are noticed
	elf   object     // the file that the kernel loads in the end
	env   string     // the env(1) of a first line: needed in a cage where the kernel follows that line
}

// use is the purpose of a file for a tool.
type use uint8

const (
	library use = iota
	loader      // the ELF interpreter
	script      // read by its interpreter
	executable
)

// A toolFile is shown at its canonical path.
type toolFile struct {
	path   string
	id     ident
	use    use
	digest string // SHA-256, hex; "" for a library that only root can write
	copied bool   // users other than root could write it: the cage gets a copy of the hashed content
}

// pinnedFiles returns the files whose digests a receipt lists: executed files, and every file that users other than root
// could write.
func (t *tool) pinnedFiles() []toolFile {
	return slices.DeleteFunc(slices.Clone(t.files), func(f toolFile) bool { return f.digest == "" })
}

// tools finds programs and caches them until one of their files changes.
type tools struct {
	trust  trust
	copies copies
	mu     sync.Mutex
	known  map[string]*tool // by path
}

// findTool resolves a command over searchPath; it takes an absolute path as it is.
func (t *tools) findTool(command string) (*tool, error) { return t.findIn(command, searchPath) }

// findIn is find with another search path, which also holds for the interpreters that env(1) would look up.
func (t *tools) findIn(command, dirs string) (*tool, error) {
	path, err := lookUpCommand(command, dirs)
	if err != nil {
		return nil, err
	}
	return t.toolAt(path, dirs)
}

// toolAt returns the tool at an absolute path, cached as long as every file and link is unchanged.
func (t *tools) toolAt(path, dirs string) (*tool, error) {
	key := path
	if dirs != searchPath {
		key += "\x00" + dirs
	}
	t.mu.Lock()
	known := t.known[key]
	t.mu.Unlock()
	if known != nil && known.isUnchanged() {
		return known, nil
	}
	fresh, err := t.examineTool(path, dirs)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[string]*tool{}
	}
	t.known[key] = fresh
	return fresh, nil
}

func (t *tool) isUnchanged() bool {
	for _, l := range t.links {
		if now, err := os.Readlink(l.path); err != nil || now != l.target {
			return false
		}
	}
	for _, f := range slices.Concat(t.files, t.data, t.dirs) {
		if now, err := statIdent(f.path); err != nil || now != f.id {
			return false
		}
	}
	return true
}

// examineTool builds a tool from its file.
func (t *tools) examineTool(path, dirs string) (*tool, error) {
	w := t.newWalk("")
	made := &tool{run: []string{path}}
	o, err := made.followScripts(w, dirs)
	if err != nil {
		return nil, unfitProgram(made.run[0], err)
	}
	path = made.run[0]
	if o.interp != "" {
		if _, err := w.visitFile(o.interp, loader); err != nil {
			return nil, missingLibrary(path, o.interp, err)
		}
	}
	w.setLoader(o.interp)
	if err := w.addLibraries(path, o.real, o, nil); err != nil {
		return nil, err
	}
	made.files, made.links, made.elf = w.files, w.links, o
	if o.interp != "" {
		made.data = loaderData(w.loader)
	}
	return made, nil
}

// newWalk starts a walk over the files that this interpreter loads.
func (t *tools) newWalk(interp string) *walk {
	w := &walk{trust: t.trust, copies: &t.copies, seen: map[string]bool{}}
	if interp != "" {
		w.setLoader(interp)
	}
	return w
}

func (w *walk) setLoader(interp string) { w.dirs, w.loader = loaderDirs(interp), filepath.Base(interp) }

// followScripts visits the program and, while that is a script, its interpreter. It leaves in run the arguments that execve(2)
// would produce, and returns the ELF file at the end.
func (t *tool) followScripts(w *walk, dirs string) (object, error) {
	for range maxScripts + 1 {
		o, err := w.visitFile(t.run[0], executable)
		if err != nil || o.line == nil {
			return o, err
		}
		words, env, err := resolveShebang(t.run[0], o.line, dirs)
		if err != nil {
			return o, err
		}
		if env != "" {
			t.env = env
		}
		t.run = append(words, t.run...)
	}
	return object{}, bailey.Unavailable.New(t.run[len(t.run)-1]+" is a script whose interpreter is also a script",
		"use a program as the interpreter")
}

// resolveShebang returns the absolute path that a first line leads to, and its arguments. If the line starts env(1), leads
// itself looks up the program that env would look up on the tool's PATH, and also returns the path of env.
func resolveShebang(path string, line []string, dirs string) (words []string, env string, err error) {
	no := func(why string) error {
		return bailey.Unavailable.Errorf("begin it with #! and the interpreter's absolute path, or with #!/usr/bin/env NAME, or env -S and plain words",
			"the first line of the script %s %s", path, why)
	}
	name := line[0]
	switch {
	case strings.ContainsFunc(strings.Join(line, " "), func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return nil, "", no("contains a control character; lines must end in a newline only, not in a carriage return")
	case !filepath.IsAbs(name) || filepath.Clean(name) != name:
		return nil, "", no(fmt.Sprintf("names %q, which is not a plain absolute path", name))
	case name != "/usr/bin/env" && name != "/bin/env":
		return line, "", nil
	case len(line) == 1:
		return nil, "", no("names env without a program")
	}
	words, ok := envWords(line[1])
	if !ok {
		return nil, "", no(fmt.Sprintf("gives env %q, but only a name, or -S and plain words, is supported", line[1]))
	}
	if words[0], err = lookUpCommand(words[0], dirs); err != nil {
		return nil, "", bailey.KindOf(err).Wrap(err, "the interpreter of "+path+" is missing", bailey.HintOf(err))
	}
	return words, name, nil
}

// unfitProgram adds kind and hint to an error about the program's own file.
func unfitProgram(path string, err error) error {
	var known *bailey.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return bailey.Unavailable.Wrap(err, path+" does not exist",
			"install it, or name another program, in the manifest or in the script's first line")
	}
	return bailey.Unavailable.Wrap(err, path+" cannot be run in a jail",
		"use an ELF program, or a script that begins with #!; it must be executable (chmod +x) and readable by the gateway")
}

// lineBytes is how much of a file the kernel reads to determine its format (BINPRM_BUF_SIZE, linux/binfmts.h).
const lineBytes = 256

// maxScripts is how many first lines one start may follow: those of a script and of four levels of interpreters that
// are scripts themselves (execve(2)).
const maxScripts = 5

// parseShebang reads the first line of a script as execve(2) does: the interpreter, then at most one argument, which may be
// empty and may contain blanks. head is the beginning of the file. The line ends at a newline or a NUL. If neither
// comes in time, the argument is cut short, but a name never is: such a file is not a script.
func parseShebang(head []byte) (words []string, ok bool) {
	if !bytes.HasPrefix(head, []byte("#!")) {
		return nil, false
	}
	var buf [lineBytes]byte // if the file is shorter, the rest is NUL
	copy(buf[:], head)
	line := buf[2 : lineBytes-1]
	if end := bytes.IndexAny(buf[:], "\n\x00"); end >= 0 && buf[end] == '\n' {
		line = buf[2:end]
	} else if !bytes.ContainsAny(bytes.TrimLeft(buf[2:], " \t"), " \t\x00") {
		return nil, false
	}
	line = bytes.TrimLeft(bytes.TrimRight(line, " \t"), " \t")
	if len(line) == 0 {
		return nil, false
	}
	name, rest := line, []byte(nil)
	if i := bytes.IndexAny(line, " \t\x00"); i >= 0 {
		name, rest = line[:i], line[i:]
	}
	words = []string{string(name)}
	if len(rest) > 0 && rest[0] != 0 {
		arg, _, _ := bytes.Cut(bytes.TrimLeft(rest, " \t"), []byte{0})
		words = append(words, string(arg))
	}
	return words, true
}

// envWords returns the words that env(1) makes of the one argument that it gets from a first line: a name to look up,
// or, after -S, words to split. The syntax of -S has options, variables, quotes and escapes; only plain words are
// accepted.
func envWords(arg string) (words []string, ok bool) {
	if rest, split := strings.CutPrefix(arg, "-S"); split && strings.TrimLeft(rest, " \t") != rest {
		words = strings.FieldsFunc(rest, func(c rune) bool { return c == ' ' || c == '\t' })
	} else {
		words = []string{arg}
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "-") || strings.Contains(words[0], "=") {
		return nil, false
	}
	for _, w := range words {
		if w == "" || strings.ContainsFunc(w, notPlain) {
			return nil, false
		}
	}
	return words, true
}

func notPlain(c rune) bool {
	letter := 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9'
	return !letter && !strings.ContainsRune("_./+:,@%=-", c)
}
