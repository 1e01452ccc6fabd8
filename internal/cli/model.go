package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
	"bailey/internal/modelproxy"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

func (a *App) modelVerb() *cobra.Command {
	return GroupVerb("model", "Hide secrets from the models of agents",
		`The model proxy stands between an agent and its model. It hides secrets in all that the agent sends, sends the
request with a key that the agent does not have, and records each request without its text. docs/model.md
describes the ways to use it, and what each costs.`,
		a.modelStart(), a.modelStatus(), a.modelLog())
}

func (a *App) modelStart() *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use: "start", Short: "Accept requests to models until the command is ended",
		Long: `Accept requests to models on an address of this machine, and print the variables that make clients use it.

The session of $BAILEY_SESSION is used, or a new one. Give the agent the same session, so that its
MCP server hides the same values by the same tokens.

The key of the provider comes from settings.yaml (model, providers, keyFile) or from the broker (lease).`,
		Example: "  bailey model start --listen 127.0.0.1:7446", Args: cobra.NoArgs, PreRun: a.Warn,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serveModel(cmd.Context(), at) },
	}
	cmd.Flags().StringVar(&at, "listen", "127.0.0.1:0", "listen on this loopback `address` and port")
	return cmd
}

// modelServed says how clients use the proxy.
type modelServed struct {
	OK  bool              `json:"ok"`
	URL string            `json:"url"`
	Env map[string]string `json:"env"`
}

func (a *App) serveModel(ctx context.Context, at string) error {
	if err := CheckLoopback(at); err != nil {
		return bailey.Invalid.New(terminal.Shown(at)+" is not a loopback address and port", "listen on 127.0.0.1:PORT")
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	if c.Session == "" {
		b, err := apitype.BeginSession.Ask(ctx, c, localapi.None{})
		if err != nil {
			return err
		}
		c.Session = b.Bearer
	}
	var flags httpFlags
	l, err := flags.openListener(at)
	if err != nil {
		return err
	}
	defer l.Close()
	if err := a.printModelServed("http://"+l.Addr().String(), c.Session); err != nil {
		return err
	}
	c.Session = "" // each request presents it
	says, err := json.Marshal(modelproxy.Front{})
	if err != nil {
		return err
	}
	dial := func(ctx context.Context, _ string) (io.ReadWriteCloser, error) { return c.Model(ctx, says) }
	return mcp.Forward(ctx, l, dial,
		slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// printModelServed prints the variables for clients, in the order of a shell script.
func (a *App) printModelServed(url, bearer string) error {
	pairs := [][2]string{{localapi.SessionVariable, bearer},
		{"ANTHROPIC_BASE_URL", url}, {"ANTHROPIC_AUTH_TOKEN", bearer},
		{"OPENAI_BASE_URL", url + "/v1"}, {"OPENAI_API_KEY", bearer},
		{"GOOGLE_GEMINI_BASE_URL", url}, {"GEMINI_API_KEY", bearer}}
	if a.JSON {
		served := modelServed{OK: true, URL: url, Env: map[string]string{}}
		for _, p := range pairs {
			served.Env[p[0]] = p[1]
		}
		return a.Print(served)
	}
	var b strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&b, "export %s=%s\n", p[0], p[1])
	}
	_, err := io.WriteString(a.Stdout, b.String())
	return err
}

func (a *App) modelStatus() *cobra.Command {
	return QueryVerb(a, &cobra.Command{Use: "status", Short: "Show providers, keys and requests of the model proxy"},
		apitype.ShowModel, nil, func(w io.Writer, s apitype.ModelStatus) {
			PrintTable(w, "PROVIDER\tURL\tKEY\t", s.Providers, func(p apitype.ModelProvider) []any {
				return []any{p.Name, p.URL, terminal.TableCell(p.Key), terminal.TableCell(p.Fault)}
			})
			fmt.Fprintf(w, "%s since the gateway started, %d in progress, %d refused, %d broken; %s\n",
				apitype.Counts(int(s.Requests), "request"), s.Open, s.Refused, s.Broken, apitype.Counts(s.Sessions, "session"))
			if !s.Wrap {
				fmt.Fprintln(w, "agents in the agent jail reach their models directly; settings.yaml, model, wrap: true changes that")
			}
		})
}

func (a *App) modelLog() *cobra.Command {
	f := receipts.Filter{Capability: modelproxy.Capability}
	cmd := &cobra.Command{Use: "log", Short: "Show the requests to models", Args: cobra.NoArgs}
	QueryVerb(a, cmd, apitype.ListRecords, func([]string) (receipts.Filter, error) { return f, nil }, printModelLog)
	cmd.Flags().IntVarP(&f.Limit, "limit", "n", 20, "show at most this `number`")
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only of this `agent`")
	return cmd
}

func printModelLog(w io.Writer, p receipts.Page) {
	if len(p.Records) == 0 {
		fmt.Fprintln(w, "no request to a model is recorded")
		return
	}
	PrintTable(w, "STARTED\tAGENT\tMODEL\tOUTCOME\tIN\tCACHED\tOUT\tPRICE\tFIRST\tHIDDEN\tTOOLS\tRECEIPT", p.Records, func(r receipts.Record) []any {
		row := []any{r.Intent.StartedAt.Local().Format("2006-01-02 15:04:05"), terminal.TableCell(r.Intent.Agent)}
		u, status := new(bailey.ModelUse), "open"
		if r.Outcome != nil {
			status = string(r.Outcome.Status)
			if r.Outcome.Model != nil {
				u = r.Outcome.Model
			}
		}
		tools := "-"
		if len(u.Tools) > 0 {
			tools = strings.Join(u.Tools, ",")
		}
		model := "-"
		if u.Model != "" {
			model = u.Model
		}
		return append(row, terminal.TableCell(model), status, u.InputTokens, u.CachedTokens, u.OutputTokens,
			apitype.Dollars(u.MicroUSD), fmt.Sprintf("%d ms", u.FirstMillis), u.Hidden, terminal.TableCell(tools), r.Intent.Receipt)
	})
}
