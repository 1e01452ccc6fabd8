//go:build linux || darwin

package safefile

import (
	"errors"
	"os"
	"syscall"
)

// Flags for opening a path that may have become a pipe or a symlink meanwhile (open(2)).
const (
	NoWait   = syscall.O_NONBLOCK
	NoFollow = syscall.O_NOFOLLOW
)

// fileOwner returns a file's owner and group.
func fileOwner(info os.FileInfo) (uid, gid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(st.Uid), int(st.Gid), true
}

// Wide reports whether the mode of a file gives group or others any access.
func Wide(info os.FileInfo) bool { return info.Mode().Perm()&0o077 != 0 }

// Writable reports whether the mode of a file lets group or others write it.
func Writable(info os.FileInfo) bool { return info.Mode().Perm()&0o022 != 0 }

// syncDir makes the names in a directory durable (fsync(2)).
func syncDir(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
