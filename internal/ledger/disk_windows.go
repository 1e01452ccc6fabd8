package ledger

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Sync also flushes the drive's cache (FlushFileBuffers).
func (s segment) Sync() error { return s.File.Sync() }

// Reserve sets the allocation and does not change the length (FILE_ALLOCATION_INFO). When the file is closed, Windows
// releases the allocation beyond the length. An allocation below the length would cut the file.
func (s segment) Reserve(off, n int64) error {
	info, err := s.Stat()
	if err != nil {
		return err
	}
	allocation := max(off+n, info.Size())
	err = windows.SetFileInformationByHandle(windows.Handle(s.Fd()), windows.FileAllocationInfo,
		(*byte)(unsafe.Pointer(&allocation)), uint32(unsafe.Sizeof(allocation)))
	if errors.Is(err, windows.ERROR_DISK_FULL) {
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	}
	return err
}

// freeBytes returns the number of bytes available to this user in dir.
func freeBytes(dir string) (n uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &n, nil, nil)
	return n, err
}

// Durability returns a sentence that says why synced data in dir may still be lost. It returns "" if a sync is as
// durable as the disk itself.
func Durability(dir string) (string, error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return "", fmt.Errorf("cannot identify the volume of %q: %w", dir, err)
	}
	if _, err := windows.GetFileAttributes(name); err != nil {
		return "", fmt.Errorf("cannot identify the volume of %s: %w", dir, err)
	}
	var volume [windows.MAX_LONG_PATH]uint16
	if err := windows.GetVolumePathName(name, &volume[0], uint32(len(volume))); err != nil {
		return "", fmt.Errorf("cannot identify the volume of %s: %w", dir, err)
	}
	switch windows.GetDriveType(&volume[0]) {
	case windows.DRIVE_FIXED:
		return "", nil
	case windows.DRIVE_REMOTE:
		return "the ledger is on a network drive: its durability depends on the server", nil
	case windows.DRIVE_RAMDISK:
		return "the ledger is on a disk in memory: a restart of the machine loses it", nil
	}
	return "the ledger is on a removable drive, or on one of unknown type", nil
}
