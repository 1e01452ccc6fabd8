//go:build linux || darwin

package peer

import (
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
		return bailey.Denied.New(dir+" is not a directory", "move it away")
	case !ok || int(st.Uid) != os.Geteuid():
		return bailey.Denied.New(dir+" belongs to another user", "set BAILEY_HOME to a directory that you own")
	case info.Mode().Perm()&0o077 != 0:
		return bailey.Denied.Errorf("chmod 700 "+dir,
			"%s has mode %04o: other users could access it", dir, info.Mode().Perm())
	}
	return nil
}

// restrictToOwner lets only the owner connect.
func restrictToOwner(path string) error { return os.Chmod(path, 0o600) }
