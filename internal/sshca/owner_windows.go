package sshca

import (
	"io/fs"
	"os"
)

const openFlags = 0

func ownerOf(fs.FileInfo) (uid int, ok bool) { return 0, false }
func lockFile(*os.File) error                { return platformFault() }
