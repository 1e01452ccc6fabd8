package ledger

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Durability returns a sentence that says why synced data in dir may still be lost. It returns "" if a sync is as
// durable as the disk itself. A disk in memory looks like any other.
func Durability(dir string) (string, error) {
	var st unix.Statfs_t
	if err := retryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return "", fmt.Errorf("asking for the file system of %s: %w", dir, err)
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return "the ledger lies on " + unix.ByteSliceToString(st.Fstypename[:]) +
			", which is not a disk of this machine: how durable it is, the server decides", nil
	}
	return "", nil
}
