package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// tokenFlags holds the flags for a new token.
type tokenFlags struct {
	agent, expires, overlap string
	scope                   []string
}

// tokenVerb makes cmd an operator command that requests a token. If it takes an argument, that is the agent.
func (a *App) tokenVerb(cmd *cobra.Command, e localapi.Endpoint[apitype.TokenRequest, apitype.IssuedToken],
	g *tokenFlags) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			g.agent = args[0]
		}
		return a.issueToken(cmd.Context(), strings.TrimPrefix(cmd.CommandPath(), "bailey "), e, *g)
	}
	f := cmd.Flags()
	f.StringSliceVar(&g.scope, "scope", nil, "capabilities that it reaches, as git.status or 'git.*'; all without it")
	f.StringVar(&g.expires, "expires", "30d", "how long it counts, as 12h or 30d; at most 366d")
	return a.OperatorVerb(cmd)
}

func (a *App) agentVerb() *cobra.Command {
	return GroupVerb("agent", "Manage agents that have a name and a token",
		"Who calls without a token is the agent \"local\". docs/agents.md has more.",
		a.agentAddVerb(), a.agentRotateVerb(), a.agentRemoveVerb(),
		QueryVerb(a, &cobra.Command{Use: "list", Short: "List the agents"}, apitype.ListAgents, nil, printAgents))
}

func (a *App) agentAddVerb() *cobra.Command {
	return a.tokenVerb(&cobra.Command{
		Use: "add NAME", Short: "Add an agent, and print its token", Args: OneArg("an agent"),
		Long: "Make an agent known by name, with a token that is shown this once. Receipts and rules have the name.",
	}, apitype.AddAgent, &tokenFlags{})
}

func (a *App) agentRotateVerb() *cobra.Command {
	var g tokenFlags
	cmd := a.tokenVerb(&cobra.Command{
		Use: "rotate NAME", Short: "Replace the tokens of an agent by a new one", Args: OneArg("an agent"),
		Long: "Give an agent a new token, which reaches what the one before did unless --scope says otherwise. Those that it has end at once, or\nafter --overlap.",
	}, apitype.RotateAgent, &g)
	cmd.Flags().StringVar(&g.overlap, "overlap", "0s", "how long the old ones still count, as 24h")
	return cmd
}

func printAgents(w io.Writer, l apitype.AgentList) {
	PrintTable(w, "", l.Agents, func(g apitype.Agent) []any {
		return []any{terminal.TableCell(g.Name), "since " + g.At.Format(time.RFC3339)}
	})
	if len(l.Agents) == 0 {
		fmt.Fprintln(w, "no agent is known by name; bailey agent add NAME makes one known")
	}
}

func (a *App) agentRemoveVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "remove NAME", Short: "Remove an agent and its tokens", Args: OneArg("an agent"),
		Long: "Take an agent away. Its tokens end at once, also for connections that are open.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := terminal.TableCell(args[0])
			out, err := Operate(cmd.Context(), a, "agent remove", apitype.RemoveAgent, apitype.AgentName{Agent: args[0]},
				fmt.Sprintf("Take %s away, with its tokens?", name))
			if err != nil {
				return err
			}
			return a.PrintLine(out, "%s is not known any more, and its tokens have ended\n", name)
		},
	})
}

func (a *App) tokensVerb() *cobra.Command {
	return GroupVerb("token", "Manage the bearer tokens of agents",
		"A token lets whoever shows it act as an agent, for what its scope has and as long as it counts. docs/agents.md has more.",
		a.tokenAddVerb(), a.tokenRevokeVerb(),
		QueryVerb(a, &cobra.Command{Use: "list", Short: "List the tokens, and which are valid"}, apitype.ListTokens, nil, printTokens))
}

func (a *App) tokenAddVerb() *cobra.Command {
	var g tokenFlags
	cmd := a.tokenVerb(&cobra.Command{
		Use: "add", Short: "Create a token, and print it", Args: cobra.NoArgs,
		Long: "Make a token for an agent, and print it this once: the gateway keeps its hash alone.",
		Example: `  bailey token add --scope 'git.*' --expires 7d
  bailey token add --agent reviewer`,
	}, apitype.AddToken, &g)
	cmd.Flags().StringVar(&g.agent, "agent", apitype.LocalAgent, "whose it is: an agent's `name` (bailey agent list)")
	return cmd
}

func printTokens(w io.Writer, l apitype.TokenList) {
	PrintTable(w, "", l.Tokens, func(t apitype.Token) []any {
		return []any{t.ID, terminal.TableCell(t.Agent), tokenState(t, time.Now()),
			cmp.Or(strings.Join(t.Scope, ","), "all")}
	})
	if len(l.Tokens) == 0 {
		fmt.Fprintln(w, "no tokens; bailey token add makes one")
	}
}

func tokenState(t apitype.Token, now time.Time) string {
	if how := t.Ended(now); how != "" {
		return how
	}
	end := t.Expires
	if !t.Revoked.IsZero() && t.Revoked.Before(end) {
		end = t.Revoked
	}
	return "until " + end.Format(time.RFC3339)
}

func (a *App) tokenRevokeVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "revoke ID", Short: "Revoke a token", Args: OneArg("a token"),
		Long: "End a token at once, also for connections that are open: their next call is denied.",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := Operate(cmd.Context(), a, "token revoke", apitype.RevokeToken, apitype.ID{ID: args[0]},
				fmt.Sprintf("End the token %s?", terminal.TableCell(args[0])))
			if err != nil {
				return err
			}
			return a.PrintLine(t, "%s of %s has ended\n", t.ID, terminal.TableCell(t.Agent))
		},
	})
}

// issueToken requests a token and prints it.
func (a *App) issueToken(ctx context.Context, words string,
	e localapi.Endpoint[apitype.TokenRequest, apitype.IssuedToken], g tokenFlags) error {
	r := apitype.TokenRequest{Agent: g.agent, Scope: g.scope}
	for seconds, value := range map[*int64]string{&r.TTL: g.expires, &r.Overlap: g.overlap} {
		if value == "" {
			continue
		}
		d, ok := parseDuration(value)
		if !ok {
			return bailey.Invalid.Errorf("as in 30d, 12h, 1d12h", "%q is no length of time", value)
		}
		*seconds = int64(d / time.Second)
	}
	reach := "everything that policy allows"
	if e.Name == apitype.RotateAgent.Name {
		reach = "what it reached before"
	}
	if len(g.scope) > 0 {
		reach = strings.Join(g.scope, ", ")
	}
	t, err := Operate(ctx, a, words, e, r,
		fmt.Sprintf("Make a token for %s, for %s, that counts for %s?", terminal.TableCell(g.agent),
			terminal.TableCell(reach), terminal.TableCell(g.expires)))
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Print(t)
	}
	fmt.Fprintln(a.Stdout, t.Bearer)
	fmt.Fprintf(a.Stderr, `bailey: this is the token %s of %s, until %s, shown this once
bailey: bailey run, serve and shims take it from %s in the agent's environment; over HTTP it is the header
bailey:   Authorization: Bearer TOKEN
`, t.ID, terminal.TableCell(t.Agent), t.Expires.Format(time.RFC3339), localapi.TokenVariable)
	return nil
}

// agentsChange describes a change of the rules for agents, for the difference that init shows.
func agentsChange(old, now settings.AgentRules) string {
	lines := func(r settings.AgentRules) string {
		var list []string
		if r.Required {
			list = append(list, "agents: calls need a token")
		}
		if r.Listed > 0 {
			list = append(list, fmt.Sprintf("agents: are shown %d tools, and search for the rest", r.Listed))
		}
		for _, name := range r.Asking {
			list = append(list, "agents: "+terminal.TableCell(name)+" may ask its person and answer for it")
		}
		return strings.Join(list, "\n")
	}
	words := terminal.Diff(lines(old), lines(now))
	if old.Required && !now.Required {
		words += "  ! calls need no token from now on\n"
	}
	return words
}
