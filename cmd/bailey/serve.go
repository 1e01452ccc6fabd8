package main

import (
	"github.com/spf13/cobra"

	"bailey/internal/gateway"
)

func (a *app) serveVerb() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "Serve MCP over stdin and stdout, for agents",
		Long: `Serve MCP (Model Context Protocol) over stdin and stdout, one JSON-RPC message a line.

Relative paths start in the directory it is started in, which is the session's workspace while the home names none.
All its calls are of one session, over a gateway that ends and starts again too: that of $BAILEY_SESSION, or one of
its own (see bailey session).

For Claude Code:

  bailey init --claude-code`,
		Args: cobra.NoArgs, PreRun: a.warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			return gateway.Relay(cmd.Context(), (&keptClient{Client: c}).dial, a.stdin, a.stdout)
		},
	}
}
