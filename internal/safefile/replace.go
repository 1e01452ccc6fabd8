package safefile

import (
	"errors"
	"io/fs"
	"os"

	"bailey"
)

// OpenDir opens the directory name in the directory parent. If it does not exist, it is created durably.
func OpenDir(parent, name string) (*os.Root, error) {
	home, err := os.OpenRoot(parent)
	if err != nil {
		return nil, err
	}
	defer home.Close()
	switch err = home.Mkdir(name, 0o700); {
	case err == nil:
		err = syncDir(home)
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return home.OpenRoot(name)
}

// Replace atomically replaces the file name in root: it writes a temporary file beside it, syncs it and renames it.
// first must record the change. It is called just before the rename; if it fails, the file stays unchanged. The new
// file has mode perm and the owner of the old file.
func Replace(root *os.Root, name string, content []byte, perm fs.FileMode, first func() error) error {
	temp := "." + name + "." + string(bailey.NewSessionID())
	err := writeTemp(root, temp, name, content, perm)
	if err != nil {
		root.Remove(temp)
		return bailey.Unavailable.Wrapf(err, "look at the directory's mode and the disk's space",
			"%s cannot be written in %s", name, root.Name())
	}
	if err = first(); err == nil {
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
