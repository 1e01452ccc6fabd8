package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
)

// gatewayVerb runs the gateway in the foreground. Clients start it in the background by themselves.
func (a *app) gatewayVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "gateway", Short: "Run the gateway in the foreground", Args: cobra.NoArgs,
		Long:   "Run the gateway of $BAILEY_HOME in the foreground. There is no need to: the first call starts one,\nwhich ends after ten idle minutes.",
		PreRun: a.warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ready := readyPipe()
			home, err := gateway.FindHome()
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(a.stderr, nil))
			s, err := build(cmd.Context(), home, log)
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
			if errors.Is(err, context.Canceled) { // every end that is none of its own faults
				log.Info("the gateway ends", "why", err)
				return nil
			}
			return err
		},
	}
	cmd.AddCommand(a.gatewayStopVerb())
	return cmd
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

// readyEnv names the descriptor on which a starting client waits for a word.
const readyEnv = "BAILEY_READY_FD"

func readyPipe() *os.File {
	ready := inherited(os.Getenv(readyEnv))
	if ready != nil {
		os.Unsetenv(readyEnv)
	}
	return ready
}

// announce tells the client that started us that clients are welcome, or why they are not.
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

// spawn starts this very program as the home's gateway, in a session of its own, so that neither the
// client's terminal nor its end reaches it.
func spawn(h gateway.Home, ready *os.File) (*exec.Cmd, error) {
	log, err := os.OpenFile(h.LogFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND|noFollow, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	self, err := ownFile()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "gateway")
	cmd.Args[0] = "bailey"
	cmd.Dir = string(h)
	number, err := detach(cmd, ready)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(slices.DeleteFunc(os.Environ(), own), "BAILEY_HOME="+string(h), readyEnv+"="+number)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}

// own are variables that must not pass from whoever made the first call into the gateway of all.
func own(pair string) bool {
	name, _, _ := strings.Cut(pair, "=")
	return name == "BAILEY_HOME" || name == "BAILEY_OPERATOR" || name == "BAILEY_SESSION" || name == traceEnv || name == readyEnv
}
