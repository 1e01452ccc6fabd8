package index

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

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
