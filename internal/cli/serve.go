package cli

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
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
)

// serveFlags holds the flags of MCP over HTTP.
type serveFlags struct {
	httpFlags
	http string
}

func (a *App) serveVerb() *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve MCP to agents over standard input and output, or HTTP",
		Long: `Serve MCP (Model Context Protocol) over stdin and stdout, one JSON-RPC message a line.

Relative paths start in the directory it is started in, which is also the session's workspace if the home
names none. All its calls belong to one session, even if the gateway restarts: that of $BAILEY_SESSION, or one
of its own (see bailey session).

For Claude Code:

  bailey init --claude-code

With --http ADDRESS it serves MCP over HTTP at the path /mcp until it is ended. Clients send a token that
bailey token add created. Without a certificate it listens only on this machine; with one, --host sets the
names by which it is reached. Pages of other origins are refused unless --origin names them.`,
		Example: "  bailey serve --http 127.0.0.1:7444",
		Args:    cobra.NoArgs, PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.http != "" {
				return a.serveHTTP(cmd.Context(), s)
			}
			if s.cert != "" || s.key != "" || len(s.hosts)+len(s.origins) > 0 {
				return bailey.Invalid.New("these flags need --http", "use: bailey serve --http 127.0.0.1:7444")
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			return mcp.Relay(cmd.Context(), (&sessionClient{Client: c}).dialMCP, a.Stdin, a.Stdout)
		},
	}
	cmd.Flags().StringVar(&s.http, "http", "", "serve HTTP at this `address` and port; port 0 selects any free port")
	s.addFlags(cmd)
	return cmd
}

func (a *App) serveHTTP(ctx context.Context, s serveFlags) error {
	if err := s.checkAddress(s.http); err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	l, err := s.openListener(s.http)
	if err != nil {
		return err
	}
	defer l.Close()
	var front mcp.Front
	front.Hosts, front.Origins = s.allowedHosts(l.Addr())
	if err := a.sayServed(s.urlScheme() + "://" + l.Addr().String() + mcp.HTTPPath); err != nil {
		return err
	}
	if l, err = s.wrapTLS(l); err != nil {
		return err
	}
	dial := func(ctx context.Context, source string) (io.ReadWriteCloser, error) {
		front := front
		front.Source = source
		says, err := json.Marshal(front)
		if err != nil {
			return nil, err
		}
		return c.HTTP(ctx, says)
	}
	return mcp.Forward(ctx, l, dial,
		slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// sayServed prints the address, for users and for programs that wait for it.
func (a *App) sayServed(url string) error {
	if a.JSON {
		return a.Print(map[string]any{"ok": true, "url": url})
	}
	_, err := fmt.Fprintf(a.Stderr, "bailey: MCP is served at %s to clients that send the header "+
		"Authorization: Bearer TOKEN; run bailey token add to create a token\n", url)
	return err
}

func (a *App) sessionVerb() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "session", Short: "Begin a session for calls of several commands",
		Long: `Start a session and print the shell command that makes the shell's calls belong to it:

  eval "$(bailey session)"

The calls of a session share a workspace, redaction tokens and budgets, and a call that waits for an approval
can be repeated in it, even after a restart of the gateway. Without it each bailey run has its own session.

The gateway stores only a hash of the bearer. A session ends after eight hours without use.`,
	}, apitype.BeginSession, nil, func(w io.Writer, b apitype.OwnSession) {
		fmt.Fprintf(w, "export %s=%s\n", localapi.SessionVariable, b.Bearer)
	})
}

// sessionClient is a client whose MCP connections belong to one session, even across gateways: that of the environment, or
// its own. It replaces its own session if that has ended; the user must replace that of the environment.
type sessionClient struct {
	*localapi.Client
	own bool
}

func (k *sessionClient) dialMCP(ctx context.Context) (io.ReadWriteCloser, error) {
	for {
		fresh := k.Session == ""
		if fresh {
			b, err := apitype.BeginSession.Ask(ctx, k.Client, localapi.None{})
			if err != nil {
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

// spawnGateway starts this program as the gateway of the home.
func spawnGateway(h localapi.Home, ready *os.File) (*os.Process, error) {
	self, err := OwnFile()
	if err != nil {
		return nil, err
	}
	return localapi.Spawn(h, self, ready)
}
