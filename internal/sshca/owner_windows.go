package sshca

import (
	"io/fs"
	"os"

	"bailey"
)

const openFlags = 0

// platformFault returns the error of each operation on key files, because the modes of this system do not show whether
// other users can read a file.
func platformFault() error {
	return bailey.Unavailable.New("key files are not supported on Windows",
		"Keep the credentials in memory, and the key of the authority on Linux or macOS.")
}

func ownerOf(fs.FileInfo) (uid int, ok bool) { return 0, false }
func lockFile(*os.File) error                { return platformFault() }
