package control

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"bailey"
	"bailey/internal/auth"
	"bailey/internal/fleet"
	"bailey/internal/fleet/link"
	"bailey/internal/store"
)

// Hosts are the gateways and daemons that are connected. See [fleet] for the protocol.
type Hosts struct {
	s *Server

	mu      sync.Mutex
	live    map[string]*liveHost           // by the host's id
	waiting map[string]chan<- fleet.Result // by the command's id
	events  map[string]EventHandler        // by kind
	after   map[string]func(ctx context.Context, host store.Host, e fleet.Event)
	connect []func(ctx context.Context, host store.Host)
}

// EventHandler stores what an event says, in the transaction that records the event's number. It can run more than once
// for an event if transactions are in each other's way. If the error is of the kind Invalid, NotFound, Conflict or
// Denied, the event is refused for ever: the log says so, and the host is told that it is done. Another error ends the
// connection, and the host sends the event again.
type EventHandler func(ctx context.Context, tx *store.Tx, host store.Host, e fleet.Event) error

// OnEvent sets the handler of a kind of events. It must be called before the server runs.
func (h *Hosts) OnEvent(kind string, f EventHandler) { h.events[kind] = f }

// AfterEvent sets a function that is called once an event is stored. It is not called again after a crash.
func (h *Hosts) AfterEvent(kind string, f func(ctx context.Context, host store.Host, e fleet.Event)) {
	h.after[kind] = f
}

// OnConnect adds a function that is called in a goroutine of its own when a host has connected. ctx ends with the
// connection.
func (h *Hosts) OnConnect(f func(ctx context.Context, host store.Host)) {
	h.connect = append(h.connect, f)
}

// liveHost is one connection.
type liveHost struct {
	host   store.Host
	stream fleet.Stream
	cancel context.CancelCauseFunc

	sending sync.Mutex
	slots   chan struct{} // a place for each command that the host carries out

	mu       sync.Mutex
	inFlight map[string]bool // the commands that were sent over this connection and have no result, by id
}

// claim reports whether a command is to be sent: not if it was sent already.
func (l *liveHost) claimPlace(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	claimed := !l.inFlight[id]
	l.inFlight[id] = true
	return claimed
}

// release frees the place of a command.
func (l *liveHost) releasePlace(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inFlight[id] {
		delete(l.inFlight, id)
		select {
		case <-l.slots:
		default: // it waited for a place
		}
	}
}

func (l *liveHost) sendFrame(f *fleet.Frame) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.stream.Send(f)
}

// Connected reports whether a host is connected to this server.
func (h *Hosts) Connected(host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live[host] != nil
}

// patience is how long a command waits for a host if ctx has no deadline.
const patience = 30 * time.Second

// Send has a host of an organisation carry out a command, and returns its result. If the host is not connected, the
// command waits for it. The deadline is that of ctx. When ctx ends, the command may still be carried out until the
// deadline; the error is Unavailable.
func (h *Hosts) Send(ctx context.Context, organisation, host, kind string, body []byte) ([]byte, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(patience)
		var cancel func()
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	m := &fleet.Command{ID: fleet.NewID(), Kind: kind, Body: body, Deadline: deadline}
	answer := make(chan fleet.Result, 1)
	h.mu.Lock()
	h.waiting[m.ID] = answer
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waiting, m.ID)
	}()
	err := h.s.Store.AddCommand(ctx, organisation, store.Command{ID: m.ID, Host: host, Kind: kind, Body: string(body),
		Deadline: deadline})
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	l := h.live[host]
	h.mu.Unlock()
	if l != nil {
		go h.deliverCommand(ctx, l, m)
	}
	select {
	case r := <-answer:
		return r.Body, r.Error.Err()
	case <-ctx.Done():
		return nil, bailey.Unavailable.Wrap(context.Cause(ctx), "the host has not answered the command in time",
			"see whether it is connected: GET /api/v1/organisations/ID/hosts")
	}
}

// AdmitStream admits a host to its stream.
func (s *Server) AdmitStream(ctx context.Context, token string, cert *x509.Certificate) (link.Serve, error) {
	host, err := s.AdmitHost(ctx, token, cert)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, stream fleet.Stream) error { return s.Hosts.ServeHost(ctx, host, stream) }, nil
}

// deliver sends a command when the host has a place for it. If it fails, the command is sent at the next connection.
func (h *Hosts) deliverCommand(ctx context.Context, l *liveHost, m *fleet.Command) {
	if !l.claimPlace(m.ID) {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, m.Deadline)
	defer cancel()
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	if err := l.sendFrame(&fleet.Frame{Command: m}); err != nil {
		l.cancel(err)
	}
}

// AdmitHost returns the host of a connection: the one that its token belongs to, or else the one that the certificate
// of the client names, which a CA of the settings has signed.
func (s *Server) AdmitHost(ctx context.Context, token string, cert *x509.Certificate) (h store.Host, err error) {
	if token == "" && cert != nil {
		if h, err = s.Store.HostByID(ctx, cert.Subject.CommonName); errors.Is(err, bailey.NotFound) {
			err = bailey.Denied.New("the certificate of the client names no host, or its host has expired",
				"its common name must be the id of the host")
		}
		return h, err
	}
	if !auth.IsToken(token, auth.HostToken) {
		return h, notAHost()
	}
	h, err = s.Store.HostByHash(ctx, store.Hash(token))
	if errors.Is(err, bailey.NotFound) {
		err = notAHost()
	}
	return h, err
}

func notAHost() error {
	return bailey.Denied.New("this token of a host does not exist, or it has expired",
		"ask an admin of the organisation for a new one, then: bailey enroll URL")
}

// ServeHost serves the connection of an admitted host until it ends. It always returns an error.
func (h *Hosts) ServeHost(ctx context.Context, host store.Host, stream fleet.Stream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &liveHost{host: host, stream: stream, cancel: cancel,
		slots: make(chan struct{}, fleet.MaxHandlers), inFlight: map[string]bool{}}
	quiet := time.AfterFunc(3*h.s.Heartbeat, func() { cancel(bailey.Unavailable.New("the host is silent", "")) })
	defer quiet.Stop()
	ended := make(chan error, 1)
	go func() { ended <- h.converseWith(ctx, l, quiet) }()
	// The stream ends when this function returns, and then the goroutine does.
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// converseWith receives the frames of a host. A fault of the server that a frame meets ends this connection alone.
func (h *Hosts) converseWith(ctx context.Context, l *liveHost, quiet *time.Timer) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.s.Log.Error("a frame of a host has met a fault of the server; its connection is ended", "host", l.host.ID,
				"panic", p, "stack", string(debug.Stack()))
			err = bailey.Internal.New("the server has a fault", "see the log of bailey-server")
		}
	}()
	if err := h.welcomeHost(ctx, l); err != nil {
		return err
	}
	defer h.leaveHost(l)
	for {
		f, err := l.stream.Recv()
		if err != nil {
			return err
		}
		quiet.Reset(3 * fleet.HeartbeatEvery)
		if err := h.receiveFrame(ctx, l, f); err != nil {
			h.s.Log.Warn("the connection of a host is ended", "host", l.host.ID, "error", err)
			return err
		}
	}
}

// welcome admits the host with its registration, and sends what waits for it.
func (h *Hosts) welcomeHost(ctx context.Context, l *liveHost) error {
	f, err := l.stream.Recv()
	if err != nil {
		return err
	}
	if f.Register == nil {
		return bailey.Invalid.New("the first frame of a host must register it", "use a newer version of bailey")
	}
	if (f.Register.Kind == fleet.Gateway) != (l.host.Kind == store.Gateway) {
		return bailey.Denied.Errorf("make a token of the right kind", "this token is for a %s, not for a %.20q",
			l.host.Kind, f.Register.Kind)
	}
	text, err := json.Marshal(f.Register)
	if err == nil && len(text) > maxBody {
		err = bailey.Invalid.New("the registration is too large", "")
	}
	if err == nil {
		err = checkName(f.Register.Version)
	}
	if err != nil {
		return err
	}
	l.host, err = h.s.Store.RegisterHost(ctx, l.host.ID, f.Register.Version, string(text), f.Register.Queue,
		min(f.Register.Floor, math.MaxInt64))
	if err != nil {
		return err
	}
	w := &fleet.Welcome{Host: l.host.ID, Name: l.host.Name, Acked: l.host.Acked}
	record, err := h.openRecord(ctx, l, f.Register.Ledger)
	if err != nil {
		return err
	}
	if record != nil {
		w.Receipts, w.Forked = record.Size, !record.Forked.IsZero()
	}
	if err := l.sendFrame(&fleet.Frame{Welcome: w}); err != nil {
		return err
	}
	h.mu.Lock()
	old := h.live[l.host.ID]
	h.live[l.host.ID] = l
	h.mu.Unlock()
	if old != nil {
		old.cancel(bailey.Conflict.New("the host has connected again", "give each host a token of its own"))
	}
	waiting, err := h.s.Store.WaitingCommands(ctx, l.host.ID)
	if err != nil {
		h.leaveHost(l)
		return err
	}
	go func() {
		for _, c := range waiting {
			h.deliverCommand(ctx, l, &fleet.Command{ID: c.ID, Kind: c.Kind, Body: []byte(c.Body), Deadline: c.Deadline})
		}
	}()
	h.s.live.announceTopics(l.host.Organisation, topicHosts)
	go h.watchHost(ctx, l)
	for _, f := range h.connect {
		go f(ctx, l.host)
	}
	return nil
}

func (h *Hosts) leaveHost(l *liveHost) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live[l.host.ID] == l {
		delete(h.live, l.host.ID)
		h.s.live.announceTopics(l.host.Organisation, topicHosts)
	}
}

// watch sends heartbeats, and ends the connection when the token has expired or was removed.
func (h *Hosts) watchHost(ctx context.Context, l *liveHost) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(h.s.Heartbeat):
		}
		err := h.s.Store.SeeHost(ctx, l.host.ID)
		if errors.Is(err, bailey.NotFound) {
			err = notAHost()
		}
		if err == nil {
			err = l.sendFrame(&fleet.Frame{Heartbeat: &fleet.Heartbeat{Time: h.s.Now()}})
		}
		if err != nil {
			l.cancel(err)
			return
		}
	}
}

// receive handles a frame of a host.
func (h *Hosts) receiveFrame(ctx context.Context, l *liveHost, f *fleet.Frame) error {
	switch {
	case f.Heartbeat != nil:
		return nil
	case f.Event != nil:
		return h.storeEvent(ctx, l, *f.Event)
	case f.Receipts != nil:
		return h.storeReceipts(ctx, l, f.Receipts)
	case f.Result != nil:
		return h.storeResult(ctx, l, *f.Result)
	}
	return bailey.Invalid.New("a host sent a frame that only the server may send", "use versions that understand each other")
}

func (h *Hosts) storeEvent(ctx context.Context, l *liveHost, e fleet.Event) error {
	known, refused := false, error(nil)
	store1 := func(tx *store.Tx) (err error) {
		known, err = h.s.Store.AddEvent(ctx, tx, l.host.ID, l.host.Queue, e.Seq)
		if err != nil || known || refused != nil {
			return err
		}
		f := h.events[e.Kind]
		if f == nil {
			f = func(context.Context, *store.Tx, store.Host, fleet.Event) error {
				return bailey.NotFound.Errorf("", "this server has no use for events of the kind %q", e.Kind)
			}
		}
		return refusalOf(f(ctx, tx, l.host, e))
	}
	err := h.s.Store.Change(ctx, store1)
	if r, ok := errors.AsType[refusedEvent](err); ok {
		refused = r.error
		h.s.Log.Warn("an event of a host is refused", "host", l.host.ID, "kind", e.Kind, "seq", e.Seq, "error", refused)
		err = h.s.Store.Change(ctx, store1) // its number alone
	}
	if err != nil {
		return err
	}
	if f := h.after[e.Kind]; f != nil && !known && refused == nil {
		f(ctx, l.host, e)
	}
	return l.sendFrame(&fleet.Frame{Ack: &fleet.Ack{Seq: e.Seq}})
}

// refusedEvent is an error that the next try would have, too.
type refusedEvent struct{ error }

func refusalOf(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bailey.Invalid), errors.Is(err, bailey.NotFound), errors.Is(err, bailey.Conflict),
		errors.Is(err, bailey.Denied):
		return refusedEvent{err}
	}
	return err
}

// maxResult is how much of the answer to a command is kept.
const maxResult = 64 << 10

// storeResult stores the answer to a command, and passes it on to the sender of the command. An answer that is too large
// is replaced by an error.
func (h *Hosts) storeResult(ctx context.Context, l *liveHost, r fleet.Result) error {
	size := len(r.Body)
	if r.Error != nil {
		size += len(r.Error.Kind) + len(r.Error.Message) + len(r.Error.Hint)
	}
	if size > maxResult {
		h.s.Log.Warn("the result of a command is too large", "host", l.host.ID, "command", r.ID, "bytes", size)
		r = fleet.Result{ID: r.ID, Error: &fleet.Fault{Kind: string(bailey.Invalid),
			Message: "the host's result of the command is too large"}}
	}
	fault := ""
	if r.Error != nil {
		text, err := json.Marshal(r.Error)
		if err != nil {
			return err
		}
		fault = string(text)
	}
	err := h.s.Store.FinishCommand(ctx, l.host.ID, r.ID, string(r.Body), fault)
	if err != nil && !errors.Is(err, bailey.NotFound) {
		return err
	}
	if err == nil {
		h.mu.Lock()
		answer := h.waiting[r.ID]
		delete(h.waiting, r.ID)
		h.mu.Unlock()
		if answer != nil {
			answer <- r
		}
	}
	l.releasePlace(r.ID)
	return l.sendFrame(&fleet.Frame{Taken: &fleet.Taken{ID: r.ID}})
}
