package socketproxy

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"bailey"
)

// socket is a daemon's socket, held by a descriptor, because its path may later lead to another socket.
type socket struct {
	*os.File
	path string
}

// opath is O_PATH (open(2)), the same on amd64 and arm64.
const opath = 0x200000

// isTrustedUID reports whether a daemon of this user is trusted: root, or the user of this process.
func isTrustedUID(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// openSocket resolves the path once: /var/run is a link on most machines.
func openSocket(api bailey.API) (*socket, error) {
	hint := "start it, or set the path of its socket in settings.yaml: network: {sockets: {" + api.Socket + ": /path}}"
	path, err := filepath.EvalSymlinks(api.Path)
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err, hint, "%s has no socket at %s", api.Socket, api.Path)
	}
	fd, err := syscall.Open(path, opath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, bailey.Unavailable.Wrapf(err, hint, "%s's socket %s cannot be opened", api.Socket, path)
	}
	s := &socket{os.NewFile(uintptr(fd), path), path}
	var st syscall.Stat_t
	if err = syscall.Fstat(fd, &st); err == nil && st.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		err = bailey.Denied.New(path+" is not a socket", hint)
	} else if err == nil && !isTrustedUID(st.Uid) {
		err = bailey.Denied.Errorf(hint, "the socket %s belongs to uid %d, not to root or you", path, st.Uid)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// dialTrusted connects to the socket that was opened. The listening process must belong to root or to this user.
func (s *socket) dialTrusted(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", s.Fd()))
	if err != nil {
		return nil, bailey.Unavailable.Wrap(err, "no process listens at "+s.path,
			"start the daemon, or join the group that may use it")
	}
	var who *syscall.Ucred
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { who, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED) })
	}
	if err != nil || who == nil || !isTrustedUID(who.Uid) {
		c.Close()
		return nil, bailey.Denied.Wrap(err, "the process that listens at "+s.path+" belongs neither to root nor to you",
			"find out who created that socket")
	}
	return c, nil
}
