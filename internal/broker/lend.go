package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
)

// loan contains the leases of one call.
type loan struct {
	until time.Time // end of the loan: the shortest TTL of its leases
	parts []mintedLease

	syncs []func() error // make the handles of the parts durable
}

// mintedLease is one lease of a loan.
type mintedLease struct {
	entry
	from   Adapter
	handle []byte
}

// revokeTimeout limits the time that an issuer may take to revoke a value.
const revokeTimeout = 5 * time.Second

// lendValues is the only way to get a value. It checks the request against the table and the answer, marks the answer
// as used, and mints the values. A line in the journal must record all of this on the disk before the values leave.
func (l *clientConn) lendValues(a brokerRequest) (any, [][]byte, error) {
	t := l.s.table.Load()
	if err := t.mayBorrow(l.UID); err != nil {
		return nil, nil, err
	}
	if l.out != nil {
		return nil, nil, bailey.Conflict.New("this connection already has a loan",
			"use one connection for each call")
	}
	entries, err := t.wantedEntries(a)
	if err != nil {
		return nil, nil, err
	}
	now := l.s.Now()
	e := event{At: now.UTC(), Event: "lend", Receipt: a.Receipt, Capability: a.Capability, UID: &l.UID, PID: l.PID,
		Exe: l.s.exe(l.PID)}
	release := func() {}
	switch wanted := slices.ContainsFunc(entries, func(e Entry) bool { return e.Approval != nil }); {
	case !wanted && a.Text != "":
		if _, err := shownAs(a, entries, now); err != nil {
			return nil, nil, err
		}
	case wanted:
		q, by, err := t.verifyAnswer(a, entries, now)
		if err != nil {
			return nil, nil, err
		}
		e.Text, e.Nonce = approvaltext.Digest(a.Text), q.Nonce
		for _, s := range by {
			e.By = append(e.By, s.String())
		}
		if release, err = l.s.journal.markUsed(e.Text, e.Nonce); err != nil {
			return nil, nil, err
		}
	}
	l.s.Step("mint")
	made, values, err := l.s.mintValues(l.ctx, a, entries, now)
	if err != nil {
		release()
		return nil, nil, err
	}
	for _, p := range made.parts {
		e.Leases = append(e.Leases, p.entry)
	}
	l.out = made // from here on, every exit ends the loan
	l.s.loans.Store(l, made)
	if err := l.s.recordLoan(made, e); err != nil {
		clearValues(values)
		return nil, nil, err
	}
	return made.lentAnswer(), values, nil
}

// recordLoan makes a loan durable: the handles that revoke it and the line in the journal, on the disk at the same time.
func (s *Server) recordLoan(made *loan, e event) error {
	errs := make([]error, len(made.syncs)+1)
	var all sync.WaitGroup
	for i, do := range made.syncs {
		all.Go(func() { errs[i] = do() })
	}
	errs[len(made.syncs)] = s.journal.appendEvent(e, true)
	all.Wait()
	made.syncs = nil
	return errors.Join(errs...)
}

// wantedEntries returns the entries of the table, in the order of the wants.
func (t *Table) wantedEntries(a brokerRequest) (list []Entry, err error) {
	if len(a.Wants) == 0 {
		return nil, bailey.Invalid.New("the loan names no credential", "name a credential")
	}
	for _, w := range a.Wants {
		e, err := t.findEntry(w)
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	return list, nil
}

// mintValues makes every value, or none.
func (s *Server) mintValues(ctx context.Context, a brokerRequest, entries []Entry,
	now time.Time) (made *loan, values [][]byte, err error) {
	made = &loan{}
	defer func() {
		if err != nil {
			clearValues(values)
			for _, p := range made.parts {
				s.revokeLease(p)
			}
			for _, do := range made.syncs { // what could not be revoked must stay known
				err = errors.Join(err, do())
			}
			values = nil
		}
	}()
	ttl := maxTTL
	for i, e := range entries {
		m, err := mintOne(ctx, e)
		if m.Handle != nil || err == nil {
			p := mintedLease{entry{ID: "l-" + strings.ToLower(rand.Text()), Name: a.Wants[i].Name, Mint: m.ID, Until: m.Until},
				e.mint, m.Handle}
			values, made.parts = append(values, m.Value), append(made.parts, p)
			if m.Handle != nil { // also of a value that is not lent: it must be revoked
				flush, err := s.keepHandle(p.entry, m.Handle)
				if err != nil {
					return made, values, err
				}
				made.syncs = append(made.syncs, flush)
			}
		}
		if err != nil {
			return made, values, unavailableError(err, bailey.HintOf(err), "credential %q has no value", a.Wants[i].Name)
		}
		if fault := valueFault(m.Value); fault != "" {
			return made, values, bailey.Invalid.Errorf("correct the value at its source",
				"credential %q %s", a.Wants[i].Name, fault)
		}
		ttl = min(ttl, e.TTL)
	}
	made.until = now.Add(ttl)
	return made, values, nil
}

// mintOne asks the source of one value, which may be a server that does not answer.
func mintOne(ctx context.Context, e Entry) (Minted, error) {
	ctx, cancel := context.WithTimeout(ctx, issuerTimeout)
	defer cancel()
	return e.mint.Mint(ctx, e.TTL)
}

func (m *loan) lentAnswer() loanAnswer {
	out := loanAnswer{Leases: []lease{}}
	for _, p := range m.parts {
		out.Leases = append(out.Leases, lease{ID: p.ID, Mint: p.Mint, Until: p.Until, Ends: p.handle != nil})
	}
	return out
}

// returnLoan ends the loan of this connection. A loan that has ended, or that belongs to another connection, is not
// found.
func (l *clientConn) returnLoan(a brokerRequest) error {
	var held []string
	if l.out != nil {
		for _, p := range l.out.parts {
			held = append(held, p.ID)
		}
	}
	if held == nil || !slices.Equal(held, a.IDs) {
		return bailey.NotFound.New("this connection has no such loan: it has ended, or belongs to another",
			"use each loan once")
	}
	l.endLoan("returned")
	return nil
}

// endLoan revokes the leases that can be revoked and records the others.
func (l *clientConn) endLoan(why string) {
	if l.out == nil {
		return
	}
	parts := l.out.parts
	l.out = nil
	l.s.loans.Delete(l)
	for _, p := range parts {
		l.s.endLease(p, why)
	}
}

func (s *Server) endLease(p mintedLease, why string) {
	e := event{At: s.Now().UTC(), Event: "end", Lease: p.ID, Why: why}
	if err := s.revokeLease(p); err != nil {
		s.Log.Warn("cannot revoke a lease", "lease", p.ID, "err", err)
		e.Why += "; not revoked"
	}
	if p.Until.After(s.Now()) {
		e.Lives = p.Until
	}
	if err := s.journal.appendEvent(e, false); err != nil {
		s.Log.Error("cannot record the end of a lease", "lease", p.ID, "err", err)
	}
}

// revokeLease asks the issuer to revoke. If that fails, it is tried again each minute and at the next start, until the
// value has expired.
func (s *Server) revokeLease(p mintedLease) error {
	ctx, cancel := context.WithTimeout(context.Background(), revokeTimeout)
	defer cancel()
	err := p.from.Revoke(ctx, p.Mint, p.handle)
	if p.handle == nil {
		return err
	}
	if err != nil && (p.Until.IsZero() || p.Until.After(s.Now())) {
		s.unrevoked.Store(p.ID, p)
		return err
	}
	s.unrevoked.Delete(p.ID)
	return errors.Join(err, os.Remove(s.issuedFile(p.ID)))
}

// retryRevoking revokes until ctx ends what could not be revoked before.
func (s *Server) retryRevoking(ctx context.Context) {
	tick := time.NewTicker(s.Retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.unrevoked.Range(func(_, lease any) bool {
			p := lease.(mintedLease)
			if err := s.revokeLease(p); err != nil {
				s.Log.Warn("still cannot revoke a lease", "lease", p.ID, "err", err)
			} else if err := s.journal.appendEvent(event{At: s.Now().UTC(), Event: "end", Lease: p.ID, Why: "revoked later"}, false); err != nil {
				s.Log.Error("cannot record the end of a lease", "lease", p.ID, "err", err)
			}
			return ctx.Err() == nil
		})
	}
}

// revokeLoans ends the open loans that contain one of the named leases, or all if none is named. The credentials are
// revoked as at the end of a call; the calls continue without them.
func (l *clientConn) revokeLoans(a brokerRequest) (out revoked, err error) {
	if l.UID != os.Geteuid() {
		return out, deniedError("run bailey-broker revoke as the broker's own user",
			"uid %d may not end the loans of others",
			l.UID)
	}
	named := func(p mintedLease) bool {
		return len(a.Wants) == 0 || slices.ContainsFunc(a.Wants, func(w want) bool { return w.Name == p.Name })
	}
	l.s.loans.Range(func(conn, lent any) bool {
		if slices.ContainsFunc(lent.(*loan).parts, named) {
			out.Loans++
			c := conn.(*clientConn)
			c.revoked.Store(true)
			c.Close()
		}
		return true
	})
	return out, nil
}

// endLeft ends the loans that an earlier broker process left open, and revokes what it could not revoke or not record.
func (s *Server) endLeft(context.Context) {
	t, handles := s.table.Load(), s.takeHandles()
	var all sync.WaitGroup // an issuer that is away must not delay the others
	slots := make(chan struct{}, 16)
	end := func(e entry, handle []byte) {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s.endLease(mintedLease{e, t.adapterOf(e.Name), handle}, "the broker stopped first")
		})
	}
	for _, e := range s.journal.openLeases() {
		end(e, handles[e.ID].Handle)
		delete(handles, e.ID)
	}
	for id, r := range handles {
		end(entry{id, r.Name, r.Mint, r.Until}, r.Handle)
	}
	all.Wait()
}

func (t *Table) adapterOf(lease string) Adapter {
	if e, ok := t.Leases[lease]; ok {
		return e.mint
	}
	return missingAdapter{}
}

// missingAdapter is the adapter of a lease that is no longer in the table.
type missingAdapter struct{}

func (missingAdapter) Revoke(_ context.Context, _ string, handle []byte) error {
	if handle == nil {
		return nil
	}
	return unavailableError(
		nil,
		"put the lease back into the table and restart the broker",
		"it is no longer in the table",
	)
}

func (missingAdapter) Mint(context.Context, time.Duration) (Minted, error) {
	return Minted{}, unavailableError(nil, "", "it is no longer in the table")
}
