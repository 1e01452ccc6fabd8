package ledger

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// stampOf reads a file's stamp; that of a file that is not there is zero. When it was created stands for which file it is.
func stampOf(path string) (stamp, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return stamp{}, nil
	}
	if err != nil {
		return stamp{}, err
	}
	s := stamp{size: info.Size(), modified: info.ModTime().UnixNano()}
	if data, ok := info.Sys().(*syscall.Win32FileAttributeData); ok {
		s.changed = data.CreationTime.Nanoseconds()
	}
	return s, nil
}
