package owned

import "golang.org/x/sys/unix"

// renameNew renames within a directory. It fails if name exists (renameatx_np(2)).
func renameNew(dir int, old, name string) error {
	return unix.RenameatxNp(dir, old, dir, name, unix.RENAME_EXCL)
}
