// Package owned opens directories and files that only this user can reach: of their own, with no other name, and with a
// mode that gives no one else access. The ledger, its index and its keys are in such directories.
package owned

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"bailey"
)

// Dir is a directory, held open. Every name is looked up in it and never through a path, which an attacker could
// exchange. The platform-specific parts are in dir_unix.go and dir_windows.go.
type Dir struct {
	holder
	Path string
	// Accept, if set, is called for each file that is unfit, which is then read nevertheless. It is for copies, which
	// are never written.
	Accept func(name string, unfit error)
}

// MakeDir creates the directory and its missing parents, each with mode 0700 and on the disk.
func MakeDir(path string) error {
	err := os.Mkdir(path, 0o700)
	if errors.Is(err, os.ErrNotExist) && filepath.Dir(path) != path {
		if err = MakeDir(filepath.Dir(path)); err == nil {
			err = os.Mkdir(path, 0o700)
		}
	}
	if errors.Is(err, os.ErrExist) {
		return nil // opening it shows whether it is fit to use
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// OpenDir opens a directory. what names it in errors. hint is the remedy if other users can access it.
func OpenDir(path, what, hint string) (*Dir, error) {
	if path == "" {
		return nil, bailey.Invalid.New(what+" has no name", "")
	}
	path = filepath.Clean(path) // O_NOFOLLOW would follow the link in "link/"
	d, err := OpenUnchecked(path)
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err,
			"use a directory of its own, not a link, mode 0700, owned by this user", "cannot open %s %s", what, path)
	}
	if err := d.CheckFit(); err != nil {
		d.holder.Close()
		return nil, bailey.Unavailable.Wrapf(err, hint, "%s %s is refused", what, path)
	}
	return d, nil
}

// OpenRegular opens a regular file of the directory and checks it through its descriptor.
func (d *Dir) OpenRegular(name string, flags int) (*os.File, error) {
	f, err := d.OpenFit(name, flags)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if d.Accept != nil {
		return nil, bailey.Invalid.Wrap(err, filepath.Join(d.Path, name)+" cannot be read",
			"use a regular file that you can read, not a link, pipe or device: copy its bytes")
	}
	return nil, bailey.Unavailable.Wrapf(err,
		"find out who changed it and correct it: a ledger file must be regular, of mode 0600, owned by you, without other hard links", "%s is refused", filepath.Join(d.Path, name))
}

// List returns the directory's names, sorted.
func (d *Dir) List() ([]string, error) {
	f, err := d.reopenDir() // its own offset, so that readers do not disturb each other
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.Path, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", d.Path, err)
	}
	slices.Sort(names)
	return names, nil
}

// Create creates a file with content. It writes to temp first, so that name appears complete and durable or not at all.
func (d *Dir) Create(temp, name string, content io.Reader) error {
	if err := d.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s: %w", temp, err)
	}
	f, err := d.OpenRegular(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.Rename(temp, name)
	}
	if err != nil {
		d.Remove(temp) // it may have filled the disk
		return bailey.Unavailable.Wrapf(err, DiskRemedy(err), "cannot write %s", filepath.Join(d.Path, name))
	}
	return nil
}

// DiskRemedy returns the remedy for an error of the disk, such as a lack of space.
func DiskRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space, or raise the quota, for the ledger, then call again"
	case errors.Is(err, syscall.EFBIG):
		return "raise the limit on file sizes (ulimit -f) and stop the gateway (bailey gateway stop): the next call starts one"
	case errors.Is(err, syscall.EOPNOTSUPP), errors.Is(err, syscall.ENOSYS):
		return "the file system cannot reserve space: keep BAILEY_HOME on ext4, xfs, btrfs or tmpfs"
	case errors.Is(err, syscall.EROFS):
		return "check the kernel's log, mount the file system read-write and stop the gateway (bailey gateway stop): the next call starts one"
	}
	return "check the disk and the kernel's log, then stop the gateway (bailey gateway stop): the next call starts one that verifies the ledger and repairs its tail"
}

// accept returns unfit, or nil if Accept takes it.
func (d *Dir) accept(name string, unfit error) error {
	if unfit == nil || d.Accept == nil {
		return unfit
	}
	d.Accept(name, unfit)
	return nil
}
