package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
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
	yes                     bool
}

func (g *tokenFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&g.scope, "scope", nil, "capabilities that it reaches, as git.status or 'git.*'; all without it")
	f.StringVar(&g.expires, "expires", "30d", "how long it counts, as 12h or 30d; at most 366d")
	f.BoolVar(&g.yes, "yes", false, "do not ask")
}

func (a *App) agentVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Manage agents that have a name and a token",
		Long: "Who calls without a token is the agent \"local\". docs/agents.md has more."}
	cmd.AddCommand(a.agentAddVerb(), a.agentListVerb(), a.agentRotateVerb(), a.agentRemoveVerb())
	return cmd
}

const operatorWords = "\n\nAn operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes."

func (a *App) agentAddVerb() *cobra.Command {
	var g tokenFlags
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add an agent, and print its token", Args: OneArg("an agent"),
		Long: "Make an agent known by name, with a token that is shown this once. Receipts and rules have the name." +
			operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			g.agent = args[0]
			return a.issueToken(cmd.Context(), "agent add", apitype.AddAgent, g)
		},
	}
	g.addFlags(cmd)
	return cmd
}

func (a *App) agentRotateVerb() *cobra.Command {
	var g tokenFlags
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "Replace the tokens of an agent by a new one", Args: OneArg("an agent"),
		Long: "Give an agent a new token, which reaches what the one before did unless --scope says otherwise. Those that it has end at once, or\nafter --overlap." + operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			g.agent = args[0]
			return a.issueToken(cmd.Context(), "agent rotate", apitype.RotateAgent, g)
		},
	}
	g.addFlags(cmd)
	cmd.Flags().StringVar(&g.overlap, "overlap", "0s", "how long the old ones still count, as 24h")
	return cmd
}

func (a *App) agentListVerb() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the agents", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Show(cmd.Context(), a, apitype.ListAgents, localapi.None{}, func(l apitype.AgentList) {
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				for _, g := range l.Agents {
					fmt.Fprintf(w, "%s\tsince %s\n", terminal.TableCell(g.Name), g.At.Format(time.RFC3339))
				}
				w.Flush()
				if len(l.Agents) == 0 {
					fmt.Fprintln(a.Stdout, "no agent is known by name; bailey agent add NAME makes one known")
				}
			})
		},
	}
}

func (a *App) agentRemoveVerb() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Remove an agent and its tokens", Args: OneArg("an agent"),
		Long: "Take an agent away. Its tokens end at once, also for connections that are open." + operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			out, err := Operate(cmd.Context(), a, "agent remove", apitype.RemoveAgent, apitype.AgentName{Agent: args[0]}, yes,
				fmt.Sprintf("Take %s away, with its tokens?", terminal.TableCell(args[0])))
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Print(out)
			}
			_, err = fmt.Fprintf(a.Stdout, "%s is not known any more, and its tokens have ended\n",
				terminal.TableCell(args[0]))
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *App) tokenVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Manage the bearer tokens of agents",
		Long: "A token lets whoever shows it act as an agent, for what its scope has and as long as it counts. docs/agents.md has more."}
	cmd.AddCommand(a.tokenAddVerb(), a.tokenListVerb(), a.tokenRevokeVerb())
	return cmd
}

func (a *App) tokenAddVerb() *cobra.Command {
	var g tokenFlags
	cmd := &cobra.Command{
		Use: "add", Short: "Create a token, and print it", Args: cobra.NoArgs,
		Long: "Make a token for an agent, and print it this once: the gateway keeps its hash alone." + operatorWords,
		Example: `  bailey token add --scope 'git.*' --expires 7d
  bailey token add --agent reviewer`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.issueToken(cmd.Context(), "token add", apitype.AddToken, g)
		},
	}
	g.addFlags(cmd)
	cmd.Flags().StringVar(&g.agent, "agent", apitype.LocalAgent, "whose it is: an agent's `name` (bailey agent list)")
	return cmd
}

func (a *App) tokenListVerb() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens, and which are valid", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Show(cmd.Context(), a, apitype.ListTokens, localapi.None{}, func(l apitype.TokenList) {
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				for _, t := range l.Tokens {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.ID, terminal.TableCell(t.Agent), tokenState(t, time.Now()),
						cmp.Or(strings.Join(t.Scope, ","), "all"))
				}
				w.Flush()
				if len(l.Tokens) == 0 {
					fmt.Fprintln(a.Stdout, "no tokens; bailey token add makes one")
				}
			})
		},
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
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a token", Args: OneArg("a token"),
		Long: "End a token at once, also for connections that are open: their next call is denied." + operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := Operate(cmd.Context(), a, "token revoke", apitype.RevokeToken, apitype.ID{ID: args[0]}, yes,
				fmt.Sprintf("End the token %s?", terminal.TableCell(args[0])))
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Print(t)
			}
			_, err = fmt.Fprintf(a.Stdout, "%s of %s has ended\n", t.ID, terminal.TableCell(t.Agent))
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
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
	t, err := Operate(ctx, a, words, e, r, g.yes,
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
