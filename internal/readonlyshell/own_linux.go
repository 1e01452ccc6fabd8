package readonlyshell

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"bailey"
	"bailey/internal/readonly"
	"bailey/internal/safefile"
)

// openOwn returns the commands of the operator that a request permits: none without a digest.
func (s shell) openOwn(r Request) (readonly.Own, error) {
	if r.Own == "" {
		return readonly.Own{}, nil
	}
	own, err := readOwn(s.commands)
	if err == nil && own.Digest != r.Own {
		err = errors.New("it is not the file that the gateway has")
		if own.Digest == "" {
			err = errors.New("it does not exist")
		}
	}
	if err != nil {
		return readonly.Own{}, bailey.Denied.Wrapf(err, "an operator prepares the host again: bailey source prepare HOST",
			"the commands of the operator in %s do not match the certificate", s.commands)
	}
	return own, nil
}

// readOwn reads a file of commands. If it does not exist, the result is the zero value.
func readOwn(file string) (readonly.Own, error) {
	data, err := safefile.Read(file, readonly.MaxOwnFile)
	if err != nil || data == nil {
		return readonly.Own{}, err
	}
	for _, name := range []string{file, filepath.Dir(file)} {
		if err := checkRootOnly(name); err != nil {
			return readonly.Own{}, err
		}
	}
	return readonly.ParseOwn(data)
}

// checkRootOnly returns an error if a user other than root can change a file or a directory.
func checkRootOnly(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 || info.Mode()&fs.ModeSymlink == 0 && info.Mode().Perm()&0o22 != 0 {
		return bailey.Denied.Errorf("make it root's, without write access for others", "users other than root can change %s", name)
	}
	return nil
}

// checkOwnProgram checks the program of a command that an operator added: no user but root can replace it, and it is
// none that must not be added under another name. A program that is missing is left to the shell that runs the line.
func checkOwnProgram(program string) error {
	file, err := resolveRootOnly(program)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := readonly.CheckProgram(file); err != nil {
		return bailey.Denied.Wrapf(err, "remove it from source-commands.json", "%s is another program", program)
	}
	return nil
}

const maxSymlinks = 40 // as in the kernel

// resolveRootOnly resolves the symlinks of an absolute path. Users other than root must be able to change none of them,
// and no directory on the way.
func resolveRootOnly(name string) (string, error) {
	at, rest := "/", strings.Split(name, "/")
	for links := 0; len(rest) > 0; {
		if err := checkRootOnly(at); err != nil {
			return "", err
		}
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return "", bailey.Unavailable.Wrapf(err, "install the program on this host", "the program %s cannot be found", name)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		target, err := os.Readlink(next)
		if links++; err == nil && links > maxSymlinks {
			err = syscall.ELOOP
		}
		if err != nil {
			return "", bailey.Unavailable.Wrapf(err, "correct its links", "the program %s cannot be found", name)
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, checkRootOnly(at)
}
