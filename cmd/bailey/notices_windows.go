package main

import "io/fs"

// openToOthers cannot be told from a mode here: the home's access list keeps others out.
func openToOthers(fs.FileMode) bool { return false }
