package ledger

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Durability says in a sentence why what is synced in dir may be lost all the same, and "" where a
// sync holds as far as the disk keeps its word. A disk in memory looks like any other.
func Durability(dir string) (string, error) {
	var st unix.Statfs_t
	if err := restart(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return "", fmt.Errorf("asking for the file system of %s: %w", dir, err)
	}
	if st.Flags&unix.MNT_LOCAL == 0 {
		return "the ledger lies on " + unix.ByteSliceToString(st.Fstypename[:]) + ", which is not a disk of this machine: how durable it is, the server decides", nil
	}
	return "", nil
}
