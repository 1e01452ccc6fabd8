package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"bailey"
)

// A bareProgram is the file that a bare run executes. It stays open so that it can be compared before the start.
type bareProgram struct {
	path   string // canonical
	digest string // SHA-256 of the file as it was opened, hex
	file   *os.File
	info   fs.FileInfo
}

// openCommand opens the program of a command, from PATH, which is never the caller's, or from an absolute path.
func (b *bare) openCommand(command string) (*bareProgram, error) {
	path, err := b.programPath(command)
	if err != nil {
		return nil, err
	}
	return openBare(path)
}

// programPath returns the path of the program that a command names.
func (b *bare) programPath(command string) (string, error) {
	if filepath.IsAbs(command) {
		return filepath.Clean(command), nil
	}
	if command == "" || command != filepath.Base(command) || command == "." || command == ".." {
		return "", bailey.Invalid.Errorf("name the program in the manifest as git or by its whole path",
			"command %q is neither a name nor an absolute path", command)
	}
	for _, dir := range filepath.SplitList(b.path) {
		name := filepath.Join(dir, command+programSuffix)
		if info, err := os.Stat(name); err == nil && bareRunnable(info) {
			return name, nil
		}
	}
	return "", bailey.Unavailable.New(command+" is not installed", "install it into one of "+b.path)
}

// openBare opens and hashes a program. A script is refused, because the program that would run is its interpreter.
func openBare(name string) (*bareProgram, error) {
	p, err := readBare(name)
	if err == nil {
		return p, nil
	}
	var known *bailey.Error
	switch {
	case errors.As(err, &known):
		return nil, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, bailey.Unavailable.Wrap(err, name+" is not installed", "")
	}
	return nil, bailey.Unavailable.Wrap(err, name+" cannot be run",
		"a call runs program files that everybody may read")
}

func readBare(name string) (p *bareProgram, err error) {
	p = &bareProgram{}
	if p.path, err = filepath.EvalSymlinks(name); err != nil {
		return nil, err
	}
	if p.info, err = os.Lstat(p.path); err != nil {
		return nil, err
	}
	if !bareRunnable(p.info) || !strings.HasSuffix(p.path, programSuffix) {
		return nil, errors.New("it is no program file")
	}
	if err := onlyAdministrators(p.path); err != nil {
		return nil, err
	}
	if p.file, err = os.Open(p.path); err != nil {
		return nil, err
	}
	if err := p.checkAndHash(); err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

func (p *bareProgram) checkAndHash() error {
	now, err := p.file.Stat()
	if err != nil {
		return err
	}
	if !bareAlike(p.info, now) {
		return errors.New("it changed while it was opened")
	}
	var head [2]byte
	if _, err := p.file.ReadAt(head[:], 0); err == nil && string(head[:]) == "#!" {
		return bailey.Unavailable.New(p.path+" is a script, and calls run programs only",
			"name the interpreter as the manifest's command and the script as its argument")
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(p.file, 0, now.Size())); err != nil {
		return err
	}
	p.digest = hex.EncodeToString(h.Sum(nil))
	return nil
}

// isUnchanged reports whether the path still names the file that was hashed.
func (p *bareProgram) isUnchanged() bool {
	now, err := os.Lstat(p.path)
	return err == nil && bareAlike(p.info, now)
}

func bareAlike(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// bareFixed lists variables that must not be set from outside: they say where the call runs.
var bareFixed = []string{"PATH", "HOME", "USER", "TMPDIR", "TMP", "TEMP"}

// bareEnv joins the constants and the declared variables. If a name is repeated, the last one holds.
func bareEnv(path string, declared []string) ([]string, error) {
	env := []string{"PATH=" + path, "USER=bailey", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC"}
	for _, v := range declared {
		name, err := bareName(v)
		if err != nil {
			return nil, err
		}
		env = append(bareWithout(env, name), v)
	}
	return env, nil
}

// bareLend adds the lent variables. A name that was not planned is an error.
func bareLend(env, planned, lent []string) ([]string, error) {
	env = slices.Clone(env)
	for _, v := range lent {
		name, err := bareName(v)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(planned, name) {
			return nil, bailey.Internal.New(name+" was lent but not planned", "")
		}
		env = append(bareWithout(env, name), v)
	}
	return env, nil
}

func bareWithout(env []string, name string) []string {
	return slices.DeleteFunc(env,
		func(v string) bool { n, _, _ := strings.Cut(v, "="); return strings.EqualFold(n, name) })
}

// bareName returns the name in NAME=value. Its errors never contain the value, which may be a secret. Fixed variables
// are compared without case, since on Windows case does not matter.
func bareName(v string) (string, error) {
	name, value, ok := strings.Cut(v, "=")
	plain := !strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	switch {
	case !ok || name == "" || !plain || '0' <= name[0] && name[0] <= '9':
		return "", bailey.Invalid.Errorf("write NAME=value; names are letters, digits and _, and do not begin with a digit",
			"%q is no environment name", name)
	case strings.Contains(value, "\x00"):
		return "", bailey.Invalid.New("the value of "+name+" holds a NUL", "")
	case slices.Contains(bareFixed, strings.ToUpper(name)):
		return "", bailey.Invalid.New(name+" is the call's own", "remove "+name+" from the manifest")
	}
	return name, nil
}
