//go:build linux

package wrap

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"bailey"
)

// moveFile moves the file at path in a project to the same path in dir. A symbolic link is moved, not its target. All
// operations use directory descriptors, because another agent may still work in the project and replace a directory
// with a link. If dir is on another file system, the file is renamed in place first, so that no program acts on it, and
// then copied.
func moveFile(project, path, dir string) error {
	from, closed, err := descendInto(project, filepath.Dir(path), enterDir)
	if err != nil {
		return err
	}
	defer closed()
	to, closed, err := descendInto(dir, filepath.Dir(path), make700)
	if err != nil {
		return err
	}
	defer closed()
	name := filepath.Base(path)
	if err = renameBetween(from, to, name); !errors.Is(err, syscall.EXDEV) {
		return err
	}
	aside := "quarantined-" + newID()
	if err := from.Rename(name, aside); err != nil {
		return err
	}
	if err := copyTree(from, aside, to, name); err != nil {
		return err
	}
	return from.RemoveAll(aside)
}

// descendInto opens a directory level by level, so that no path is too long. A link cannot lead out of the directory that
// contains it.
func descendInto(top, path string,
	into func(*os.Root, string) (*os.Root, func(), error)) (at *os.Root, closed func(), err error) {
	if at, err = os.OpenRoot(top); err != nil {
		return nil, nil, err
	}
	first := at
	back := []func(){func() { first.Close() }}
	closed = func() {
		for _, f := range slices.Backward(back) {
			f()
		}
	}
	for _, name := range strings.Split(filepath.ToSlash(path), "/") {
		if name == "." {
			continue
		}
		sub, done, err := into(at, name)
		if err != nil {
			closed()
			return nil, nil, err
		}
		at, back = sub, append(back, done)
	}
	return at, closed, nil
}

func make700(at *os.Root, name string) (*os.Root, func(), error) {
	if err := at.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, nil, err
	}
	sub, err := at.OpenRoot(name)
	return sub, func() { sub.Close() }, err
}

func renameBetween(from, to *os.Root, name string) error {
	f, err := from.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := to.Open(".")
	if err != nil {
		return err
	}
	defer t.Close()
	return syscall.Renameat(int(f.Fd()), name, int(t.Fd()), name)
}

// copyTree copies files, directories and links. Any other file, such as a pipe, has no content to keep.
func copyTree(from *os.Root, name string, to *os.Root, as string) error {
	info, err := from.Lstat(name)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		target, err := from.Readlink(name)
		if err != nil {
			return err
		}
		return to.Symlink(target, as)
	case mode.IsRegular():
		return copyFile(from, name, to, as, mode.Perm())
	case mode.IsDir():
		in, _, err := enterDir(from, name) // it keeps the permissions, so that it can be removed
		if err != nil {
			return err
		}
		defer in.Close()
		out, closed, err := make700(to, as)
		if err != nil {
			return err
		}
		defer closed()
		d, err := in.Open(".")
		if err != nil {
			return err
		}
		list, err := d.ReadDir(-1)
		d.Close()
		for _, e := range list {
			err = errors.Join(err, copyTree(in, e.Name(), out, e.Name()))
		}
		return err
	}
	return nil
}

func copyFile(from *os.Root, name string, to *os.Root, as string, mode fs.FileMode) error {
	if mode&0o400 == 0 {
		from.Chmod(name, mode|0o400)
	}
	in, err := from.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := to.OpenFile(as, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode&0o700|0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// removeTree removes a tree, even if directories lost their permissions or are nested deeper than the limit of
// descriptors. It moves nested directories up until none is left below another.
func removeTree(path string) error {
	if err := os.RemoveAll(path); err == nil {
		return nil
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	for more := true; more; {
		list, err := listDir(root)
		if err != nil {
			return err
		}
		more = false
		for _, e := range list {
			if !e.IsDir() {
				if err := root.Remove(e.Name()); err != nil {
					return err
				}
				continue
			}
			sub, _, err := enterDir(root, e.Name())
			if err != nil {
				return err
			}
			below, err := listDir(sub)
			for _, b := range below {
				if !b.IsDir() {
					err = errors.Join(err, sub.Remove(b.Name()))
					continue
				}
				root.Chmod(e.Name()+"/"+b.Name(), 0o700) // a directory must be writable to be moved (rename(2))
				err = errors.Join(err, root.Rename(e.Name()+"/"+b.Name(), newID()))
				more = true
			}
			sub.Close()
			if err = errors.Join(err, root.Remove(e.Name())); err != nil {
				return err
			}
		}
	}
	return os.Remove(path)
}

func listDir(at *os.Root) ([]fs.DirEntry, error) {
	d, err := at.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

// Furnish creates the files in a home that do not exist. It does not change existing files and links, unless .tmp is
// not a directory.
func Furnish(home string, files map[string]string) error {
	root, err := os.OpenRoot(home)
	if err != nil {
		return err
	}
	defer root.Close()
	if info, err := root.Lstat(".tmp"); err == nil && !info.IsDir() {
		root.Remove(".tmp")
	}
	if err := root.MkdirAll(".tmp", 0o700); err != nil {
		return furnishError(home, ".tmp", err)
	}
	for name, text := range files {
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return furnishError(home, name, err)
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return furnishError(home, name, err)
		}
		_, err = f.WriteString(text)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func furnishError(home, name string, err error) error {
	return bailey.Conflict.Wrapf(err, "remove the file in its place, or leave out --keep-home",
		"cannot create %s in the agent's home %s", name, home)
}
