package safefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bailey"
)

// Put replaces the file name, a path below the directory dir, as [Replace] does. The directories between them are
// created durably if they do not exist. first may be nil.
func Put(dir, name string, content []byte, perm fs.FileMode, first func() error) error {
	root, err := os.OpenRoot(dir)
	for name = filepath.ToSlash(name); err == nil; {
		below, rest, ok := strings.Cut(name, "/")
		if !ok {
			defer root.Close()
			return Replace(root, name, content, perm, first)
		}
		name = rest
		root, err = openBelow(root, below)
	}
	return bailey.Unavailable.Wrapf(err, writeHint, "cannot write %s in %s", name, dir)
}

const writeHint = "check the directory's mode and the disk's space"

// openBelow opens a directory in root, and closes root.
func openBelow(root *os.Root, name string) (*os.Root, error) {
	defer root.Close()
	switch err := root.Mkdir(name, 0o700); {
	case err == nil:
		if err = syncDir(root); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	return root.OpenRoot(name)
}

// Replace atomically replaces the file name in root: it writes a temporary file beside it, syncs it and renames it.
// first, if set, must record the change. It is called just before the rename; if it fails, the file stays unchanged. The
// new file has mode perm and the owner of the old file.
func Replace(root *os.Root, name string, content []byte, perm fs.FileMode, first func() error) error {
	temp := "." + name + "." + string(bailey.NewSessionID())
	err := writeTemp(root, temp, name, content, perm)
	if err != nil {
		root.Remove(temp)
		return bailey.Unavailable.Wrapf(err, writeHint, "cannot write %s in %s", name, root.Name())
	}
	if first != nil {
		err = first()
	}
	if err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		root.Remove(temp)
		return err
	}
	return syncDir(root)
}

func writeTemp(root *os.Root, temp, name string, content []byte, perm fs.FileMode) error {
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, giveTo(root, f, name), f.Chmod(perm), f.Sync(), f.Close())
}

// giveTo gives f the owner of the file called name. Root may edit any user's file and must not change its owner. Other
// users cannot set the owner and get an error.
func giveTo(root *os.Root, f *os.File, name string) error {
	old, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	now, err2 := f.Stat()
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if uid, gid, ok := fileOwner(old); ok {
		if u, g, _ := fileOwner(now); u != uid || g != gid {
			return f.Chown(uid, gid)
		}
	}
	return nil
}

// Create writes a new file durably. If a file or a symlink of that name exists, the error is [fs.ErrExist]; after any
// other error nothing remains.
func Create(name string, content []byte, perm fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|NoFollow, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(name)
	}
	return err
}
