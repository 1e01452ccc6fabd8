package guestagent

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"bailey"
	"bailey/internal/guestwire"
)

// Agent serves hosts, one after the other.
type Agent struct {
	sys   system
	procs *processes
	jobs  jobs
	init  bool           // it is pid 1
	open  sync.WaitGroup // operations

	writing sync.Mutex // held while a frame is written, so that a session never cuts a frame of a former one
	w       *guestwire.Writer
}

// newAgent returns an agent that manages the system sys.
func newAgent(sys system, procs *processes, init bool) *Agent {
	return &Agent{sys: sys, procs: procs, init: init}
}

// serveHost talks to hosts over port until its end, which is no error.
func (a *Agent) serveHost(port io.ReadWriter) error {
	a.writing.Lock()
	a.w = guestwire.NewWriter(port)
	a.writing.Unlock()
	resync := guestwire.NewResyncer(port)
	r := guestwire.NewReader(resync)
	var s *session
	defer func() { s.endSession() }()
	for {
		f, err := r.Next()
		switch {
		case err == nil && f.Kind == guestwire.KindHello:
			s.endSession()
			s, err = a.welcomeHost(resync, f.Payload)
		case err == nil:
			err = s.receiveFrame(f)
		}
		if errors.Is(err, guestwire.ErrProtocol) { // only a marker or the end of the connection can follow
			s.endSession()
			s = nil
			if _, err = io.Copy(io.Discard, resync); err == nil {
				err = io.EOF
			}
		}
		switch {
		case errors.Is(err, guestwire.ErrResync):
			s.endSession()
			s, r = nil, guestwire.NewReader(resync)
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// welcomeHost begins a session. If the host speaks another version, it learns ours, and there is no session.
func (a *Agent) welcomeHost(resync *guestwire.Resyncer, payload []byte) (*session, error) {
	var hello guestwire.Hello
	if err := guestwire.Unmarshal(payload, &hello); err != nil {
		return nil, err
	}
	resync.Expect(hello.Marker)
	s := &session{a: a, streams: map[uint32]*stream{}, listeners: map[string]*listener{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.mayRun.Store(!hello.MustRenew)
	answer := guestwire.Marshal(nil, &guestwire.Welcome{Version: guestwire.Version, Arch: runtime.GOARCH, Init: a.init})
	a.writing.Lock()
	defer a.writing.Unlock()
	err := a.w.Raw(hello.Nonce[:])
	if err == nil {
		err = a.w.Write(guestwire.KindHello, 0, answer)
	}
	if err == nil && hello.Version != guestwire.Version {
		s.cancel()
		return nil, nil
	}
	return s, err
}

// session is one host's connection.
type session struct {
	a      *Agent
	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	mayRun atomic.Bool // false in a clone before its renewal
	ended  atomic.Bool

	mu        sync.Mutex
	streams   map[uint32]*stream
	last      uint32 // the highest stream so far
	listeners map[string]*listener
}

var errGone = errors.New("the host has ended the session")

// endSession kills the session's commands. Nothing is written for it any more. It may be called on a nil session.
func (s *session) endSession() {
	if s == nil || s.ended.Swap(true) {
		return
	}
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.closeAll(errGone)
	}
	for _, l := range s.listeners {
		l.Close()
	}
}

func (s *session) sendFrame(kind guestwire.Kind, id uint32, parts ...[]byte) error {
	s.a.writing.Lock()
	defer s.a.writing.Unlock()
	if s.ended.Load() {
		return errGone
	}
	return s.a.w.Write(kind, id, parts...)
}

// stream is an operation that the host has requested.
type stream struct {
	s       *session
	id      uint32
	ctx     context.Context // ends if the host cancels the operation, and with the session
	cancel  context.CancelFunc
	in      *guestwire.Inbox // nil if the operation takes no data
	out     [3]*guestwire.Allowance
	signals chan uint32
	sizes   chan guestwire.Size
}

func (st *stream) closeAll(err error) {
	if st.in != nil {
		st.in.Close(err)
	}
	for _, out := range st.out {
		if out != nil {
			out.Close(err)
		}
	}
}

// receiveFrame handles a frame. It never waits for an operation. It may be called on a nil session.
func (s *session) receiveFrame(f guestwire.Frame) error {
	if s == nil {
		return guestwire.Violation("a session does not begin with a hello")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.Kind == guestwire.KindRequest {
		return s.openStream(f)
	}
	st := s.streams[f.Stream]
	if st == nil && f.Stream <= s.last {
		return nil // the host sent it before it had the reply
	} else if st == nil {
		return guestwire.Violation("stream %d has no request", f.Stream)
	}
	return st.receiveFrame(f)
}

// openStream requires s.mu.
func (s *session) openStream(f guestwire.Frame) error {
	if f.Stream <= s.last || len(s.streams) == guestwire.MaxStreams {
		return guestwire.Violation("stream %d after %d, with %d open", f.Stream, s.last, len(s.streams))
	}
	op, m, err := guestwire.ParseRequest(f.Payload)
	if err != nil {
		return err
	}
	st := &stream{s: s, id: f.Stream, signals: make(chan uint32, 16), sizes: make(chan guestwire.Size, 4)}
	st.ctx, st.cancel = context.WithCancel(s.ctx)
	switch op {
	case guestwire.OpExec:
		st.in = guestwire.NewInbox()
		st.out = [3]*guestwire.Allowance{guestwire.Stdout: guestwire.NewAllowance(), guestwire.Stderr: guestwire.NewAllowance()}
	case guestwire.OpAccept:
		st.in = guestwire.NewInbox()
		st.out[guestwire.Stdout] = guestwire.NewAllowance()
	case guestwire.OpWrite, guestwire.OpEdit:
		st.in = guestwire.NewInbox()
	case guestwire.OpRead, guestwire.OpList, guestwire.OpOutput:
		st.out[guestwire.Stdout] = guestwire.NewAllowance()
	}
	s.last, s.streams[f.Stream] = f.Stream, st
	s.a.open.Go(func() { st.serveOp(op, m) })
	return nil
}

func (st *stream) receiveFrame(f guestwire.Frame) error {
	switch f.Kind {
	case guestwire.KindData:
		c, b, err := guestwire.ParseData(f.Payload)
		if err == nil && (c != guestwire.Stdin || st.in == nil) {
			err = guestwire.Violation("data for channel %d of stream %d, which takes none", c, st.id)
		}
		if err != nil {
			return err
		}
		return st.in.Push(b)
	case guestwire.KindCredit:
		c, n, err := guestwire.ParseCredit(f.Payload)
		if err == nil && st.out[c] == nil {
			err = guestwire.Violation("credit for channel %d of stream %d, which has none", c, st.id)
		}
		if err != nil {
			return err
		}
		return st.out[c].Add(n)
	case guestwire.KindSignal:
		var n guestwire.Number
		if err := guestwire.Unmarshal(f.Payload, &n); err != nil {
			return err
		}
		offerTo(st.signals, n.N)
	case guestwire.KindResize:
		var z guestwire.Size
		if err := guestwire.Unmarshal(f.Payload, &z); err != nil {
			return err
		}
		offerTo(st.sizes, z)
	case guestwire.KindCancel:
		st.cancel()
		st.closeAll(errCancelled)
	default:
		return guestwire.Violation("a host must not send a frame of kind %c", f.Kind)
	}
	return nil
}

var errCancelled = errors.New("the host has cancelled the operation")

// offerTo drops v if the channel is full.
func offerTo[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

// serveOp performs the operation and replies.
func (st *stream) serveOp(op guestwire.Op, m guestwire.Message) {
	reply, err := st.performOp(op, m)
	st.cancel()
	st.closeAll(errGone)
	st.s.mu.Lock()
	delete(st.s.streams, st.id) // before the reply, after which the host may open another one
	st.s.mu.Unlock()
	var f *guestwire.Failure
	if err != nil {
		f = failureOf(err)
	}
	sent := st.s.sendFrame(guestwire.KindReply, st.id, guestwire.ReplyPayload(reply, f))
	if op == guestwire.OpPowerOff && f == nil && sent == nil {
		st.s.a.sys.powerOff()
	}
}

const maxMessage = 4096

func failureOf(err error) *guestwire.Failure {
	kind := bailey.Internal
	if e, ok := errors.AsType[*bailey.Error](err); ok {
		kind = e.Kind
	}
	message := err.Error()
	return &guestwire.Failure{Kind: string(kind), Message: shortText(message), Hint: shortText(bailey.HintOf(err))}
}

func (st *stream) performOp(op guestwire.Op, m guestwire.Message) (guestwire.Message, error) {
	a := st.s.a
	if !op.Before() && !st.s.mayRun.Load() {
		return nil, bailey.Conflict.New("this clone has not become a machine of its own", "Renew its identity first.")
	}
	switch op {
	case guestwire.OpExec:
		return st.runCommand(m.(*guestwire.Command))
	case guestwire.OpAccept:
		return st.serveConnection(m.(*guestwire.Listener))
	case guestwire.OpStart:
		return a.startJob(m.(*guestwire.Command))
	case guestwire.OpJobs:
		return a.jobs.listJobs(), nil
	case guestwire.OpOutput:
		return st.sendTail(m.(*guestwire.Tail))
	case guestwire.OpKill:
		return a.killJob(m.(*guestwire.Kill))
	case guestwire.OpRead:
		return st.readFile(m.(*guestwire.File))
	case guestwire.OpWrite:
		return st.writeFile(m.(*guestwire.File))
	case guestwire.OpEdit:
		return st.editFile(m.(*guestwire.Edit))
	case guestwire.OpStat:
		return a.statFile(m.(*guestwire.File))
	case guestwire.OpList:
		return st.listDirectory(m.(*guestwire.File))
	case guestwire.OpRenew:
		id, err := a.renewIdentity(m.(*guestwire.Renewal))
		if err == nil {
			st.s.mayRun.Store(true)
		}
		return id, err
	case guestwire.OpIdentity:
		return a.readIdentity(st.s.mayRun.Load()), nil
	case guestwire.OpSync:
		a.sys.sync()
	case guestwire.OpSnapshot:
		a.sys.sync()
		a.sys.dropCaches()
	}
	return &guestwire.Empty{}, nil
}
