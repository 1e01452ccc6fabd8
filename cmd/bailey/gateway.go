package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/wire"
)

// gatewayVerb runs the gateway in the foreground. Clients start a gateway in the background automatically.
func (a *app) gatewayVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "gateway", Short: "Run the gateway in the foreground", Args: cobra.NoArgs,
		Long:   "Run the gateway of $BAILEY_HOME in the foreground. There is no need to: the first call starts one,\nwhich ends after ten idle minutes.",
		PreRun: a.warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ready := readyPipe()
			home, err := wire.FindHome()
			if err != nil {
				return err
			}
			redaction := gateway.NewRedaction()
			log := newLog(redaction, a.stderr)
			a.stderr = redaction.Lines(a.stderr) // its final error is logged too and must be redacted
			s, err := build(cmd.Context(), home, commandNames{a.topVerbs(), agentVerbs}, redaction, log)
			announce(ready, err)
			if err != nil {
				return err
			}
			if why, err := ledger.Durability(home.Ledger()); err != nil || why != "" {
				log.Warn("a crash of the machine may lose receipts", "why", why, "err", err)
			}
			err = s.serve(cmd.Context())
			if err == nil {
				err = context.Cause(cmd.Context())
			}
			if errors.Is(err, context.Canceled) { // any end without a failure of the gateway
				log.Info("the gateway ends", "why", err)
				return nil
			}
			return err
		},
	}
	cmd.AddCommand(a.gatewayStopVerb())
	return cmd
}

// newLog returns the gateway's log. Errors and panics can carry data of calls into it, so each record is redacted.
func newLog(r *gateway.Redaction, to io.Writer) *slog.Logger {
	return slog.New(r.Log(slog.NewTextHandler(to, nil)))
}

func (a *app) gatewayStopVerb() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "End the running gateway and wait until it is gone", Args: cobra.NoArgs,
		Long: `End the gateway of $BAILEY_HOME, of whatever version it is, and wait until it is gone. Open calls are
killed and get their outcomes. The next call starts a new gateway: after an update, the new version.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			stopped, err := c.Stop(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.print(map[string]bool{"ok": true, "stopped": stopped})
			}
			word := "no gateway was running"
			if stopped {
				word = "the gateway has ended"
			}
			_, err = fmt.Fprintln(a.stdout, word)
			return err
		},
	}
}

func readyPipe() *os.File {
	ready := wire.Inherited(os.Getenv(wire.ReadyVariable))
	if ready != nil {
		os.Unsetenv(wire.ReadyVariable)
	}
	return ready
}

// announce tells the client that started the gateway that it is ready, or why it failed to start.
func announce(ready *os.File, err error) {
	if ready == nil {
		return
	}
	defer ready.Close()
	word := []byte("ready")
	if err != nil {
		word, _ = json.Marshal(map[string]string{"kind": string(bailey.KindOf(err)), "message": err.Error(), "hint": bailey.HintOf(err)})
	}
	ready.Write(append(word, 0))
}

// spawn starts this program as the gateway of the home.
func spawn(h wire.Home, ready *os.File) (*os.Process, error) {
	self, err := ownFile()
	if err != nil {
		return nil, err
	}
	return wire.Spawn(h, self, ready)
}
