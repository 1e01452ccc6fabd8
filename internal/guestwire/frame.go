// Package guestwire is the protocol between the daemon of sandboxes and the agent in a guest. It runs over a
// virtio-serial port named [Port], which is a Unix socket on the host.
//
// A frame is
//
//	one byte of kind   four bytes of stream   four bytes of length, big endian, at most 64 KiB   payload
//
// The host begins a session: it sends a hello frame with its version, a nonce and a marker, each random. The agent
// answers with the 32 bytes of the nonce, outside a frame, and its own hello frame. Then every request of the host
// opens a stream, whose number must be higher than all before. Both sides send data on the channels of a stream, within
// the allowance that the receiver gives (credit frames), and the agent ends the stream with one reply.
//
// Neither side sees the end of the connection if the guest was resumed from a snapshot, so that a new host may talk to
// an agent that is in the middle of a frame. It sends the 32 bytes of the former session's marker first: the agent
// looks for them in all that it reads, drops the session and expects a hello. The host skips what the agent wrote
// before, up to the nonce.
//
// Neither side trusts the other. All lengths are checked against the bytes that are there before memory is reserved for
// them, every field is read strictly, and each violation is a [ErrProtocol], which ends the session.
package guestwire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Port is the name of the virtio-serial port.
const Port = "bailey"

// Version is the version of the protocol. Another version is refused.
const Version = 2

const (
	// MaxPayload is the maximum size of a frame's payload.
	MaxPayload = 64 << 10
	headerSize = 9
	// Window is how many bytes a sender may have on one channel before the receiver has consumed any of them.
	Window = 128 << 10
	// MaxStreams is how many streams may be open at once. With Window, it bounds the memory of a session.
	MaxStreams = MaxOperations + MaxConnections
	// MaxOperations is how many of them may be operations other than OpAccept, and MaxConnections how many OpAccept.
	MaxOperations, MaxConnections = 32, 64
	// MarkerSize is the size of a nonce and of a marker.
	MarkerSize = 32
)

// ErrProtocol means that the peer violated the protocol. The session must end.
var ErrProtocol = errors.New("protocol violation")

// Violation returns an ErrProtocol with a description.
func Violation(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

// Kind is the kind of a frame.
type Kind byte

const (
	KindHello   Kind = 'H' // Hello or Welcome, on stream 0
	KindRequest Kind = 'Q' // host: an operation and its message, opens the stream
	KindData    Kind = 'D' // a channel and bytes; without bytes, it is the end of the channel
	KindCredit  Kind = 'C' // a channel and how many more bytes the peer may send on it
	KindSignal  Kind = 'S' // host: the number of a signal for the process group
	KindResize  Kind = 'W' // host: rows and columns of the terminal
	KindCancel  Kind = 'X' // host: end the operation and reply
	KindReply   Kind = 'R' // agent: ends the stream
)

// Frame is one frame. Payload is valid until the next frame is read.
type Frame struct {
	Kind    Kind
	Stream  uint32
	Payload []byte
}

// Reader reads frames. Its only buffer has the size of the largest frame.
type Reader struct {
	b       *bufio.Reader
	pending int // bytes of the frame that Next returned last
}

// NewReader returns a reader of r.
func NewReader(r io.Reader) *Reader {
	return &Reader{b: bufio.NewReaderSize(r, headerSize+MaxPayload)}
}

// Next returns the next frame. At the end between two frames, the error is io.EOF.
func (r *Reader) Next() (Frame, error) {
	r.b.Discard(r.pending)
	r.pending = 0
	head, err := r.b.Peek(headerSize)
	if err != nil {
		return Frame{}, cutShort(err, len(head))
	}
	f := Frame{Kind: Kind(head[0]), Stream: binary.BigEndian.Uint32(head[1:])}
	size := binary.BigEndian.Uint32(head[5:])
	if err := checkHeader(f, size); err != nil {
		return Frame{}, err
	}
	whole, err := r.b.Peek(headerSize + int(size))
	if err != nil {
		return Frame{}, cutShort(err, len(whole))
	}
	r.pending, f.Payload = len(whole), whole[headerSize:]
	return f, nil
}

func cutShort(err error, n int) error {
	if err == io.EOF && n > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

func checkHeader(f Frame, size uint32) error {
	switch f.Kind {
	case KindHello, KindRequest, KindData, KindCredit, KindSignal, KindResize, KindCancel, KindReply:
	default:
		return Violation("a frame has the unknown kind %#x", byte(f.Kind))
	}
	if (f.Kind == KindHello) != (f.Stream == 0) {
		return Violation("a frame of kind %c is on stream %d", f.Kind, f.Stream)
	}
	if size > MaxPayload {
		return Violation("a frame claims %d bytes, more than %d", size, MaxPayload)
	}
	return nil
}

// SkipTo reads until the bytes of mark have passed, at most limit bytes. It is for the start of a session: between
// frames, before the first call of Next.
func (r *Reader) SkipTo(mark [MarkerSize]byte, limit int) error {
	r.b.Discard(r.pending)
	r.pending = 0
	for skipped := 0; ; {
		seen, err := r.b.Peek(MarkerSize)
		if err != nil {
			return cutShort(err, len(seen)+skipped)
		}
		seen, _ = r.b.Peek(r.b.Buffered())
		if i := bytes.Index(seen, mark[:]); i >= 0 {
			r.b.Discard(i + MarkerSize)
			return nil
		}
		n := len(seen) - MarkerSize + 1 // the rest may be its beginning
		if skipped += n; skipped > limit {
			return Violation("more than %d bytes came before the answer", limit)
		}
		r.b.Discard(n)
	}
}

// Writer writes each frame with one call of Write. It is not safe for concurrent use.
type Writer struct {
	w   io.Writer
	buf []byte
}

// NewWriter returns a writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes a frame whose payload is the concatenation of parts, which the caller keeps within MaxPayload.
func (w *Writer) Write(kind Kind, stream uint32, parts ...[]byte) error {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size > MaxPayload {
		return fmt.Errorf("a frame of %d bytes is larger than %d", size, MaxPayload)
	}
	w.buf = append(w.buf[:0], byte(kind))
	w.buf = binary.BigEndian.AppendUint32(w.buf, stream)
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(size))
	for _, p := range parts {
		w.buf = append(w.buf, p...)
	}
	_, err := w.w.Write(w.buf)
	return err
}

// Raw writes bytes outside of a frame: a nonce or a marker.
func (w *Writer) Raw(b []byte) error {
	_, err := w.w.Write(b)
	return err
}

// ErrResync is returned by a [Resyncer] when the marker has passed.
var ErrResync = errors.New("the host begins a new session")

// Resyncer reads for the agent and looks for the marker of the session.
type Resyncer struct {
	r      io.Reader
	marker []byte
	tail   []byte // the last bytes, in which the marker may have begun
	rest   []byte // bytes after the marker
}

// NewResyncer returns a reader of r without a marker.
func NewResyncer(r io.Reader) *Resyncer { return &Resyncer{r: r} }

// Expect sets the marker. The marker in force until then no longer counts.
func (r *Resyncer) Expect(marker [MarkerSize]byte) { r.marker, r.tail = marker[:], nil }

// Read returns ErrResync once if the marker passed. Bytes before the marker are lost then; those behind it follow.
func (r *Resyncer) Read(p []byte) (int, error) {
	if len(r.rest) > 0 {
		n := copy(p, r.rest)
		r.rest = r.rest[n:]
		return n, nil
	}
	n, err := r.r.Read(p)
	if r.marker == nil {
		return n, err
	}
	seen := append(r.tail, p[:n]...)
	if i := bytes.Index(seen, r.marker); i >= 0 {
		r.rest, r.tail = seen[i+MarkerSize:], nil
		return 0, ErrResync
	}
	r.tail = bytes.Clone(seen[max(0, len(seen)-MarkerSize+1):])
	return n, err
}
