package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"bailey"
)

// Client keeps the connection of a host. Dial, Register, Queue and Commands must be set.
type Client struct {
	// Dial connects once. The stream ends when ctx ends.
	Dial     func(ctx context.Context) (Stream, error)
	Register func(ctx context.Context) (Register, error)
	Handlers Handlers
	Queue    *Queue
	Commands *Commands
	Receipts Receiptsource // nil without receipts
	Log      *slog.Logger

	state    atomic.Pointer[State]
	ends     context.Context // the one of Run
	handlers chan struct{}   // a place for each running command
	finished chan struct{}   // holds one value if there may be results to send
	running  sync.WaitGroup
}

// Receiptsource gives the lines of a ledger.
type Receiptsource interface {
	// Next returns the lines after the first from entries, about 1 MiB at most. It waits until there are any.
	Next(ctx context.Context, from uint64) (*Receipts, error)
	// Cosigned reports how far the server is.
	Cosigned(ctx context.Context, c *Cosigned)
}

// State is what a client knows about its connection.
type State struct {
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"`
	Host      string    `json:"host,omitempty"`
	Name      string    `json:"name,omitempty"`
	Forked    bool      `json:"forked,omitempty"`
	Receipts  uint64    `json:"receipts"` // entries of the ledger that the server holds
	Error     string    `json:"error,omitempty"`
	Hint      string    `json:"hint,omitempty"`
}

// State returns what the client knows about its connection.
func (c *Client) State() State {
	if s := c.state.Load(); s != nil {
		return *s
	}
	return State{}
}

func (c *Client) changeState(f func(*State)) {
	s := c.State()
	f(&s)
	c.state.Store(&s)
}

// Limits of waiting.
const (
	firstWait = time.Second
	longest   = time.Minute
	silence   = 3 * HeartbeatEvery
	admission = 20 * time.Second
)

// Run keeps the connection until ctx ends, and then waits for the commands that run.
func (c *Client) Run(ctx context.Context) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.ends = ctx
	c.handlers, c.finished = make(chan struct{}, MaxHandlers), make(chan struct{}, 1)
	defer c.running.Wait()
	wait := firstWait
	for ctx.Err() == nil {
		begun := time.Now()
		err := c.connectOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		c.changeState(func(s *State) {
			s.Connected, s.Since = false, time.Now().UTC()
			s.Error, s.Hint = err.Error(), bailey.HintOf(err)
		})
		c.Log.Warn("the connection to the control plane ended; work goes on without it", "error", err)
		if time.Since(begun) > longest {
			wait = firstWait
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait = min(2*wait, longest)
	}
}

// connectOnce keeps one connection. It always returns an error.
func (c *Client) connectOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(admission, func() {
		cancel(bailey.Unavailable.New("the control plane does not answer", "it is tried again"))
	})
	defer quiet.Stop()
	r, err := c.Register(ctx)
	if err != nil {
		return err
	}
	stream, err := c.Dial(ctx)
	if err != nil {
		return endOf(ctx, err)
	}
	s := &session{Client: c, stream: stream, acks: make(chan *Cosigned, 1), answers: make(chan *Result, 16*MaxHandlers)}
	r.Queue, r.Floor = c.Queue.ID(), c.Queue.Floor()
	if err := s.sendFrame(&Frame{Register: &r}); err != nil && !errors.Is(err, errSend) {
		return endOf(ctx, err)
	}
	f, err := stream.Recv()
	if err == nil && f.Welcome == nil {
		err = invalidFrame("the control plane did not admit this host with its first frame")
	}
	if err == nil {
		err = c.Queue.Acknowledge(f.Welcome.Acked)
	}
	if err != nil {
		return endOf(ctx, err)
	}
	w := f.Welcome
	c.changeState(func(s *State) {
		*s = State{Connected: true, Since: time.Now().UTC(), Host: w.Host, Name: w.Name, Forked: w.Forked, Receipts: w.Receipts}
	})
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel(nil)
	for _, f := range []func(context.Context) error{s.sendHeartbeats, s.sendResults, s.sendAnswers,
		func(ctx context.Context) error { return s.sendEvents(ctx, w.Acked) },
		func(ctx context.Context) error { return s.sendReceipts(ctx, w) }} {
		work.Go(func() {
			if err := f(ctx); err != nil && !errors.Is(err, errSend) {
				cancel(err)
			}
		})
	}
	for {
		quiet.Reset(silence)
		f, err := stream.Recv()
		if err == nil {
			err = s.receiveFrame(ctx, f)
		}
		if err != nil {
			return endOf(ctx, err)
		}
	}
}

// endOf returns why a connection ended.
func endOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// session is one connection.
type session struct {
	*Client
	sending sync.Mutex
	stream  Stream
	acks    chan *Cosigned
	// answers are results that the receiving loop has. It must not send them itself: if both ends waited until the
	// other one receives, the connection would stand still.
	answers chan *Result
}

func (s *session) sendFrame(f *Frame) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.stream.Send(f); err != nil {
		return errors.Join(errSend, err)
	}
	return nil
}

// errSend is the error of a connection that has ended. Receiving from it says why.
var errSend = errors.New("cannot send")

func (s *session) sendHeartbeats(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(HeartbeatEvery):
		}
		if err := s.sendFrame(&Frame{Heartbeat: &Heartbeat{Time: time.Now()}}); err != nil {
			return err
		}
	}
}

func (s *session) sendResults(ctx context.Context) error {
	for {
		for _, r := range s.Commands.Results() {
			if err := s.sendFrame(&Frame{Result: r}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.finished:
		}
	}
}

func (s *session) sendAnswers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-s.answers:
			if err := s.sendFrame(&Frame{Result: r}); err != nil {
				return err
			}
		}
	}
}

// answerLater has a result sent by another goroutine.
func (s *session) answerLater(r *Result) error {
	select {
	case s.answers <- r:
		return nil
	default:
		return bailey.Unavailable.New("the control plane sends commands and does not receive results", "it is tried again")
	}
}

func (s *session) sendEvents(ctx context.Context, after uint64) error {
	for {
		events, more, err := s.Queue.After(after)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := s.sendFrame(&Frame{Event: &e}); err != nil {
				return err
			}
			after = e.Seq
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		}
	}
}

// sendReceipts sends one batch at a time, so that the server can refuse one before it gets the next.
func (s *session) sendReceipts(ctx context.Context, w *Welcome) error {
	if s.Receipts == nil || w.Forked {
		return nil
	}
	for from := w.Receipts; ; {
		batch, err := s.Receipts.Next(ctx, from)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := s.sendFrame(&Frame{Receipts: batch}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case c := <-s.acks:
			from = c.Size
			s.changeState(func(s *State) { s.Receipts, s.Forked = c.Size, c.Forked })
			if c.Forked {
				return nil
			}
			s.Receipts.Cosigned(ctx, c)
		}
	}
}

// receive handles a frame of the server.
func (s *session) receiveFrame(ctx context.Context, f *Frame) error {
	switch {
	case f.Heartbeat != nil:
		return nil
	case f.Ack != nil:
		return s.Queue.Acknowledge(f.Ack.Seq)
	case f.Taken != nil:
		return s.Commands.Take(f.Taken.ID)
	case f.Command != nil:
		return s.carryOut(f.Command)
	case f.Cosigned != nil:
		select {
		case s.acks <- f.Cosigned:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return invalidFrame("the control plane sent a frame that only a host may send")
}

// carryOut begins a command, unless it was begun before.
func (s *session) carryOut(m *Command) error {
	handler := s.Handlers[m.Kind]
	if handler == nil {
		return s.answerLater(&Result{ID: m.ID, Error: NewFault(bailey.NotFound.Errorf("use a newer version of bailey there",
			"this host has no command %.80q", m.Kind))})
	}
	select {
	case s.handlers <- struct{}{}:
	default:
		return s.answerLater(&Result{ID: m.ID, Error: NewFault(bailey.Unavailable.Errorf("try again later",
			"the host carries out %d commands already", MaxHandlers))})
	}
	fresh, result := s.Commands.Begin(m)
	if !fresh {
		<-s.handlers
		if result == nil {
			return nil // it runs
		}
		return s.answerLater(result)
	}
	s.running.Go(func() {
		defer func() { <-s.handlers }()
		s.runHandler(handler, m)
	})
	return nil
}

// runHandler runs a command to its end, also if the connection ends meanwhile.
func (c *Client) runHandler(h Handler, m *Command) {
	ctx, cancel := context.WithDeadline(c.ends, m.Deadline)
	defer cancel()
	result := &Result{ID: m.ID}
	body, err := callHandler(ctx, h, m.Body)
	if err == nil {
		err = checkContent("result", body)
	}
	if result.Body = body; err != nil {
		c.Log.Warn("a command of the control plane failed", "kind", m.Kind, "id", m.ID, "error", err)
		result.Body, result.Error = nil, NewFault(err)
	}
	if err := c.Commands.Finish(result); err != nil {
		c.Log.Error("the result of a command is not recorded", "id", m.ID, "error", err)
	}
	select {
	case c.finished <- struct{}{}:
	default:
	}
}

// callHandler makes an error of a panic: a command of the server must not end a gateway.
func callHandler(ctx context.Context, h Handler, body []byte) (result []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = bailey.Internal.Errorf("see the log of the host", "the handler failed: %v", p)
		}
	}()
	return h(ctx, body)
}
