package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"

	"bailey"
)

// sunPath is the size of a path in sockaddr_un, including the final NUL (afunix.h).
const sunPath = 108

// socketAddress returns a name that fits a sockaddr. On Windows the directory must also belong to our user: a socket does not
// report its peer's user, so only the directory's access list protects it. The client depends on it as much as the
// listener.
func socketAddress(path string) (addr string, release func(), err error) {
	if len(path) >= sunPath {
		return "", nil, bailey.Invalid.Errorf("set BAILEY_HOME to a shorter path",
			"the socket's path %s is over the %d bytes of a socket address", path, sunPath-1)
	}
	if err := Owned(filepath.Dir(path)); err != nil {
		return "", nil, err
	}
	return path, func() {}, nil
}

// peerPID is SIO_AF_UNIX_GETPEERPID (afunix.h).
const peerPID = 0x58000100

// peerCredentials returns the PID of the peer and our own uid. On Windows that uid is -1 for every user, because sockets
// report none. See address.
func peerCredentials(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var far, n uint32
	cerr := raw.Control(func(fd uintptr) {
		err = windows.WSAIoctl(windows.Handle(fd), peerPID, nil, 0, (*byte)(unsafe.Pointer(&far)),
			uint32(unsafe.Sizeof(far)), &n, nil, 0)
	})
	if cerr != nil || err != nil {
		return 0, 0, fmt.Errorf("cannot identify the process at the other end of the socket: %v %v", cerr, err)
	}
	return os.Geteuid(), int(far), nil
}

// restrictToOwner does nothing: a socket inherits the access list of its directory.
func restrictToOwner(string) error { return nil }

// sendAll writes all of b.
func sendAll(c *net.UnixConn, b []byte) error {
	_, err := c.Write(b)
	return err
}

// errNoPeerUID says why no other user can be a peer: on Windows a socket does not report its peer's uid.
var errNoPeerUID error = &bailey.Error{Kind: bailey.Unavailable,
	Message: "cannot identify the other end of a socket on Windows", Hint: "use Linux or macOS for this"}

// ListenFor returns errNameless.
func ListenFor(string, func(uid int) bool) (*Listener, error) { return nil, errNoPeerUID }

// DialUID returns errNameless.
func DialUID(string, int) (*Conn, error) { return nil, errNoPeerUID }

// Owned returns an error if another user could change or read dir. Modes mean nothing on Windows, so it checks the
// owner and the access list. They may name only the user, the system and the administrators; the latter two reach
// everything anyway.
func Owned(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return bailey.Denied.New(dir+" is not a directory", "move it away")
	}
	sd, err := windows.GetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	var me *windows.Tokenuser
	if err == nil {
		me, err = windows.GetCurrentProcessToken().GetTokenUser()
	}
	if err != nil {
		return bailey.Unavailable.Wrap(err, "whose "+dir+" is cannot be determined",
			"set BAILEY_HOME to a directory that you own on NTFS")
	}
	if owner, _, err := sd.Owner(); err != nil || owner == nil || !isTrustedSID(owner, me.User.Sid) {
		return bailey.Denied.Wrap(err, dir+" belongs to another user",
			"set BAILEY_HOME to a directory that you own")
	}
	list, _, err := sd.DACL()
	if err == nil {
		err = checkACL(list, me.User.Sid)
	}
	if err != nil {
		return bailey.Denied.Wrap(err, dir+": other users could access it",
			fmt.Sprintf(`icacls "%s" /inheritance:r /grant:r "%%USERNAME%%:(OI)(CI)F"`, dir))
	}
	return nil
}

// isTrustedSID reports whether sid may be named: the user, the system or the administrators.
func isTrustedSID(sid, me *windows.SID) bool {
	return sid.Equals(me) || sid.IsWellKnown(windows.WinLocalSystemSid) ||
		sid.IsWellKnown(windows.WinBuiltinAdministratorsSid)
}

// checkACL returns an error if the access list admits an account that trusted rejects. A missing list admits everyone.
func checkACL(list *windows.ACL, me *windows.SID) error {
	if list == nil {
		return errors.New("it has no access list")
	}
	for i := range uint32(list.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(list, i, &ace); err != nil {
			return err
		}
		switch ace.Header.AceType {
		case windows.ACCESS_DENIED_ACE_TYPE:
			continue
		case windows.ACCESS_ALLOWED_ACE_TYPE:
		default: // object and callback entries have another layout
			return fmt.Errorf("entry %d of its access list has the unknown type %d", i,
				ace.Header.AceType)
		}
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart))
		// CREATOR OWNER applies only to objects made inside, and represents their creator.
		if !isTrustedSID(sid, me) && !sid.IsWellKnown(windows.WinCreatorOwnerSid) {
			return fmt.Errorf("its access list names %s", sid)
		}
	}
	return nil
}
