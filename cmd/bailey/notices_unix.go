//go:build unix

package main

import "io/fs"

// openToOthers says whether a mode lets others than the owner read or write.
func openToOthers(mode fs.FileMode) bool { return mode.Perm()&0o077 != 0 }
