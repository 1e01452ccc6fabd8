package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (a *App) sessionVerb() *cobra.Command {
	return &cobra.Command{
		Use: "session", Short: "Begin a session that calls of several commands belong to",
		Long: `Begin a session and print what makes the calls of a shell belong to it:

  eval "$(bailey session)"

The calls of one session share a workspace, redaction tokens and budgets, and a call that waits for a person can be
taken up again in it, after the gateway has ended too. Without it each bailey run is a session of its own.

The gateway keeps a hash of the bearer alone. A session that nobody uses for eight hours has ended.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Query(cmd.Context(), a, localapi.Query{Verb: apitype.SessionVerb}, func(b apitype.OwnSession) {
				fmt.Fprintf(a.Stdout, "export %s=%s\n", localapi.SessionVariable, b.Bearer)
			})
		},
	}
}

// sessionClient is a client whose MCP connections belong to one session, even across gateways: that of the environment, or
// its own. It replaces its own session if that has ended; the user must replace that of the environment.
type sessionClient struct {
	*localapi.Client
	own bool
}

func (k *sessionClient) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	for {
		fresh := k.Session == ""
		if fresh {
			var b apitype.OwnSession
			if err := k.Look(ctx, localapi.Query{Verb: apitype.SessionVerb}, &b); err != nil {
				return nil, err
			}
			k.Session, k.own = b.Bearer, true
		}
		conn, err := k.MCP(ctx)
		if err == nil || fresh || !k.own || !errors.Is(err, bailey.NotFound) {
			return conn, err
		}
		k.Session = ""
	}
}
