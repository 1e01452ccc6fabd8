//go:build linux || darwin

package index

import "golang.org/x/sys/unix"

// stampOf returns the stamp of a file. If the file does not exist, the stamp is zero.
func stampOf(path string) (fileStamp, error) {
	var st unix.Stat_t
	switch err := unix.Lstat(path, &st); err {
	case nil:
		return fileStamp{uint64(st.Dev), st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano()}, nil
	case unix.ENOENT:
		return fileStamp{}, nil
	default:
		return fileStamp{}, err
	}
}
