package direct

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/cli"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/server"
)

// gatewayVerb runs the gateway in the foreground. Clients start a gateway in the background automatically.
func (a *commands) gatewayVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "gateway", Short: "Run the gateway in the foreground", Args: cobra.NoArgs,
		Long:   "Run the gateway of $BAILEY_HOME in the foreground. This is optional: the first call starts a gateway,\nwhich stops after ten idle minutes.",
		PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ready := readyPipe()
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			redaction := gateway.NewRedaction()
			log := server.NewLog(redaction, a.Stderr)
			a.Stderr = redaction.Lines(a.Stderr) // its final error is logged too and must be redacted
			s, err := server.New(cmd.Context(), home, server.Commands{All: a.TopVerbs(), ForAgents: cli.AgentVerbs},
				redaction, log)
			announceReady(ready, err)
			if err != nil {
				return err
			}
			if why, err := ledger.Durability(home.Ledger()); err != nil || why != "" {
				log.Warn("receipts may be lost if the machine crashes", "why", why, "err", err)
			}
			err = s.Serve(cmd.Context())
			if err == nil {
				err = context.Cause(cmd.Context())
			}
			if errors.Is(err, context.Canceled) { // any end without a failure of the gateway
				log.Info("the gateway stops", "why", err)
				return nil
			}
			return err
		},
	}
	cmd.AddCommand(a.gatewayStopVerb())
	return cmd
}

func (a *commands) gatewayStopVerb() *cobra.Command {
	return &cobra.Command{
		Use: "stop", Short: "Stop the running gateway and wait until it has ended", Args: cobra.NoArgs,
		Long: `Stop the gateway of $BAILEY_HOME, of any version, and wait until it has ended. Open calls are
killed and get their outcomes. The next call starts a new gateway: after an update, the new version.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			stopped, err := c.Stop(cmd.Context())
			if err != nil {
				return err
			}
			word := "no gateway was running"
			if stopped {
				word = "the gateway has stopped"
			}
			return a.PrintLine(map[string]bool{"ok": true, "stopped": stopped}, "%s\n", word)
		},
	}
}

func readyPipe() *os.File {
	ready := localapi.Inherited(os.Getenv(localapi.ReadyVariable))
	if ready != nil {
		os.Unsetenv(localapi.ReadyVariable)
	}
	return ready
}

// announceReady tells the client that started the gateway that it is ready, or why it failed to start.
func announceReady(ready *os.File, err error) {
	if ready == nil {
		return
	}
	defer ready.Close()
	word := []byte("ready")
	if err != nil {
		word, _ = json.Marshal(map[string]string{"kind": string(bailey.KindOf(err)), "message": err.Error(),
			"hint": bailey.HintOf(err)})
	}
	ready.Write(append(word, 0))
}
