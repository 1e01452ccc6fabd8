package guestclient

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"

	"bailey"
	"bailey/internal/guestwire"
)

// stream is an open operation.
type stream struct {
	s     *Session
	id    uint32
	in    [3]*guestwire.Inbox // by channel; nil if the operation has no data there
	out   *guestwire.Allowance
	reply chan []byte // has room for the one reply
}

// closeAll ends the channels. If err is io.EOF, received bytes can still be read.
func (st *stream) closeAll(err error) {
	for _, in := range st.in {
		if in != nil {
			in.Close(err)
		}
	}
	if st.out != nil {
		st.out.Close(errEnded)
	}
}

var errEnded = errors.New("the operation has ended")

// operation is a request with what belongs to it.
type operation struct {
	op             guestwire.Op
	request        guestwire.Message
	reply          guestwire.Message
	stdin          io.Reader
	stdout, stderr io.Writer
	time           time.Duration // until it is cancelled, or 0
	signals        <-chan Signal
	sizes          <-chan Size
}

// runOperation performs an operation. It returns when the agent has replied and all received bytes are written.
func (s *Session) runOperation(ctx context.Context, o operation) error {
	if err := s.mayRun(o.op); err != nil {
		return err
	}
	payload := guestwire.Marshal([]byte{byte(o.op)}, o.request)
	if len(payload) > guestwire.MaxPayload {
		return bailey.Invalid.Errorf("Write large values to a file in the sandbox first.",
			"the request has %d bytes, more than %d", len(payload), guestwire.MaxPayload)
	}
	slots := s.slots
	if o.op == guestwire.OpAccept {
		slots = s.places
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return interruptedError(ctx.Err())
	case <-s.done:
		return s.Err()
	}
	st, err := s.openStream(o, payload)
	if err != nil {
		return err
	}
	copies := st.startCopies(o)
	reply, err := st.awaitReply(ctx, o, copies.failed)
	copies.Wait()
	if err != nil {
		return err
	}
	if err := copies.firstError(); err != nil {
		return err
	}
	failure, err := guestwire.ParseReply(reply, o.reply)
	if err != nil {
		s.endWith(err)
		return s.Err()
	}
	if failure != nil {
		return untrustedError(failure)
	}
	return nil
}

// openStream sends the request. The numbers of streams must rise in the order of their requests.
func (s *Session) openStream(o operation, payload []byte) (*stream, error) {
	st := &stream{s: s, reply: make(chan []byte, 1)}
	if o.stdin != nil {
		st.out = guestwire.NewAllowance()
	}
	for c, w := range map[guestwire.Channel]io.Writer{guestwire.Stdout: o.stdout, guestwire.Stderr: o.stderr} {
		if w != nil {
			st.in[c] = guestwire.NewInbox()
		}
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.last == 1<<32-1 {
		s.endWith(errors.New("it has had too many operations"))
	}
	s.last++
	st.id = s.last
	s.mu.Lock()
	err := s.err
	if err == nil {
		s.streams[st.id] = st
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return st, s.writeFrame(guestwire.KindRequest, st.id, payload)
}

// copies are the goroutines that write received bytes.
type copies struct {
	sync.WaitGroup
	failed chan error // has the first error of a writer, or of the input
}

func (c *copies) firstError() error {
	select {
	case err := <-c.failed:
		return err
	default:
		return nil
	}
}

func (st *stream) startCopies(o operation) *copies {
	c := &copies{failed: make(chan error, 1)}
	for channel, w := range map[guestwire.Channel]io.Writer{guestwire.Stdout: o.stdout, guestwire.Stderr: o.stderr} {
		if w == nil {
			continue
		}
		c.Go(func() {
			err := st.in[channel].CopyTo(w, func(n uint32) error {
				return st.s.sendFrame(guestwire.KindCredit, st.id, guestwire.CreditPayload(channel, n))
			})
			if err == nil || st.s.Err() != nil {
				if end, ok := w.(interface{ CloseWrite() error }); ok {
					end.CloseWrite()
				}
				return
			}
			st.in[channel].Close(err) // what still comes is dropped
			select {
			case c.failed <- err:
			default:
			}
		})
	}
	if o.stdin != nil {
		go st.sendInput(o.stdin, c.failed) // o.stdin may block for longer than the operation
	}
	return c
}

// sendInput sends the input and its end. If the input fails, the operation must not take what came for all of it.
func (st *stream) sendInput(r io.Reader, failure chan<- error) {
	channel := []byte{byte(guestwire.Stdin)}
	failed, err := st.out.CopyFrom(r, func(b []byte) error { return st.s.sendFrame(guestwire.KindData, st.id, channel, b) })
	switch {
	case failed != nil:
		select {
		case failure <- failed:
		default:
		}
	case err == nil:
		st.s.sendFrame(guestwire.KindData, st.id, channel)
	}
}

// awaitReply returns the reply. If the operation must end before, it is cancelled, and the session ends if the agent does not
// reply then.
func (st *stream) awaitReply(ctx context.Context, o operation, failed <-chan error) ([]byte, error) {
	var deadline <-chan time.Time
	if o.time > 0 {
		t := time.NewTimer(o.time)
		defer t.Stop()
		deadline = t.C
	}
	for {
		select {
		case reply := <-st.reply:
			return reply, nil
		case <-st.s.done:
			select {
			case reply := <-st.reply: // it came before the end
				return reply, nil
			default:
				return nil, st.s.Err()
			}
		case n := <-o.signals:
			st.s.sendFrame(guestwire.KindSignal, st.id, guestwire.Marshal(nil, &guestwire.Number{N: uint32(n)}))
		case z := <-o.sizes:
			st.s.sendFrame(guestwire.KindResize, st.id, guestwire.Marshal(nil, &guestwire.Size{Rows: z.Rows, Cols: z.Cols}))
		case err := <-failed:
			return nil, st.cancelWith(err)
		case <-ctx.Done():
			return nil, st.cancelWith(interruptedError(ctx.Err()))
		case <-deadline:
			return nil, st.cancelWith(bailey.Unavailable.Errorf("Check whether the sandbox is overloaded, and call again.",
				"the sandbox did not answer within %v", o.time))
		}
	}
}

// cancelWith ends the operation in the guest and returns err. The reply does not matter any more.
func (st *stream) cancelWith(err error) error {
	if sendErr := st.s.sendFrame(guestwire.KindCancel, st.id); sendErr != nil {
		return err
	}
	t := time.NewTimer(st.s.cfg.Grace)
	defer t.Stop()
	select {
	case <-st.reply:
	case <-st.s.done:
	case <-t.C:
		st.s.endWith(errors.New("the agent did not end an operation that was cancelled"))
	}
	return err
}

func interruptedError(err error) error {
	return bailey.Unavailable.Wrap(err, "the operation in the sandbox was interrupted: "+err.Error(), "")
}

// maxText bounds a text of the guest in an error.
const maxText = 2048

// untrustedError returns the failure that the guest reports, without control characters.
func untrustedError(f *guestwire.Failure) error {
	kind := bailey.Internal
	for _, k := range []bailey.Kind{bailey.Invalid, bailey.NotFound, bailey.Conflict, bailey.Unavailable} {
		if f.Kind == string(k) {
			kind = k
		}
	}
	return kind.New(printableText(f.Message), printableText(f.Hint))
}

func printableText(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
