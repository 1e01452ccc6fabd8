package safefile

import (
	"os"
)

const NoWait, NoFollow = 0, 0

// fileOwner returns no owner. A file that replaces another gets the access list of its directory, as the old file did.
func fileOwner(os.FileInfo) (uid, gid int, ok bool) { return 0, 0, false }

// Wide returns false: modes mean nothing on Windows. The access list of the home is checked as a whole (package peer).
func Wide(os.FileInfo) bool { return false }

// Writable returns false, as Wide does.
func Writable(os.FileInfo) bool { return false }

// syncDir does nothing: Windows cannot flush a directory, and the rename is in the NTFS journal.
func syncDir(*os.Root) error { return nil }
