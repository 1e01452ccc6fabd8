package ledger

import (
	"fmt"

	"golang.org/x/sys/unix"

	"bailey/internal/ledger/owned"
)

func (s segment) Sync() error {
	return owned.RetryEINTR(func() error { return unix.Fdatasync(int(s.Fd())) })
}

// Reserve also checks the limit on file sizes. fallocate does not check it if it keeps the length (measured on Linux
// 6.18, ext4), and the write would then fail.
func (s segment) Reserve(off, n int64) error {
	if err := tooLarge(off + n); err != nil {
		return err
	}
	return owned.RetryEINTR(func() error { return unix.Fallocate(int(s.Fd()), unix.FALLOC_FL_KEEP_SIZE, off, n) })
}

// volatileFileSystems lists file systems, by their magic (statfs(2)), on which synced data may still be lost, and the reason.
var volatileFileSystems = map[int64]string{
	unix.TMPFS_MAGIC:           "tmpfs keeps the ledger in memory: a restart of the machine loses it",
	unix.RAMFS_MAGIC:           "ramfs keeps the ledger in memory: a restart of the machine loses it",
	unix.OVERLAYFS_SUPER_MAGIC: "the ledger is on an overlay, as in a container: it is lost with the container, and a volatile overlay syncs nothing",
	unix.NFS_SUPER_MAGIC:       "the ledger is on NFS: its durability depends on the server (the async export option loses synced data)",
	unix.SMB_SUPER_MAGIC:       "the ledger is on SMB: its durability depends on the server",
	unix.SMB2_SUPER_MAGIC:      "the ledger is on SMB: its durability depends on the server",
	unix.CIFS_SUPER_MAGIC:      "the ledger is on SMB: its durability depends on the server",
	unix.V9FS_MAGIC:            "the ledger is on 9p, a file system of the machine's host: its durability depends on the host",
	unix.FUSE_SUPER_MAGIC:      "the ledger is on FUSE: its durability depends on a program in user space",
}

// Durability returns a sentence that says why synced data in dir may still be lost. It returns "" if a sync is as
// durable as the disk itself.
func Durability(dir string) (string, error) {
	var st unix.Statfs_t
	if err := owned.RetryEINTR(func() error { return unix.Statfs(dir, &st) }); err != nil {
		return "", fmt.Errorf("cannot identify the file system of %s: %w", dir, err)
	}
	return volatileFileSystems[int64(st.Type)], nil
}
