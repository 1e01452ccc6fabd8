package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"bailey/internal/wire"

	"github.com/spf13/cobra"

	"bailey"
)

// sessionVerb is the query that begins a session. Any caller may use it to group its calls.
const sessionVerb = "session"

// ownSession is a session with its bearer token, as JSON.
type ownSession struct {
	OK      bool             `json:"ok"`
	Session bailey.SessionID `json:"session"` // as in receipts
	Bearer  string           `json:"bearer"`  // a secret: with it, any process can call in this session
}

func (a *app) sessionVerb() *cobra.Command {
	return &cobra.Command{
		Use: "session", Short: "Begin a session that calls of several commands belong to",
		Long: `Begin a session and print what makes the calls of a shell belong to it:

  eval "$(bailey session)"

The calls of one session share a workspace, redaction tokens and budgets, and a call that waits for a person can be
taken up again in it, after the gateway has ended too. Without it each bailey run is a session of its own.

The gateway keeps a hash of the bearer alone. A session that nobody uses for eight hours has ended.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: sessionVerb}, func(b ownSession) {
				fmt.Fprintf(a.stdout, "export %s=%s\n", wire.SessionVariable, b.Bearer)
			})
		},
	}
}

// session is a query that any caller may send.
func (s *stack) session(ctx context.Context, _ wire.Query, from bailey.Call) (any, error) {
	bearer, id, err := s.sessions.Issue(ctx, from.Principal)
	if err != nil {
		return nil, err
	}
	return ownSession{OK: true, Session: id, Bearer: bearer}, nil
}

// keptClient is a client whose MCP connections belong to one session, even across gateways: that of the environment, or
// its own. It replaces its own session if that has ended; the user must replace that of the environment.
type keptClient struct {
	*wire.Client
	own bool
}

func (k *keptClient) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	for {
		fresh := k.Session == ""
		if fresh {
			var b ownSession
			if err := k.Look(ctx, wire.Query{Verb: sessionVerb}, &b); err != nil {
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
