package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/gateway"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// metricsReply is the answer of the gateway: metrics in the text format of Prometheus.
type metricsReply struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
}

func (a *app) metricsVerb() *cobra.Command {
	return &cobra.Command{
		Use: "metrics", Short: "Print the running gateway's metrics for Prometheus",
		Long: `Print what the running gateway counted, in Prometheus' text format: calls by status and class, how long their stages took, the
ledger's size, open calls, sessions, calls that were suppressed, redactions by category. It starts no gateway and opens no
port: node_exporter's textfile collector takes the output of a timer.`,
		Example: "  bailey metrics > metrics.new && mv metrics.new /var/lib/node_exporter/bailey.prom",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := wire.FindHome()
			if err != nil {
				return err
			}
			var r metricsReply
			if err := (&wire.Client{Home: home}).Look(cmd.Context(), wire.Query{Verb: "metrics"}, &r); err != nil {
				return unmeasured(home, err)
			}
			if a.json {
				return a.print(r)
			}
			_, err = fmt.Fprint(a.stdout, r.Text)
			return err
		},
	}
}

// unmeasured adds a hint if no gateway is running.
func unmeasured(home wire.Home, err error) error {
	if !errors.Is(err, wire.ErrUnreachable) || bailey.HintOf(err) != "" {
		return err
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: "no gateway runs in " + string(home) + ", and its counts ended with it", Hint: "the next call starts one, which counts from zero; bailey status tells what runs", Err: err}
}

// metrics is a query.
func (s *stack) metrics(context.Context, wire.Query, bailey.Call) (any, error) {
	entries, segments, bytes, err := s.ledger.Extent()
	if err != nil {
		return nil, err
	}
	calls, sessions := s.live.Now()
	var out strings.Builder
	err = s.meter.Write(&out, gateway.Gauges{Entries: entries, Segments: uint64(segments), Bytes: uint64(bytes),
		Open: len(calls), Sessions: len(sessions), Suppressed: s.limit.Refused()})
	return metricsReply{OK: err == nil, Text: out.String()}, err
}

// watched wraps the ledger for the gate: entries also update the live calls, the metrics and the traces.
func (s *stack) watched() gate.Ledger {
	return s.live.Ledger(s.tracer.Ledger(s.meter.Ledger(s.ledger, s.class)))
}

// class returns the side effect class of a capability.
func (s *stack) class(id bailey.CapabilityID) string {
	m, err := s.shelf.Catalog().Lookup(id)
	if err != nil {
		return "unknown"
	}
	return string(m.SideEffect)
}

// observe records the duration of each stage of a call.
func (s *stack) observe(step gate.Step) {
	s.meter.Stage(step.Stage, step.Took)
	s.tracer.Step(step)
}

// openTracer opens the trace file that the environment names. It returns nil if name is empty.
func openTracer(name string, log *slog.Logger) (*gateway.Tracer, *os.File, error) {
	if name == "" {
		return nil, nil, nil
	}
	refused := func(err error) error {
		return &bailey.Error{Kind: bailey.Invalid, Message: wire.TraceVariable + " names " + terminal.Shown(name) + ", which takes no spans", Err: err,
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
