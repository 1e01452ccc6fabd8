package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// Config is the configuration of a server. Dir is required; all other fields may be zero.
type Config struct {
	Dir      string
	Socket   string                 // default: in Dir, where only the broker's own user can connect
	Adapters map[string]Make        // default: [Adapters]
	Program  string                 // version of the program, for the record
	Now      func() time.Time       // default: time.Now
	Step     func(string)           // is called before each step of a loan; for tests
	Told     func(uid, pid int)     // is called for a peer that is not admitted; default: writes to the log
	Log      *slog.Logger           // default: none
	Ready    func(socket string)    // is called when the socket exists
	Idle     time.Duration          // how long a connection without a loan may be silent; default: 30 s
	Most     int                    // connections at the same time; default: 1024
	Retry    time.Duration          // between attempts to revoke what its issuer did not revoke; default: 1 min
	exe      func(pid int) string   // for tests
	perm     func(dir string) error // for tests
}

// Server lends credentials. It owns its directory from New until Close.
type Server struct {
	Config
	lock    *os.File
	journal *journal
	table   atomic.Pointer[Table] // nil until an applied table was read
	applies sync.Mutex            // one at a time
	live    atomic.Int64          // connections
	loans   sync.Map              // *clientConn with an open loan: its *loan

	unrevoked sync.Map   // id of a lease whose issuer did not revoke it yet: its mintedLease
	signs     sync.Mutex // held from the check of a key's last signature until the line of the next one is written
}

// New takes ownership of the directory, which must be private to this user and not in use by another broker. It reads
// the journal and starts nothing.
func New(c Config) (*Server, error) {
	s := &Server{Config: c}
	s.setDefaults()
	if err := s.perm(c.Dir); err != nil {
		return nil, notOurs(c.Dir, err)
	}
	var err error
	if s.lock, err = lockDir(filepath.Join(c.Dir, lockName)); err != nil {
		return nil, bailey.Conflict.Wrap(err, "another broker serves "+c.Dir,
			"stop that one, or use another directory for this one")
	}
	if s.journal, err = readJournal(filepath.Join(c.Dir, journalName), s.Step); err != nil {
		s.lock.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) setDefaults() {
	s.Socket = cmp.Or(s.Socket, filepath.Join(s.Dir, SocketName))
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	s.Idle = cmp.Or(s.Idle, 30*time.Second)
	s.Most = cmp.Or(s.Most, 1024)
	s.Retry = cmp.Or(s.Retry, time.Minute)
	if s.Adapters == nil {
		s.Adapters = Adapters()
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Step == nil {
		s.Step = func(string) {}
	}
	if s.Told == nil {
		s.Told = s.unadmittedLogger()
	}
	if s.Ready == nil {
		s.Ready = func(string) {}
	}
	if s.exe == nil {
		s.exe = peer.Executable
	}
	if s.perm == nil {
		s.perm = peer.Owned
	}
}

// unadmittedLogger logs peers that are not admitted, at most once per second: any user may connect and must not be able
// to fill the log. Only the accepting goroutine calls it.
func (s *Server) unadmittedLogger() func(uid, pid int) {
	var last time.Time
	more := 0
	return func(uid, pid int) {
		if more++; time.Since(last) < time.Second {
			return
		}
		s.Log.Warn("peer not admitted", "uid", uid, "pid", pid, "exe", s.exe(pid), "since the last message", more)
		last, more = time.Now(), 0
	}
}

func notOurs(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return bailey.NotFound.New("the broker's directory "+dir+" does not exist",
			"mkdir -m 700 "+dir+", as the broker's own user")
	}
	var e *bailey.Error
	if errors.As(err, &e) && e.Hint == "set BAILEY_HOME to a directory that you own" {
		return e.Kind.New(e.Message, "run this as the owner of the directory: runuser -u bailey-broker -- …")
	}
	return err
}

// Close releases the directory.
func (s *Server) Close() error { return errors.Join(s.journal.f.Close(), s.lock.Close()) }

// Run serves until ctx ends. The table file must be the one that was last applied.
func (s *Server) Run(ctx context.Context) error {
	if err := s.loadApplied(); err != nil {
		return err
	}
	if err := s.journal.appendEvent(event{At: s.Now().UTC(), Event: "start", Program: s.Program, PID: os.Getpid()},
		true); err != nil {
		return err
	}
	s.endLeft(ctx)
	l, err := s.listenSocket()
	if err != nil {
		return err
	}
	l.Refused = s.Told
	ctx, cancel := context.WithCancel(ctx)
	var links sync.WaitGroup
	defer links.Wait()
	defer cancel()
	links.Go(func() { s.retryRevoking(ctx) })
	context.AfterFunc(ctx, func() { l.Close() })
	s.noteSocket()
	s.Ready(s.Socket)
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ECONNABORTED):
			s.Log.Warn("accepting", "err", err)
			time.Sleep(100 * time.Millisecond) // until connections have ended
			continue
		case err != nil:
			return fmt.Errorf("the broker's socket: %w", err)
		}
		links.Go(func() { s.serveConn(ctx, c) })
	}
}

// listenSocket creates the socket. If it is in the broker's own directory, only the broker's user can reach it.
// Elsewhere every user can connect, and the kernel reports the uid.
func (s *Server) listenSocket() (*peer.Listener, error) {
	return peer.ListenFor(s.Socket, func(uid int) bool { return s.table.Load().canConnect(uid, os.Geteuid()) })
}

// noteSocket writes the socket's path to the lock file, where apply reads it.
func (s *Server) noteSocket() {
	if err := errors.Join(s.lock.Truncate(0),
		func() error { _, err := s.lock.WriteAt([]byte(s.Socket), 0); return err }()); err != nil {
		s.Log.Warn("the lock file", "err", err)
	}
}

// RunningSocket returns the socket of the broker that serves a directory.
func RunningSocket(dir string) (string, error) {
	b, err := readPrivate(filepath.Join(dir, lockName), 4096)
	if err == nil && len(b) == 0 {
		err = unavailableError(nil, "wait a moment, or start it", "no broker listens for %s", dir)
	}
	return string(b), err
}

// loadApplied starts to use the table that was last applied. It fails if the file has changed since.
func (s *Server) loadApplied() error {
	last := s.journal.appliedEvent()
	if last.Digest == "" {
		return unavailableError(nil, "write "+filepath.Join(s.Dir, TableName)+", then bailey-broker apply --dir "+s.Dir,
			"no table was applied: this broker lends nothing")
	}
	t, err := s.ReadTable()
	if err != nil {
		return err
	}
	if t.Digest != last.Digest {
		return deniedError("bailey-broker apply --dir "+s.Dir+" shows the difference and applies it",
			"%s has changed since it was applied", TableName)
	}
	s.table.Store(t)
	return nil
}

// ReadTable reads the file in its current state, whether it was applied or not.
func (s *Server) ReadTable() (*Table, error) {
	text, err := readPrivate(filepath.Join(s.Dir, TableName), maxTable)
	if err != nil {
		return nil, err
	}
	defer clear(text)
	return ParseTable(text, s.Dir, s.Adapters)
}

// Applied returns the digest and the lines of the table that was last applied.
func (s *Server) Applied() (digest string, lines []string) {
	e := s.journal.appliedEvent()
	return e.Digest, e.Table
}

// Apply starts to use the file if it still has the digest that a person has seen.
func (s *Server) Apply(digest string) error {
	s.applies.Lock()
	defer s.applies.Unlock()
	t, err := s.ReadTable()
	if err != nil {
		return err
	}
	if t.Digest != digest {
		return bailey.Conflict.New(TableName+" changed meanwhile", "check it again: bailey-broker apply")
	}
	if err := s.journal.appendEvent(event{At: s.Now().UTC(), Event: "apply", Digest: t.Digest, Table: t.Lines(),
		PID: os.Getpid()}, true); err != nil {
		return err
	}
	s.table.Store(t)
	return nil
}

// clientConn is a connection and its loan.
type clientConn struct {
	*peer.Conn
	s   *Server
	ctx context.Context
	out *loan // nil if it has no loan

	revoked atomic.Bool // the operator ended the loan
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
		l.sendRefusal(unavailableError(nil, "wait until other calls have ended", "too many connections: %d",
			s.Most))
		return
	}
	for {
		kind, payload, err := l.readMessage()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				why = "it timed out"
			}
			switch {
			case ctx.Err() != nil:
				why = "the broker stopped"
			case l.revoked.Load():
				why = "the operator revoked it"
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

// answerMessage answers one message. If it returns an error, the connection must end. A mistake of the client is
// answered and is not such an error.
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

// handleMessage executes one message. A panic becomes an error with the location only: the panic value, and the
// arguments in a stack trace, may be secrets.
func (l *clientConn) handleMessage(kind byte, payload []byte) (out any, values [][]byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.s.Log.Error("the broker failed", "panic", fmt.Sprintf("%T", p), "at", panicCallers())
			out, values, err = nil, nil, bailey.Internal.New("the broker failed and lent nothing",
				"report this with the broker's log")
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
	case askRevoke:
		out, err = l.revokeLoans(a)
		return out, nil, err
	case askMake:
		out, err = l.makeKey()
		return out, nil, err
	case askKeys:
		out, err = l.listKeys(a)
		return out, nil, err
	case askSign:
		out, err = l.signText(a)
		return out, nil, err
	case askCertify:
		out, err = l.certifyKey(a)
		return out, nil, err
	case askTrusted:
		out, err = l.trustedKeys(a)
		return out, nil, err
	}
	return nil, nil, bailey.Invalid.Errorf("install gateway and broker of one version of bailey",
		"unknown message of kind %q", kind)
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
		Leases: []string{}, Wide: t.TooWide()}
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
		return deniedError("run bailey-broker apply as the broker's own user", "uid %d may not change this table",
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
