package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/windows"
)

// holder holds a directory as a root that no name leads out of.
//
// Modes have no meaning on Windows. The access list that the ledger inherits from the home decides which users can
// reach it, and the gateway has checked that list (package peer, Owned). The checks that remain for a file are its
// type, that it has one name, and that the name still leads to it.
type holder struct{ *os.Root }

func openUncheckedDir(path string) (*directory, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errors.New("it is no directory, or a link to one")
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &directory{holder: holder{root}, path: path}, nil
}

// checkFit returns an error if the directory must not hold a ledger, because it is not the one that its path names.
func (d *directory) checkFit() error {
	named, err := os.Lstat(d.path)
	opened, err2 := d.Stat(".")
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	if !named.IsDir() || !os.SameFile(named, opened) {
		return errors.New("it is a link, or was exchanged")
	}
	return nil
}

// checkSameFile checks that name still leads to f, and that f has the given size. It fails if f was, for example, moved,
// replaced, linked or changed.
func (d *directory) checkSameFile(f *os.File, name string, size int64) error {
	named, err := d.Lstat(name)
	if err != nil {
		return fmt.Errorf("%s is gone: %w", filepath.Join(d.path, name), err)
	}
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if !named.Mode().IsRegular() || !os.SameFile(named, opened) {
		return fmt.Errorf("%s is another file now", filepath.Join(d.path, name))
	}
	if opened.Size() != size {
		return fmt.Errorf("%s has %d bytes, of which %d are ours", filepath.Join(d.path, name), opened.Size(), size)
	}
	return d.allowUnfit(name, oneName(f))
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

// openFit opens a file that may hold a ledger.
func (d *directory) openFit(name string, flags int) (*os.File, error) {
	f, err := d.OpenFile(name, flags, 0o600)
	if err != nil {
		return nil, err
	}
	size, err := f.Seek(0, 2)
	if err == nil {
		_, err = f.Seek(0, 0)
	}
	if err == nil {
		err = d.checkSameFile(f, name, size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// reopenDir opens the directory again.
func (d *directory) reopenDir() (*os.File, error) { return d.Open(".") }

func (d *directory) removeFile(name string) error { return d.Root.Remove(name) }

// renameDurably durably renames temp to name, which must not exist yet. Windows does not flush directories, but it has a rename
// that returns when it is on the disk (MoveFileExW, MOVEFILE_WRITE_THROUGH).
func (d *directory) renameDurably(temp, name string) error {
	from, err := windows.UTF16PtrFromString(filepath.Join(d.path, temp))
	if err != nil {
		return err
	}
	to, err := windows.UTF16PtrFromString(filepath.Join(d.path, name))
	if err != nil {
		return err
	}
	return windows.MoveFileEx(from, to, windows.MOVEFILE_WRITE_THROUGH)
}

// syncDir does nothing. A new directory is in the journal of NTFS, and Windows offers no stronger guarantee.
func syncDir(string) error { return nil }

// lockWhole takes an exclusive lock on f or fails at once. A lock keeps other processes from reading the bytes that it
// covers (LockFileEx), so it covers a byte that no ledger reaches.
func lockWhole(f *os.File) error {
	far := windows.Overlapped{OffsetHigh: 1 << 30}
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &far)
}

// stampOf returns the stamp of a file. If the file does not exist, the stamp is zero. The creation time identifies the
// file.
func stampOf(path string) (fileStamp, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fileStamp{}, nil
	}
	if err != nil {
		return fileStamp{}, err
	}
	s := fileStamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if data, ok := info.Sys().(*syscall.Win32FileAttributeData); ok {
		s.changed = data.CreationTime.Nanoseconds()
	}
	return s, nil
}
