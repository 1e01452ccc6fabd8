//go:build linux || darwin

package peer

import (
	"os"
	"path/filepath"
	"syscall"

	"bailey"
)

// ListenFor creates a socket at path that accepts each uid for which admit returns true. The kernel reports the uid;
// the mode of the socket does not matter. The directory must belong to our user and be writable only for it. Otherwise
// another user could replace the socket.
func ListenFor(path string, admit func(uid int) bool) (*Listener, error) {
	dir := filepath.Dir(path)
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "the socket's directory "+dir+" cannot be examined",
			"create it with mode 0755 or less")
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return nil, bailey.Denied.New("the socket's directory "+dir+" is not a directory", "move it away")
	case !ok || int(st.Uid) != os.Geteuid():
		return nil, bailey.Denied.New("the socket's directory "+dir+" belongs to another user",
			"name a directory that you own")
	case info.Mode().Perm()&0o022 != 0:
		return nil, bailey.Denied.Errorf("chmod 755 "+dir,
			"the socket's directory %s has mode %04o: other users could put their own socket there", dir, info.Mode().Perm())
	}
	return listenAdmitting(path, admit, func(path string) error { return os.Chmod(path, 0o666) })
}

// DialUID connects to the socket at path. It refuses a listener that runs under another uid.
func DialUID(path string, uid int) (*Conn, error) { return dialVerified(path, uid) }
