//go:build linux

package wrap

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// move takes what is at path in a project into dir, where it has the same path. A symbolic link is moved as what it is. On
// another file system it is copied: first it gets another name where it is, so that nothing acts on it meanwhile.
func move(project, path, dir string) error {
	from, to := filepath.Join(project, filepath.FromSlash(path)), filepath.Join(dir, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	parent := filepath.Dir(from)
	if info, err := os.Lstat(parent); err == nil && info.Mode().Perm()&0o300 != 0o300 && os.Chmod(parent, info.Mode().Perm()|0o700) == nil {
		defer os.Chmod(parent, info.Mode().Perm())
	}
	err := os.Rename(from, to)
	if !errors.Is(err, syscall.EXDEV) {
		return err
	}
	aside := filepath.Join(parent, "quarantined-"+newID())
	if err := os.Rename(from, aside); err != nil {
		return err
	}
	if err := copied(aside, to); err != nil {
		return err
	}
	return discard(aside)
}

// copied copies files, directories and links; what else there is has nothing to keep.
func copied(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case mode.IsRegular():
		return copyFile(from, to, mode.Perm())
	case mode.IsDir():
		if err := os.Mkdir(to, 0o700); err != nil {
			return err
		}
		os.Chmod(from, 0o700)
		list, err := os.ReadDir(from)
		for _, e := range list {
			err = errors.Join(err, copied(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
		}
		return err
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	os.Chmod(from, mode|0o400)
	in, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode&0o700|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// discard removes a tree, directories too that lost their rights.
func discard(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			os.Chmod(p, 0o700) // before it is read: WalkDir comes with the error again otherwise
		}
		return nil
	})
	return os.RemoveAll(path)
}

// Furnish makes files in a home, each where there is none. What an agent left there, links too, stays as it is.
func Furnish(home string, files map[string]string) error {
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(".tmp", 0o700); err != nil {
		return err
	}
	for name, text := range files {
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
