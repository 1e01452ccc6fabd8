package hostapi

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// Frames of a connection that runs a command, beside those of package localapi. The client sends input frames and an
// end frame if Command.Input is set, signal frames and size frames. The host sends output frames, and credit frames:
// how many bytes of input the command has read. The client must not have more than InputWindow bytes under way. If it
// closes the connection, the host kills the command.
const (
	FrameSignal byte = 's' // JSON: the number of a signal for the process group
	FrameSize   byte = 'w' // JSON: Size of the terminal
	FrameCredit byte = 'c' // JSON: a number of bytes
)

const (
	// InputWindow is how many bytes of input may be under way.
	InputWindow = 256 << 10
	inputChunk  = 32 << 10
)

// Streams are the streams of a command. Each may be nil.
type Streams struct {
	// Stdin may still be read after Exec has returned if it blocks.
	Stdin          io.Reader
	Stdout, Stderr io.Writer // the output of a terminal goes to Stdout
	Signals        <-chan int
	Sizes          <-chan Size
}

// Exec runs a program in a sandbox to its end. If ctx ends, its process group is killed. An exit code other than 0 is
// not an error.
func (c *Client) Exec(ctx context.Context, o Owner, command Command, s Streams) (Exit, error) {
	command.Input = s.Stdin != nil
	conn, done, err := c.openQuery(ctx, ExecVerb, o, command)
	if err != nil {
		return Exit{}, err
	}
	defer done()
	ended := make(chan struct{})
	defer close(ended)
	window := newWindow(InputWindow)
	defer window.closeWindow()
	if s.Stdin != nil {
		go sendInput(conn, s.Stdin, window)
	}
	go sendEvents(conn, s, ended)
	var exit Exit
	err = receiveOutput(ctx, conn, s, window, &exit)
	return exit, err
}

// receiveOutput serves the frames of the host until the last one.
func receiveOutput(ctx context.Context, conn *peer.Conn, s Streams, window *window, exit *Exit) error {
	for {
		kind, b, err := conn.ReadFrame()
		if err != nil {
			return lostError(ctx, err)
		}
		switch kind {
		case localapi.FrameStdout:
			err = writeTo(s.Stdout, b)
		case localapi.FrameStderr:
			err = writeTo(s.Stderr, b)
		case FrameCredit:
			var n int
			if err = json.Unmarshal(b, &n); err == nil {
				window.addBytes(n)
			}
		default:
			return localapi.LastWord(kind, b, exit)
		}
		if err != nil {
			return err // the closed connection ends the command
		}
	}
}

func writeTo(w io.Writer, b []byte) error {
	if w == nil {
		return nil
	}
	_, err := w.Write(b)
	return err
}

// sendInput sends standard input. It ends with its reader, with the window, or when the connection is closed.
func sendInput(conn *peer.Conn, from io.Reader, window *window) {
	buf := make([]byte, inputChunk)
	for {
		n, err := from.Read(buf)
		if n > 0 && (!window.takeBytes(n) || conn.WriteFrame(localapi.FrameInput, buf[:n]) != nil) {
			return
		}
		if err != nil {
			conn.WriteFrame(localapi.FrameEnd, nil)
			return
		}
	}
}

func sendEvents(conn *peer.Conn, s Streams, ended <-chan struct{}) {
	for {
		var err error
		select {
		case n, ok := <-s.Signals:
			if !ok {
				s.Signals = nil
				continue
			}
			err = conn.WriteJSON(FrameSignal, n)
		case size, ok := <-s.Sizes:
			if !ok {
				s.Sizes = nil
				continue
			}
			err = conn.WriteJSON(FrameSize, size)
		case <-ended:
			return
		}
		if err != nil {
			return
		}
	}
}

// window is the allowance of a sender.
type window struct {
	mu     sync.Mutex
	more   *sync.Cond
	left   int
	closed bool
}

func newWindow(n int) *window {
	w := &window{left: n}
	w.more = sync.NewCond(&w.mu)
	return w
}

// takeBytes waits for n bytes. It returns false if the window was closed.
func (w *window) takeBytes(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.left < n && !w.closed {
		w.more.Wait()
	}
	w.left -= n
	return !w.closed
}

func (w *window) addBytes(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = min(w.left+max(n, 0), InputWindow)
	w.more.Broadcast()
}

func (w *window) closeWindow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.more.Broadcast()
}
