//go:build unix

package server

import (
	"io/fs"
)

// openToOthers reports whether the mode lets users other than the owner read, write or execute the file.
func openToOthers(mode fs.FileMode) bool { return mode.Perm()&0o077 != 0 }
