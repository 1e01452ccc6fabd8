package owned

import "golang.org/x/sys/unix"

// renameNew renames within a directory. It fails if name exists (renameat2(2)).
func renameNew(dir int, old, name string) error {
	return unix.Renameat2(dir, old, dir, name, unix.RENAME_NOREPLACE)
}
