//go:build linux || darwin

package peer

import (
	"fmt"
	"os"
	"syscall"

	"bailey"
)

// Owned returns an error if dir belongs to another user or if its mode gives group or others any access.
func Owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return &bailey.Error{Kind: bailey.Denied, Message: dir + " is not a directory", Hint: "move it away"}
	case !ok || int(st.Uid) != os.Geteuid():
		return &bailey.Error{Kind: bailey.Denied, Message: dir + " belongs to somebody else", Hint: "set BAILEY_HOME to a directory of your own"}
	case info.Mode().Perm()&0o077 != 0:
		return &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("%s has mode %04o: others could reach in", dir, info.Mode().Perm()),
			Hint: "chmod 700 " + dir}
	}
	return nil
}

// restrictToOwner lets only the owner connect.
func restrictToOwner(path string) error { return os.Chmod(path, 0o600) }
