// Package guestclient talks to the agent in a sandbox: it runs programs, reads and writes files, and makes another
// machine of a clone. Package guestwire describes the protocol.
//
// The guest is hostile. It can delay or falsify answers about itself, but it cannot crash, block or fill this process:
// every operation has a deadline, a session holds at most four windows of received bytes for each of its streams, and
// the first violation of the protocol ends the session. Texts of the guest are untrusted, also those in errors; control
// characters in errors are replaced.
package guestclient

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
	"bailey/internal/guestwire"
)

// Marker begins a session with an agent that has not seen the end of the former one.
type Marker = [guestwire.MarkerSize]byte

// Config sets the properties of a session. Its zero value is for a guest that has just booted.
type Config struct {
	// MustRenew is for clones: the session refuses every operation but Renew, Identity and PowerOff until a renewal
	// has succeeded, and so does the agent.
	MustRenew bool
	// Resync is the Marker of the session in which the guest was when its snapshot was made. It is required for a clone
	// and if this process adopts a running guest; otherwise it is nil.
	Resync *Marker
	// Marker is what [Session.Marker] will return; it must be random. A host that may be killed records it before the
	// session begins. If it is nil, it is chosen here.
	Marker *Marker
	// HelloTime is how long the agent may take to answer the first time, including its boot; the default is a minute.
	HelloTime time.Duration
	// OpTime is how long an operation that is not a command may take, and a write to the guest; the default is 30 s.
	OpTime time.Duration
	// Grace is how long the agent may take to end an operation that was cancelled; the default is 10 s. If it does not,
	// the session ends.
	Grace time.Duration
}

// maxStale is how much an agent may have written in a former session: more than the queues of a virtio-serial port.
const maxStale = 16 << 20

// Session is a connection to an agent. Its methods can be called concurrently.
type Session struct {
	conn    net.Conn
	cfg     Config
	marker  Marker
	welcome guestwire.Welcome
	renewed atomic.Bool
	slots   chan struct{} // a token for each open operation
	places  chan struct{} // a token for each connection of the guest that is served or awaited

	writing sync.Mutex // held while a frame is written
	w       *guestwire.Writer
	last    uint32 // the highest stream that was opened

	mu      sync.Mutex // guards what follows
	streams map[uint32]*stream
	err     error
	done    chan struct{} // closed when err is set
}

// Dial begins a session over conn, which the session owns from then on.
func Dial(ctx context.Context, conn net.Conn, cfg Config) (*Session, error) {
	cfg.HelloTime = cmp.Or(cfg.HelloTime, time.Minute)
	cfg.OpTime = cmp.Or(cfg.OpTime, 30*time.Second)
	cfg.Grace = cmp.Or(cfg.Grace, 10*time.Second)
	s := &Session{conn: conn, cfg: cfg, w: guestwire.NewWriter(conn), streams: map[uint32]*stream{},
		done: make(chan struct{}), slots: make(chan struct{}, guestwire.MaxOperations),
		places: make(chan struct{}, guestwire.MaxConnections)}
	s.renewed.Store(!cfg.MustRenew)
	if rand.Read(s.marker[:]); cfg.Marker != nil {
		s.marker = *cfg.Marker
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn.SetDeadline(time.Now().Add(cfg.HelloTime))
	if ctx.Err() != nil {
		conn.SetDeadline(time.Unix(1, 0)) // AfterFunc's call may have come before
	}
	r, err := s.greetAgent()
	if err != nil {
		conn.Close()
		return nil, noAnswer(cmp.Or(ctx.Err(), err))
	}
	if !stop() {
		conn.Close()
		return nil, noAnswer(ctx.Err())
	}
	conn.SetDeadline(time.Time{})
	go s.readFrames(r)
	return s, nil
}

func noAnswer(err error) error {
	return bailey.Unavailable.Wrap(err, "the agent in the sandbox did not answer: "+err.Error(),
		"Look at the console of the sandbox, or destroy it and create another.")
}

// greetAgent sends the hello and reads the answer.
func (s *Session) greetAgent() (*guestwire.Reader, error) {
	hello := guestwire.Hello{Version: guestwire.Version, Marker: s.marker, MustRenew: s.cfg.MustRenew}
	rand.Read(hello.Nonce[:])
	if s.cfg.Resync != nil {
		if err := s.w.Raw(s.cfg.Resync[:]); err != nil {
			return nil, err
		}
	}
	if err := s.w.Write(guestwire.KindHello, 0, guestwire.Marshal(nil, &hello)); err != nil {
		return nil, err
	}
	r := guestwire.NewReader(s.conn)
	if err := r.SkipTo(hello.Nonce, maxStale); err != nil {
		return nil, err
	}
	f, err := r.Next()
	switch {
	case err != nil:
		return nil, err
	case f.Kind != guestwire.KindHello:
		return nil, guestwire.Violation("the first frame is of kind %c", f.Kind)
	}
	if err := guestwire.Unmarshal(f.Payload, &s.welcome); err != nil {
		return nil, err
	}
	if s.welcome.Version != guestwire.Version {
		return nil, fmt.Errorf("it speaks version %d of the protocol, not %d: its image needs another bailey-guest",
			s.welcome.Version, guestwire.Version)
	}
	return r, nil
}

// Marker returns the marker with which a later session must begin if the agent does not see the end of this one. It is
// a secret between host and agent.
func (s *Session) Marker() Marker { return s.marker }

// Arch returns the architecture that the guest names, in Go's spelling.
func (s *Session) Arch() string { return s.welcome.Arch }

// Done is closed when the session has ended. Err then returns why.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err returns why the session has ended, or nil.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close ends the session. Commands end with it; background jobs continue.
func (s *Session) Close() error {
	s.endWith(net.ErrClosed)
	return nil
}

// endWith ends the session with the first error.
func (s *Session) endWith(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = bailey.Unavailable.Wrap(cause, "the session with the sandbox ended: "+cause.Error(),
		"Check whether the sandbox runs, and call again.")
	s.conn.Close()
	for _, st := range s.streams {
		st.closeAll(s.err)
	}
	close(s.done)
}

// readFrames serves the frames of the agent until the session ends. It never waits for a consumer or a writer.
func (s *Session) readFrames(r *guestwire.Reader) {
	for {
		f, err := r.Next()
		if err == nil {
			err = s.receiveFrame(f)
		}
		if err != nil {
			s.endWith(err)
			return
		}
	}
}

func (s *Session) receiveFrame(f guestwire.Frame) error {
	s.mu.Lock()
	st := s.streams[f.Stream]
	if f.Kind == guestwire.KindReply {
		delete(s.streams, f.Stream)
	}
	s.mu.Unlock()
	if st == nil {
		return guestwire.Violation("a frame of kind %c is for stream %d, which is not open", f.Kind, f.Stream)
	}
	switch f.Kind {
	case guestwire.KindData:
		c, b, err := guestwire.ParseData(f.Payload)
		if err != nil {
			return err
		}
		if st.in[c] == nil {
			return guestwire.Violation("data on channel %d of stream %d, which has none", c, f.Stream)
		}
		return st.in[c].Push(b)
	case guestwire.KindCredit:
		c, n, err := guestwire.ParseCredit(f.Payload)
		if err != nil {
			return err
		}
		if c != guestwire.Stdin || st.out == nil {
			return guestwire.Violation("credit for channel %d of stream %d, which has none", c, f.Stream)
		}
		return st.out.Add(n)
	case guestwire.KindReply:
		st.reply <- append([]byte(nil), f.Payload...)
		st.closeAll(io.EOF)
		return nil
	}
	return guestwire.Violation("an agent must not send a frame of kind %c", f.Kind)
}

// sendFrame writes one frame. A guest that does not read ends the session after OpTime.
func (s *Session) sendFrame(kind guestwire.Kind, id uint32, parts ...[]byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.writeFrame(kind, id, parts...)
}

// writeFrame requires s.writing.
func (s *Session) writeFrame(kind guestwire.Kind, id uint32, parts ...[]byte) error {
	if err := s.Err(); err != nil {
		return err
	}
	s.conn.SetWriteDeadline(time.Now().Add(s.cfg.OpTime))
	if err := s.w.Write(kind, id, parts...); err != nil {
		s.endWith(fmt.Errorf("cannot write to the guest: %w", err)) // the frame may be incomplete
		return s.Err()
	}
	return nil
}

var errRenew = errors.New("a clone must be renewed first")

// mayRun refuses an operation in a clone before its renewal.
func (s *Session) mayRun(op guestwire.Op) error {
	if op.Before() || s.renewed.Load() {
		return nil
	}
	return bailey.Conflict.Wrap(errRenew, "the sandbox is a clone that has not become a machine of its own",
		"Renew its identity first: it shares keys and random numbers with its template.")
}
