package owned

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// holder holds a directory as a root that no name leads out of.
//
// Modes have no meaning on Windows. The access list that the ledger inherits from the home decides which users can
// reach it, and the gateway has checked that list (package peer, Owned). The checks that remain for a file are its
// type, that it has one name, and that the name still leads to it.
type holder struct{ *os.Root }

func OpenUnchecked(path string) (*Dir, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errors.New("it is not a directory, or a link to one")
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Dir{holder: holder{root}, Path: path}, nil
}

// CheckFit returns an error if the directory must not hold a ledger, because it is not the one that its path names.
func (d *Dir) CheckFit() error {
	named, err := os.Lstat(d.Path)
	opened, err2 := d.Stat(".")
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if !named.IsDir() || !os.SameFile(named, opened) {
		return errors.New("it is a link, or was replaced")
	}
	return nil
}

// CheckSame checks that name still leads to f, and that f has the given size. It fails if f was, for example, moved,
// replaced, linked or changed.
func (d *Dir) CheckSame(f *os.File, name string, size int64) error {
	named, err := d.Lstat(name)
	if err != nil {
		return fmt.Errorf("%s was removed: %w", filepath.Join(d.Path, name), err)
	}
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if !named.Mode().IsRegular() || !os.SameFile(named, opened) {
		return fmt.Errorf("%s is now another file", filepath.Join(d.Path, name))
	}
	if opened.Size() != size {
		return fmt.Errorf("%s has %d bytes, but %d were written", filepath.Join(d.Path, name), opened.Size(), size)
	}
	return d.accept(name, oneName(f))
}

func oneName(f *os.File) error {
	var info windows.ByHandleFileInformation
	if err := windows.GetFileInformationByHandle(windows.Handle(f.Fd()), &info); err != nil {
		return err
	}
	if info.NumberOfLinks != 1 {
		return fmt.Errorf("it has %d names (hard links)", info.NumberOfLinks)
	}
	return nil
}

// OpenFit opens a file that may hold a ledger.
func (d *Dir) OpenFit(name string, flags int) (*os.File, error) {
	f, err := d.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, 2)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err == nil {
		err = d.CheckSame(f, name, size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// reopenDir opens the directory again.
func (d *Dir) reopenDir() (*os.File, error) { return d.Open(".") }

func (d *Dir) Remove(name string) error { return d.Root.Remove(name) }

// Rename durably renames temp to name, which must not exist yet. Windows does not flush directories, but it has a rename
// that returns when it is on the disk (MoveFileExW, MOVEFILE_WRITE_THROUGH).
func (d *Dir) Rename(temp, name string) error {
	from, err := windows.UTF16PtrFromString(filepath.Join(d.Path, temp))
	if err != nil {
		return err
	}
	to, err := windows.UTF16PtrFromString(filepath.Join(d.Path, name))
	if err != nil {
		return err
	}
	return windows.MoveFileEx(from, to, windows.MOVEFILE_WRITE_THROUGH)
}

// SyncDir does nothing. A new directory is in the journal of NTFS, and Windows offers no stronger guarantee.
func SyncDir(string) error { return nil }

// LockFile takes an exclusive lock on f or fails at once. A lock keeps other processes from reading the bytes that it
// covers (LockFileEx), so it covers a byte that no ledger reaches.
func LockFile(f *os.File) error {
	far := windows.Overlapped{OffsetHigh: 1 << 30}
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &far)
}
