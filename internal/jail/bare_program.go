package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
	path, err := lookUpCommand(command, b.path)
	if err != nil {
		return nil, err
	}
	return openBare(path)
}

// lookUpCommand returns the path of the program that a command names: an absolute path, or a name to find in dirs.
func lookUpCommand(command, dirs string) (string, error) {
	if filepath.IsAbs(command) {
		return filepath.Clean(command), nil
	}
	if command == "" || command != filepath.Base(command) || command == "." || command == ".." {
		return "", bailey.Invalid.Errorf("name the program as git or by its whole path",
			"command %q is neither a name nor an absolute path", command)
	}
	for _, dir := range filepath.SplitList(dirs) {
		path := filepath.Join(dir, command+programSuffix)
		if info, err := os.Stat(path); err == nil && bareRunnable(info) {
			return path, nil
		}
	}
	return "", bailey.Unavailable.New(command+" is not installed", "install it into one of "+dirs)
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
		"make the program file readable by everyone")
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
		return nil, errors.New("it is not a program file")
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
		return bailey.Unavailable.New(p.path+" is a script, but calls run only programs",
			"name the interpreter as the manifest's command and the script as its argument")
	}
	p.digest, err = hashFile(p.file)
	return err
}

// hashFile returns the SHA-256 of a file, in hex.
func hashFile(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// isUnchanged reports whether the path still names the file that was hashed.
func (p *bareProgram) isUnchanged() bool {
	now, err := os.Lstat(p.path)
	return err == nil && bareAlike(p.info, now)
}

func bareAlike(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
