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
	f.StringSliceVar(&g.scope, "scope", nil, "capabilities that it may call, such as git.status or 'git.*' (default all)")
	f.StringVar(&g.expires, "expires", "30d", "how long it is valid, for example 12h or 30d; at most 366d")
	return a.OperatorVerb(cmd)
}

func (a *App) agentVerb() *cobra.Command {
	return GroupVerb("agent", "Manage agents that have a name and a token",
		"Calls without a token are attributed to the agent \"local\". See docs/agents.md.",
		a.agentAddVerb(), a.agentRotateVerb(), a.agentRemoveVerb(),
		QueryVerb(a, &cobra.Command{Use: "list", Short: "List the agents"}, apitype.ListAgents, nil, printAgents))
}

func (a *App) agentAddVerb() *cobra.Command {
	return a.tokenVerb(&cobra.Command{
		Use: "add NAME", Short: "Add an agent, and print its token", Args: OneArg("an agent"),
		Long: "Add a named agent and create its token, which is shown only once. Receipts and rules use the name.",
	}, apitype.AddAgent, &tokenFlags{})
}

func (a *App) agentRotateVerb() *cobra.Command {
	var g tokenFlags
	cmd := a.tokenVerb(&cobra.Command{
		Use: "rotate NAME", Short: "Replace the tokens of an agent by a new one", Args: OneArg("an agent"),
		Long: "Create a new token for an agent, with the scope of the previous one unless --scope is given. The previous\ntokens end at once, or after --overlap.",
	}, apitype.RotateAgent, &g)
	cmd.Flags().StringVar(&g.overlap, "overlap", "0s", "how long the old tokens stay valid, for example 24h")
	return cmd
}

func printAgents(w io.Writer, l apitype.AgentList) {
	PrintTable(w, "", l.Agents, func(g apitype.Agent) []any {
		return []any{terminal.TableCell(g.Name), "since " + g.At.Format(time.RFC3339)}
	})
	if len(l.Agents) == 0 {
		fmt.Fprintln(w, "no named agents; run bailey agent add NAME to add one")
	}
}

func (a *App) agentRemoveVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "remove NAME", Short: "Remove an agent and its tokens", Args: OneArg("an agent"),
		Long: "Remove an agent. Its tokens end at once, also for open connections.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := terminal.TableCell(args[0])
			out, err := Operate(cmd.Context(), a, "agent remove", apitype.RemoveAgent, apitype.AgentName{Agent: args[0]},
				fmt.Sprintf("Remove %s and its tokens?", name))
			if err != nil {
				return err
			}
			return a.PrintLine(out, "removed %s; its tokens have ended\n", name)
		},
	})
}

func (a *App) tokensVerb() *cobra.Command {
	return GroupVerb("token", "Manage the bearer tokens of agents",
		"A token allows its holder to act as an agent, within its scope and until it expires. See docs/agents.md.",
		a.tokenAddVerb(), a.tokenRevokeVerb(),
		QueryVerb(a, &cobra.Command{Use: "list", Short: "List the tokens, and which are valid"}, apitype.ListTokens, nil, printTokens))
}

func (a *App) tokenAddVerb() *cobra.Command {
	var g tokenFlags
	cmd := a.tokenVerb(&cobra.Command{
		Use: "add", Short: "Create a token, and print it", Args: cobra.NoArgs,
		Long: "Create a token for an agent and print it once: the gateway stores only its hash.",
		Example: `  bailey token add --scope 'git.*' --expires 7d
  bailey token add --agent reviewer`,
	}, apitype.AddToken, &g)
	cmd.Flags().StringVar(&g.agent, "agent", apitype.LocalAgent, "the agent's `name` (bailey agent list)")
	return cmd
}

func printTokens(w io.Writer, l apitype.TokenList) {
	PrintTable(w, "", l.Tokens, func(t apitype.Token) []any {
		return []any{t.ID, terminal.TableCell(t.Agent), tokenState(t, time.Now()),
			cmp.Or(strings.Join(t.Scope, ","), "all")}
	})
	if len(l.Tokens) == 0 {
		fmt.Fprintln(w, "no tokens; run bailey token add to create one")
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
		Long: "End a token at once, also for open connections: their next call is denied.",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := Operate(cmd.Context(), a, "token revoke", apitype.RevokeToken, apitype.ID{ID: args[0]},
				fmt.Sprintf("Revoke the token %s?", terminal.TableCell(args[0])))
			if err != nil {
				return err
			}
			return a.PrintLine(t, "revoked %s of %s\n", t.ID, terminal.TableCell(t.Agent))
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
			return bailey.Invalid.Errorf("write for example 30d, 12h or 1d12h", "%q is not a duration", value)
		}
		*seconds = int64(d / time.Second)
	}
	reach := "everything that the policy allows"
	if e.Name == apitype.RotateAgent.Name {
		reach = "the same scope as before"
	}
	if len(g.scope) > 0 {
		reach = strings.Join(g.scope, ", ")
	}
	t, err := Operate(ctx, a, words, e, r,
		fmt.Sprintf("Create a token for %s, for %s, valid for %s?", terminal.TableCell(g.agent),
			terminal.TableCell(reach), terminal.TableCell(g.expires)))
	if err != nil {
		return err
	}
	if a.JSON {
		return a.Print(t)
	}
	fmt.Fprintln(a.Stdout, t.Bearer)
	fmt.Fprintf(a.Stderr, `bailey: this is the token %s of %s, valid until %s; it is shown only once
bailey: bailey run, serve and shims read it from %s in the agent's environment; over HTTP send the header
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
			list = append(list, fmt.Sprintf("agents: see %d tools and search for the others", r.Listed))
		}
		for _, name := range r.Asking {
			list = append(list, "agents: "+terminal.TableCell(name)+" may ask its user and pass on the answer")
		}
		return strings.Join(list, "\n")
	}
	words := terminal.Diff(lines(old), lines(now))
	if old.Required && !now.Required {
		words += "  ! calls no longer need a token\n"
	}
	return words
}
