// Package peer implements framed connections over unix sockets with an authenticated peer. The kernel reports the uid
// of the listener and of the client (SO_PEERCRED, unix(7); LOCAL_PEERCRED on macOS). Windows does not. There, both ends
// must check the access list of the socket's directory and rely on it.
//
// A frame is one byte of kind, four bytes of length (big endian, at most [MaxFrame]) and the payload.
package peer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"bailey"
)

// MaxFrame is the maximum payload in bytes. A result with 1 MiB per stream fits, even if JSON escapes it.
const MaxFrame = 16 << 20

// Conn is a framed connection to a peer with a known uid. Only one goroutine may read; writes are locked.
type Conn struct {
	*net.UnixConn
	UID int // uid of the peer
	PID int // process of the peer when it connected
	mu  sync.Mutex
}

// Listen creates a socket with mode 0600 at path. The directory must belong to our user and have mode 0700. Listen
// replaces a socket without a listener. If it has a listener, the error is a Conflict.
func Listen(path string) (*Listener, error) {
	if err := Owned(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return listenAdmitting(path, func(uid int) bool { return uid == os.Geteuid() }, restrictToOwner)
}

func listenAdmitting(path string, admit func(uid int) bool, mode func(path string) error) (*Listener, error) {
	addr, release, err := socketAddress(path)
	if err != nil {
		return nil, err
	}
	defer release()
	if c, err := net.Dial("unix", addr); err == nil {
		c.Close()
		return nil, bailey.Conflict.New(path+" already has a listener", "")
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	l.SetUnlinkOnClose(false) // by then the path may be another gateway's
	if err := mode(path); err != nil {
		l.Close()
		return nil, err
	}
	return &Listener{l: l, admit: admit}, nil
}

// Listener accepts the peers that admit allows.
type Listener struct {
	l     *net.UnixListener
	admit func(uid int) bool
	// Refused, if set, is called for each peer that is not admitted.
	Refused func(uid, pid int)
}

// Accept returns the next connection from an admitted uid. Others are closed without an answer.
func (l *Listener) Accept() (*Conn, error) {
	for {
		c, err := l.l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, pid, err := peerCredentials(c)
		if err == nil && l.admit(uid) {
			return &Conn{UnixConn: c, UID: uid, PID: pid}, nil
		}
		c.Close()
		if err == nil && l.Refused != nil {
			l.Refused(uid, pid)
		}
	}
}

// Close stops listening. It does not remove the socket file.
func (l *Listener) Close() error { return l.l.Close() }

// Dial connects to the socket at path. It refuses a listener that runs under another uid.
func Dial(path string) (*Conn, error) { return dialVerified(path, os.Geteuid()) }

// Trusting connects to path and trusts any listener. Only root may be able to create the socket, for example inside the
// agent jail, where the listener's uid has no meaning.
func Trusting(path string) (*Conn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	return &Conn{UnixConn: c}, nil
}

func dialVerified(path string, want int) (*Conn, error) {
	addr, release, err := socketAddress(path)
	if err != nil {
		return nil, err
	}
	defer release()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: addr, Net: "unix"})
	if err != nil {
		return nil, err
	}
	uid, pid, err := peerCredentials(c)
	if err == nil && uid != want {
		whom := "you"
		if want != os.Geteuid() {
			whom = fmt.Sprintf("uid %d", want)
		}
		err = bailey.Denied.Errorf("remove the socket and find out who created it",
			"%s is served by uid %d, not by %s", path, uid, whom)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Conn{UnixConn: c, UID: uid, PID: pid}, nil
}

// WriteFrame sends one complete frame. Several goroutines may call it at once.
func (c *Conn) WriteFrame(kind byte, payload []byte) error {
	if len(payload) > MaxFrame {
		return bailey.Invalid.Errorf("", "a message has %d bytes, but may have at most %d", len(payload), MaxFrame)
	}
	head := make([]byte, 5, 5+len(payload))
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := append(head, payload...)
	defer clear(whole) // the payload may be a secret, so our copy must be erased
	return sendAll(c.UnixConn, whole)
}

// WriteJSON sends v as one frame.
func (c *Conn) WriteJSON(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.WriteFrame(kind, b)
}

// ReadFrame returns the next frame. The error is io.EOF if the peer closed the connection between two frames.
func (c *Conn) ReadFrame() (kind byte, payload []byte, err error) {
	return c.ReadFrameWithin(MaxFrame)
}

// ReadFrameWithin is ReadFrame for a payload of at most most bytes.
func (c *Conn) ReadFrameWithin(most uint32) (kind byte, payload []byte, err error) {
	return readFrame(c.UnixConn, most)
}

// readFrame allocates as bytes arrive, not as much as the header claims.
func readFrame(r io.Reader, most uint32) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > most {
		return 0, nil, bailey.Invalid.Errorf("", "a message has %d bytes, but may have at most %d", n, most)
	}
	payload, err = io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(payload) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return head[0], payload, err
}

// SocketVariables returns the variables with the paths of a session's sockets, and of gpg's keys. The gateway needs them
// to know what to hide, and to sign with the person's key.
func SocketVariables() []string {
	return []string{"SSH_AUTH_SOCK", "GPG_AGENT_INFO", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "GNUPGHOME"}
}

// Temporary reports whether an error of accept(2) is temporary: the resource is available again when a call ends.
func Temporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}
