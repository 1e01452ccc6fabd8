package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// metrics is a query.
func (s *Server) metrics(context.Context, localapi.Query, bailey.Call) (any, error) {
	entries, segments, bytes, err := s.ledger.Extent()
	if err != nil {
		return nil, err
	}
	calls, sessions := s.live.Now()
	var out strings.Builder
	err = s.meter.Write(&out, gateway.Gauges{Entries: entries, Segments: uint64(segments), Bytes: uint64(bytes),
		Open: len(calls), Sessions: len(sessions), Suppressed: s.limit.Refused()})
	return apitype.MetricsReply{OK: err == nil, Text: out.String()}, err
}

// watched wraps the ledger for the gate: entries also update the live calls, the metrics and the traces.
func (s *Server) watched() gate.Ledger {
	return s.live.Ledger(s.tracer.Ledger(s.meter.Ledger(s.ledger, s.class)))
}

// class returns the side effect class of a capability.
func (s *Server) class(id bailey.CapabilityID) string {
	m, err := s.shelf.Catalog().Lookup(id)
	if err != nil {
		return "unknown"
	}
	return string(m.SideEffect)
}

// observe records the duration of each stage of a call.
func (s *Server) observe(step gate.Step) {
	s.meter.Stage(step.Stage, step.Took)
	s.tracer.Step(step)
}

// openTracer opens the trace file that the environment names. It returns nil if name is empty.
func openTracer(name string, log *slog.Logger) (*gateway.Tracer, *os.File, error) {
	if name == "" {
		return nil, nil, nil
	}
	refused := func(err error) error {
		return &bailey.Error{Kind: bailey.Invalid, Message: localapi.TraceVariable + " names " + terminal.Shown(name) + ", which takes no spans", Err: err,
			Hint: "name an absolute path: a file that is missing, or regular and 0600"}
	}
	if !filepath.IsAbs(name) {
		return nil, nil, refused(errors.New("it is no absolute path"))
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND|safefile.NoFollow|safefile.NoWait, 0o600)
	if err != nil {
		return nil, nil, refused(err)
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || safefile.Wide(info)) {
		err = fmt.Errorf("it is %v", info.Mode())
	}
	if err != nil {
		f.Close()
		return nil, nil, refused(err)
	}
	return gateway.NewTracer(f, log), f, nil
}
