package readonlyshell

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"bailey"
	"bailey/internal/readonly"
)

// binDirs lists the directories in which commands are looked up, in this order.
var binDirs = []string{"/usr/bin", "/bin", "/usr/sbin", "/sbin"}

// use describes needs of commands that their options do not tell.
var use = map[string]struct {
	programs []string // that the command executes
	unix     bool     // it talks to a daemon through a Unix socket
}{
	"dpkg":  {programs: []string{"dpkg-query"}},
	"apt":   {programs: []string{"dpkg"}},
	"zcat":  {programs: []string{"gzip"}},
	"bzcat": {programs: []string{"bzip2"}},

	"systemctl": {unix: true}, "loginctl": {unix: true}, "timedatectl": {unix: true}, "hostnamectl": {unix: true},
	"localectl": {unix: true}, "resolvectl": {unix: true}, "networkctl": {unix: true}, "systemd-analyze": {unix: true},
	"getent": {unix: true},
}

// findCommand returns the path of a command on this host, or "" if it is missing.
func findCommand(name string) string {
	for _, dir := range binDirs {
		if info, err := os.Stat(path.Join(dir, name)); err == nil && info.Mode().IsRegular() {
			return path.Join(dir, name)
		}
	}
	return ""
}

// programSet collects the files that a line may execute.
type programSet struct{ files []string }

// addCommands adds the programs of accepted commands. A command that is missing on this host is left out: then the shell
// reports it.
func (s *programSet) addCommands(commands []readonly.Command) (unix bool, err error) {
	for _, c := range commands {
		if c.Added {
			if err := checkOwnProgram(c.Path); err != nil {
				return false, err
			}
		}
		unix = unix || use[c.Name].unix
		paths := []string{c.Path}
		for _, name := range use[c.Name].programs {
			paths = append(paths, findCommand(name))
		}
		for _, p := range paths {
			if p == "" {
				continue // a builtin of the shell, or missing
			}
			if err := s.addProgram(p, 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return false, err
			}
		}
	}
	return unix, nil
}

// maxInterpreters bounds scripts whose interpreter is a script.
const maxInterpreters = 4

// addProgram adds a program, its dynamic linker or its interpreter. The file must be root's, and other users must not be
// able to write it.
func (s *programSet) addProgram(name string, depth int) error {
	file, err := filepath.EvalSymlinks(name)
	if err != nil {
		return bailey.Unavailable.Wrapf(err, "install the program on this host", "the program %s cannot be found", name)
	}
	if slices.Contains(s.files, file) {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return bailey.Unavailable.Wrapf(err, "check the mode of the file", "the program %s cannot be read", file)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || st.Uid != 0 ||
		info.Mode().Perm()&0o22 != 0 {
		return bailey.Denied.Errorf(
			"make it root's, with mode 0755",
			"the program %s is not a file that only root can write",
			file,
		)
	}
	s.files = append(s.files, file)
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return bailey.Unavailable.Wrapf(err, "install the program again", "the program %s cannot be read", file)
	}
	if line, ok := bytes.CutPrefix(head[:n], []byte("#!")); ok {
		return s.addInterpreter(file, line, depth)
	}
	return s.addLinker(f)
}

// addInterpreter adds the interpreter of a script.
func (s *programSet) addInterpreter(script string, line []byte, depth int) error {
	text, _, _ := strings.Cut(string(line), "\n")
	words := strings.Fields(text)
	if depth == maxInterpreters || len(words) == 0 {
		return bailey.Invalid.Errorf(
			"install the program again",
			"the script %s has no interpreter that can be found",
			script,
		)
	}
	if err := s.addProgram(words[0], depth+1); err != nil {
		return err
	}
	if path.Base(words[0]) == "env" && len(words) > 1 {
		if found := findCommand(words[1]); found != "" {
			return s.addProgram(found, depth+1)
		}
	}
	return nil
}

// addLinker adds the dynamic linker that an ELF file names.
func (s *programSet) addLinker(f *os.File) error {
	file, err := elf.NewFile(f)
	if err != nil {
		return bailey.Invalid.Wrapf(
			err,
			"install the program again",
			"%s is neither an ELF file nor a script",
			f.Name(),
		)
	}
	for _, p := range file.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz == 0 || p.Filesz > 4096 {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return bailey.Invalid.Wrapf(
				err,
				"install the program again",
				"the dynamic linker of %s cannot be read",
				f.Name(),
			)
		}
		return s.addProgram(strings.TrimRight(string(name), "\x00"), maxInterpreters)
	}
	return nil
}
