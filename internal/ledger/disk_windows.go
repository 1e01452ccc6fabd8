package ledger

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// Sync empties the drive's cache too (FlushFileBuffers).
func (s segment) Sync() error { return s.File.Sync() }

// Reserve sets how much is allocated and leaves the length as it is (FILE_ALLOCATION_INFO). Windows gives back
// what is beyond the length when the file is closed. An allocation below the length would cut the file.
func (s segment) Reserve(off, n int64) error {
	info, err := s.Stat()
	if err != nil {
		return err
	}
	allocation := max(off+n, info.Size())
	err = windows.SetFileInformationByHandle(windows.Handle(s.Fd()), windows.FileAllocationInfo, (*byte)(unsafe.Pointer(&allocation)), uint32(unsafe.Sizeof(allocation)))
	if errors.Is(err, windows.ERROR_DISK_FULL) {
		return fmt.Errorf("%w: %w", syscall.ENOSPC, err)
	}
	return err
}

// free is how many bytes there are for this user in dir.
func free(dir string) (n uint64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	err = windows.GetDiskFreeSpaceEx(name, &n, nil, nil)
	return n, err
}
