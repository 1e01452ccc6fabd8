//go:build linux || darwin

package sshca

import (
	"io/fs"
	"os"
	"syscall"
)

// openFlags are added when a file is opened for reading: a link is not followed, and a pipe does not block.
const openFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_CLOEXEC

// keepsModes tells whether the modes of this system show which other users can read a file.
var keepsModes = true

// ownerOf returns the uid of a file's owner.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// lockFile waits for an exclusive lock on an open directory. The lock ends when f is closed, or with the process.
func lockFile(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}
