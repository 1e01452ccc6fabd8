//go:build linux

package vmhost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"

	"bailey"
	"bailey/internal/guestclient"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// serveExec runs a command whose streams are frames of the connection.
func (h *Host) serveExec(ctx context.Context, conn *peer.Conn, c caller, body []byte) (hostapi.Exit, error) {
	var r hostapi.Command
	if err := decodeRequest(body, &r); err != nil {
		return hostapi.Exit{}, err
	}
	s, command, err := h.openCommand(ctx, c, r)
	if err != nil {
		return hostapi.Exit{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in := newInput(conn)
	defer in.closeWith(io.ErrClosedPipe)
	signals, sizes := make(chan guestclient.Signal, 16), make(chan guestclient.Size, 4)
	command.Signals, command.Sizes = signals, sizes
	if r.Input {
		command.Stdin = in
	}
	command.Stdout, command.Stderr = frameWriter{conn, localapi.FrameStdout}, frameWriter{conn, localapi.FrameStderr}
	go func() { cancel(receiveFrames(conn, in, signals, sizes)) }()
	exit, err := s.Exec(ctx, command)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, bailey.Invalid) {
		err = cause // a violation of the protocol by the client
	}
	return fromExit(exit), err
}

// frameWriter writes output as frames. If the client does not read, the command waits.
type frameWriter struct {
	conn *peer.Conn
	kind byte
}

func (w frameWriter) Write(p []byte) (int, error) {
	if err := w.conn.WriteFrame(w.kind, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

var errClientGone = errors.New("the client closed the connection")

// receiveFrames serves the frames of the client until it closes the connection or violates the protocol.
func receiveFrames(conn *peer.Conn, in *input, signals chan<- guestclient.Signal, sizes chan<- guestclient.Size) error {
	for {
		kind, b, err := conn.ReadFrameWithin(hostapi.InputWindow)
		if bailey.KindOf(err) == bailey.Invalid {
			return err
		}
		if err != nil {
			return errClientGone
		}
		switch kind {
		case localapi.FrameInput:
			err = in.addBytes(b)
		case localapi.FrameEnd:
			in.closeWith(io.EOF)
		case hostapi.FrameSignal:
			var n int
			if err = decodeRequest(b, &n); err == nil && (n < 1 || n > 64) {
				err = bailey.Invalid.Errorf("use 1 to 64", "%d is not the number of a signal", n)
			}
			if err == nil {
				offerEvent(signals, guestclient.Signal(n))
			}
		case hostapi.FrameSize:
			var size hostapi.Size
			if err = decodeRequest(b, &size); err == nil {
				offerEvent(sizes, guestclient.Size{Rows: size.Rows, Cols: size.Cols})
			}
		default:
			err = bailey.Invalid.Errorf("", "a frame during a command has the kind %q", kind)
		}
		if err != nil {
			return err
		}
	}
}

// offerEvent sends a value unless the channel is full: a client that sends faster than the guest reads loses events.
func offerEvent[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}

// input is the standard input of a command: the bytes that the client has sent and the command has not read.
type input struct {
	conn *peer.Conn
	mu   sync.Mutex
	more *sync.Cond
	buf  bytes.Buffer
	err  error // after the last byte
}

func newInput(conn *peer.Conn) *input {
	in := &input{conn: conn}
	in.more = sync.NewCond(&in.mu)
	return in
}

// addBytes returns an error if the client sent more than its allowance.
func (in *input) addBytes(b []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil || in.buf.Len()+len(b) > hostapi.InputWindow {
		return bailey.Invalid.Errorf("", "the client sent more input than it was allowed to, or after the end")
	}
	in.buf.Write(b)
	in.more.Broadcast()
	return nil
}

func (in *input) closeWith(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
	}
	in.more.Broadcast()
}

// Read implements io.Reader. It gives the client allowance for the bytes that it returns.
func (in *input) Read(p []byte) (int, error) {
	in.mu.Lock()
	for in.buf.Len() == 0 && in.err == nil {
		in.more.Wait()
	}
	n, _ := in.buf.Read(p)
	err := in.err
	in.mu.Unlock()
	if n == 0 {
		return 0, err
	}
	credit, _ := json.Marshal(n)
	if err := in.conn.WriteFrame(hostapi.FrameCredit, credit); err != nil {
		return n, err
	}
	return n, nil
}
