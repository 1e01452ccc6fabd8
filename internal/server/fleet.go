package server

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"bailey/audit"
	"bailey/internal/enrol"
	"bailey/internal/fleet"
	"bailey/internal/ledger"
	"bailey/internal/ledger/notary"
	"bailey/internal/localapi/apitype"
)

// openFleet prepares the connection to a control plane. Without an enrolment nothing connects.
func (s *Server) openFleet() {
	s.fleet = &enrol.Keeper{Dir: enrol.DirOf(string(s.home)), Register: s.describeGateway, Log: s.Log,
		Handlers: s.fleetHandlers(), Opened: func() { s.reportQuestions(); s.resources.forgetLast(); s.askResources() },
		Receipts: func() fleet.Receiptsource { return &lineSource{ledger: s.ledger, notary: s.notary} },
		Begun: func(ctx context.Context, e enrol.Enrolment) error {
			s.enrolled.Store(&e)
			return s.scribe.recordEvent(ctx, "gateway.enrolled", map[string]string{"url": e.URL, "host": e.Host,
				"organisation": e.Organisation})
		}}
	s.reports = s.fleet
}

// describeGateway returns the registration. Without a key for checkpoints the gateway connects without receipts.
func (s *Server) describeGateway(ctx context.Context) (fleet.Register, error) {
	r := fleet.Register{Kind: fleet.Gateway, Version: apitype.Version, Arch: runtime.GOARCH}
	if e := s.enrolled.Load(); e != nil && e.Kind == enrol.SandboxHost {
		r.Kind = fleet.SandboxHost
		ctx, cancel := context.WithTimeout(ctx, fleet.HeartbeatEvery/2) // the report follows anyway
		has := s.describeResources(ctx)
		cancel()
		r.Capacity, r.Images, r.Networks = has.Capacity, has.Images, has.Networks
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, v := range info.Settings {
			switch v.Key {
			case "GOOS":
				r.OS = v.Value
			case "vcs.revision":
				r.Commit = v.Value
			}
		}
	}
	key, err := s.notary.Key(ctx)
	if err != nil {
		s.Log.Warn("receipts are not sent to the control plane: the ledger has no key", "error", err)
		return r, nil
	}
	r.Ledger = &fleet.Ledger{Origin: key.Name(), PublicKey: key.String()}
	return r, nil
}

// answerStatus answers the command "status" of the control plane.
func (s *Server) answerStatus(context.Context, []byte) ([]byte, error) {
	return json.Marshal(map[string]any{"version": apitype.Version, "pid": os.Getpid(), "since": s.since.UTC(),
		"policy": s.Rules.Engine().Digest(), "settings": s.settings.Digest()})
}

// lineSource gives the durable lines of the ledger up to a signed checkpoint.
type lineSource struct {
	ledger *ledger.Log
	notary *notary.Notary

	signed []byte           // the checkpoint up to which lines are sent
	upTo   audit.Checkpoint // its content
	last   ledger.Place     // of the line sent last
}

const (
	lookForLines = 500 * time.Millisecond
	batchBytes   = 1 << 20
)

// Next implements [fleet.Receiptsource].
func (l *lineSource) Next(ctx context.Context, from uint64) (*fleet.Receipts, error) {
	for l.upTo.Size <= from {
		at := l.ledger.Durable()
		size := at.Tree.Size()
		if size < from { // the control plane sees by the checkpoint that this ledger was set back
			signed, err := l.notary.Sign(ctx)
			return &fleet.Receipts{From: size, Checkpoint: signed}, err
		}
		if size > from {
			if err := l.signUpTo(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err := pauseFor(ctx, lookForLines); err != nil {
			return nil, err
		}
	}
	return l.collectLines(ctx, from)
}

// sign signs a checkpoint. The notary reads the whole ledger for it, so signing may take a twentieth of the time.
func (l *lineSource) signUpTo(ctx context.Context) error {
	begun := time.Now()
	signed, err := l.notary.Sign(ctx)
	if err != nil {
		return err
	}
	l.signed = signed
	if l.upTo, err = audit.ReadCheckpoint(signed); err != nil {
		return err
	}
	return pauseFor(ctx, 20*time.Since(begun))
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// collect returns a batch of lines. The one with the last line up to the checkpoint has the checkpoint.
func (l *lineSource) collectLines(ctx context.Context, from uint64) (*fleet.Receipts, error) {
	if l.last.Seq != from {
		l.last = ledger.Place{} // after a reconnection: read from the beginning
	}
	batch := &fleet.Receipts{From: from}
	for e, err := range l.ledger.Entries(ctx, l.last, l.ledger.Durable()) {
		if err != nil {
			return nil, err
		}
		if e.Seq > l.upTo.Size {
			break
		}
		if l.last = e.At; e.Seq <= from {
			continue
		}
		line, _, err := audit.Append(e.Prev, e.Entry) // its one encoding
		if err != nil {
			return nil, err
		}
		batch.Lines = append(batch.Lines, line...)
		if e.Seq == l.upTo.Size {
			batch.Checkpoint = l.signed
		}
		if len(batch.Lines) > batchBytes {
			break
		}
	}
	return batch, nil
}

// Cosigned implements [fleet.Receiptsource].
func (l *lineSource) Cosigned(context.Context, *fleet.Cosigned) {}
