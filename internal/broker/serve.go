package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// clientConn is a connection and its loan.
type clientConn struct {
	*peer.Conn
	s   *Server
	ctx context.Context
	out *loan // nil if it has no loan
}

// serveConn answers one client, and ends its loan when the connection ends.
func (s *Server) serveConn(ctx context.Context, c *peer.Conn) {
	l := &clientConn{Conn: c, s: s, ctx: ctx}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	defer s.live.Add(-1)
	why := "its connection ended"
	defer func() { l.endLoan(why) }()
	if s.live.Add(1) > int64(s.Most) {
		l.sendRefusal(unavailableError(nil, "wait until calls have ended", "the broker has %d connections already",
			s.Most))
		return
	}
	for {
		kind, payload, err := l.readMessage()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				why = "its time was up"
			}
			if ctx.Err() != nil {
				why = "the broker ended"
			}
			return
		}
		if err := l.answerMessage(kind, payload); err != nil {
			return
		}
	}
}

// readMessage waits for the next message: as long as the loan lasts, or for Idle without a loan.
func (l *clientConn) readMessage() (kind byte, payload []byte, err error) {
	until := time.Now().Add(l.s.Idle)
	if l.out != nil {
		until = l.out.until
	}
	if err := l.SetReadDeadline(until); err != nil {
		return 0, nil, err
	}
	kind, payload, err = l.ReadFrameWithin(maxAsk)
	if errors.Is(err, bailey.Invalid) {
		l.sendRefusal(bailey.Invalid.Wrap(err, "a message to the broker is too long",
			"use a gateway and a broker of one version"))
	}
	return kind, payload, err
}

// answerMessage answers one message. If it returns an error, the connection must end. A mistake of the client is answered and
// is not such an error.
func (l *clientConn) answerMessage(kind byte, payload []byte) error {
	if err := l.SetWriteDeadline(time.Now().Add(l.s.Idle)); err != nil {
		return err
	}
	out, values, err := l.handleMessage(kind, payload)
	if err != nil {
		l.s.Log.Warn("refused", "kind", string(rune(kind)), "uid", l.UID, "pid", l.PID, "err", err)
		return l.sendRefusal(err)
	}
	defer clearValues(values)
	l.s.Step("send")
	if err := l.WriteJSON(answerOK, out); err != nil {
		return err
	}
	for _, v := range values {
		if err := l.WriteFrame(aValue, v); err != nil {
			return err
		}
	}
	l.s.Step("sent")
	return nil
}

// handleMessage executes one message. A panic becomes an error with the location only: the panic value, and the arguments in a
// stack trace, may be secrets.
func (l *clientConn) handleMessage(kind byte, payload []byte) (out any, values [][]byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.s.Log.Error("the broker broke", "panic", fmt.Sprintf("%T", p), "at", panicCallers())
			out, values, err = nil, nil, bailey.Internal.New("the broker broke, and lent nothing",
				"report it with the broker's log")
		}
	}()
	a, err := readAsk(payload)
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case askHello:
		return l.s.helloAnswer(), nil, nil
	case askScope:
		out, err = l.s.loanScopes(l.UID, a)
		return out, nil, err
	case askLend:
		return l.lendValues(a)
	case askReturn:
		return struct{}{}, nil, l.returnLoan(a)
	case askApply:
		return struct{}{}, nil, l.applyTable(a)
	case askMake:
		out, err = l.makeKey()
		return out, nil, err
	case askKeys:
		out, err = l.listKeys(a)
		return out, nil, err
	case askSign:
		out, err = l.signText(a)
		return out, nil, err
	}
	return nil, nil, bailey.Invalid.Errorf("install both of one version of bailey",
		"the broker knows no message of kind %q", kind)
}

// panicCallers returns the functions of a panic, innermost first.
func panicCallers() string {
	pcs := make([]uintptr, 24)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var list []string
	for {
		f, more := frames.Next()
		list = append(list, fmt.Sprintf("%s:%d", f.Function, f.Line))
		if !more {
			return strings.Join(list, " ")
		}
	}
}

func (l *clientConn) sendRefusal(err error) error {
	return l.WriteJSON(answerErr,
		refusal{Kind: string(bailey.KindOf(err)), Message: err.Error(), Hint: bailey.HintOf(err)})
}

func (s *Server) helloAnswer() Hello {
	t := s.table.Load()
	h := Hello{Version: version, Program: s.Program, PID: os.Getpid(), Table: t.Digest, Open: s.journal.countOpen(),
		Leases: []string{}}
	if now, err := s.ReadTable(); err != nil || now.Digest != t.Digest {
		h.Changed = true
	}
	for name, e := range t.Leases {
		h.Leases = append(h.Leases, name+": "+e.String())
	}
	slices.Sort(h.Leases)
	return h
}

func (l *clientConn) applyTable(a brokerRequest) error {
	if l.UID != os.Geteuid() {
		return deniedError("run bailey-broker apply as the broker's own user", "uid %d changes no table of this broker",
			l.UID)
	}
	return l.s.Apply(a.Digest)
}

// mayBorrow returns an error unless the table lists the uid. The broker's own uid may query and apply without being
// listed.
func (t *Table) mayBorrow(uid int) error {
	if slices.Contains(t.Admitted, uid) {
		return nil
	}
	return deniedError("name it under admitted in "+TableName+", then bailey-broker apply", "uid %d is not admitted",
		uid)
}

func (s *Server) loanScopes(uid int, a brokerRequest) (out scopes, err error) {
	t := s.table.Load()
	if err := t.mayBorrow(uid); err != nil {
		return out, err
	}
	out.Scopes = []scope{}
	for _, w := range a.Wants {
		e, err := t.findEntry(w)
		if err != nil {
			return out, err
		}
		out.Scopes = append(out.Scopes, e.loanScope(w))
	}
	return out, nil
}

func clearValues(values [][]byte) {
	for _, v := range values {
		clear(v)
	}
}

var _ io.Closer = (*Server)(nil)
