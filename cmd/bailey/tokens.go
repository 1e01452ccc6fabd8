package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/wire"
)

const agentRotateAct, agentsLook, tokensLook = "agent.rotate", "agents", "tokens"

// issuedToken is a token with its bearer string, which is shown only once.
type issuedToken struct {
	OK bool `json:"ok"`
	gateway.Token
	Bearer string `json:"bearer"` // a secret: it authenticates the agent
}

type tokenList struct {
	Tokens []gateway.Token `json:"tokens"`
}

type agentList struct {
	Agents []gateway.Agent `json:"agents"`
}

// granting holds the flags for a new token.
type granting struct {
	agent, expires, overlap string
	scope                   []string
	yes                     bool
}

func (g *granting) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&g.scope, "scope", nil, "capabilities that it reaches, as git.status or 'git.*'; all without it")
	f.StringVar(&g.expires, "expires", "30d", "how long it counts, as 12h or 30d; at most 366d")
	f.BoolVar(&g.yes, "yes", false, "do not ask")
}

func (a *app) agentVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Agents that are known by name, each with a token of its own",
		Long: "Who calls without a token is the agent \"local\". docs/agents.md has more."}
	cmd.AddCommand(a.agentAddVerb(), a.agentListVerb(), a.agentRotateVerb(), a.agentRemoveVerb())
	return cmd
}

const operatorWords = "\n\nAn operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes."

func (a *app) agentAddVerb() *cobra.Command {
	var g granting
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Make an agent known, and print its token", Args: oneArg("an agent"),
		Long: "Make an agent known by name, with a token that is shown this once. Receipts and rules have the name." + operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			g.agent = args[0]
			return a.issue(cmd.Context(), "agent add", gateway.AgentAddEvent, g)
		},
	}
	g.flags(cmd)
	return cmd
}

func (a *app) agentRotateVerb() *cobra.Command {
	var g granting
	cmd := &cobra.Command{
		Use: "rotate NAME", Short: "Give an agent a new token, and end those that it has", Args: oneArg("an agent"),
		Long: "Give an agent a new token, which reaches what the one before did unless --scope says otherwise. Those that it has end at once, or\nafter --overlap." + operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			g.agent = args[0]
			return a.issue(cmd.Context(), "agent rotate", agentRotateAct, g)
		},
	}
	g.flags(cmd)
	cmd.Flags().StringVar(&g.overlap, "overlap", "0s", "how long the old ones still count, as 24h")
	return cmd
}

func (a *app) agentListVerb() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The agents that are known", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: agentsLook}, func(l agentList) {
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for _, g := range l.Agents {
					fmt.Fprintf(w, "%s\tsince %s\n", cell(g.Name), g.At.Format(time.RFC3339))
				}
				w.Flush()
				if len(l.Agents) == 0 {
					fmt.Fprintln(a.stdout, "no agent is known by name; bailey agent add NAME makes one known")
				}
			})
		},
	}
}

func (a *app) agentRemoveVerb() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "remove NAME", Short: "Take an agent away, with its tokens", Args: oneArg("an agent"),
		Long: "Take an agent away. Its tokens end at once, also for connections that are open." + operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			var out map[string]any
			if err := a.operate(cmd.Context(), "agent remove", gateway.AgentRemoveEvent, map[string]any{"agent": args[0]}, yes,
				fmt.Sprintf("Take %s away, with its tokens?", cell(args[0])), &out); err != nil {
				return err
			}
			if a.json {
				return a.print(out)
			}
			_, err := fmt.Fprintf(a.stdout, "%s is not known any more, and its tokens have ended\n", cell(args[0]))
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) tokenVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Bearer tokens, by which agents are known",
		Long: "A token lets whoever shows it act as an agent, for what its scope has and as long as it counts. docs/agents.md has more."}
	cmd.AddCommand(a.tokenAddVerb(), a.tokenListVerb(), a.tokenRevokeVerb())
	return cmd
}

func (a *app) tokenAddVerb() *cobra.Command {
	var g granting
	cmd := &cobra.Command{
		Use: "add", Short: "Make a token, and print it", Args: cobra.NoArgs,
		Long: "Make a token for an agent, and print it this once: the gateway keeps its hash alone." + operatorWords,
		Example: `  bailey token add --scope 'git.*' --expires 7d
  bailey token add --agent reviewer`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.issue(cmd.Context(), "token add", gateway.TokenAddEvent, g)
		},
	}
	g.flags(cmd)
	cmd.Flags().StringVar(&g.agent, "agent", gateway.LocalAgent, "whose it is: an agent's `name` (bailey agent list)")
	return cmd
}

func (a *app) tokenListVerb() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The tokens, and which count", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: tokensLook}, func(l tokenList) {
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for _, t := range l.Tokens {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.ID, cell(t.Agent), tokenState(t, time.Now()), cmp.Or(strings.Join(t.Scope, ","), "all"))
				}
				w.Flush()
				if len(l.Tokens) == 0 {
					fmt.Fprintln(a.stdout, "no tokens; bailey token add makes one")
				}
			})
		},
	}
}

func tokenState(t gateway.Token, now time.Time) string {
	if how := t.Ended(now); how != "" {
		return how
	}
	end := t.Expires
	if !t.Revoked.IsZero() && t.Revoked.Before(end) {
		end = t.Revoked
	}
	return "until " + end.Format(time.RFC3339)
}

func (a *app) tokenRevokeVerb() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "End a token at once", Args: oneArg("a token"),
		Long: "End a token at once, also for connections that are open: their next call is denied." + operatorWords,
		RunE: func(cmd *cobra.Command, args []string) error {
			var t gateway.Token
			if err := a.operate(cmd.Context(), "token revoke", gateway.TokenRevokeEvent, map[string]any{"id": args[0]}, yes,
				fmt.Sprintf("End the token %s?", cell(args[0])), &t); err != nil {
				return err
			}
			if a.json {
				return a.print(t)
			}
			_, err := fmt.Fprintf(a.stdout, "%s of %s has ended\n", t.ID, cell(t.Agent))
			return err
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

// issue requests a token and prints it.
func (a *app) issue(ctx context.Context, words, verb string, g granting) error {
	args := map[string]any{"agent": g.agent, "scope": strings.Join(g.scope, ",")}
	for name, value := range map[string]string{"ttl": g.expires, "overlap": g.overlap} {
		if value == "" {
			continue
		}
		d, ok := span(value)
		if !ok {
			return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%q is no length of time", value), Hint: "as in 30d, 12h, 1d12h"}
		}
		args[name] = int64(d / time.Second)
	}
	reach := "everything that policy allows"
	if verb == agentRotateAct {
		reach = "what it reached before"
	}
	if len(g.scope) > 0 {
		reach = strings.Join(g.scope, ", ")
	}
	var t issuedToken
	if err := a.operate(ctx, words, verb, args, g.yes, fmt.Sprintf("Make a token for %s, for %s, that counts for %s?", cell(g.agent), cell(reach), cell(g.expires)), &t); err != nil {
		return err
	}
	if a.json {
		return a.print(t)
	}
	fmt.Fprintln(a.stdout, t.Bearer)
	fmt.Fprintf(a.stderr, `bailey: this is the token %s of %s, until %s, shown this once
bailey: bailey run, serve and shims take it from %s in the agent's environment; over HTTP it is the header
bailey:   Authorization: Bearer TOKEN
`, t.ID, cell(t.Agent), t.Expires.Format(time.RFC3339), wire.TokenVariable)
	return nil
}

// grantOf decodes the arguments of a query for a token.
func grantOf(q wire.Query, from bailey.Call) gateway.Grant {
	g := gateway.Grant{Agent: cmp.Or(text(q.Args, "agent"), gateway.LocalAgent), TTL: time.Duration(number(q.Args, "ttl")) * time.Second, Operator: q.Operator, Person: from.Principal.Person}
	if scope := text(q.Args, "scope"); scope != "" {
		g.Scope = strings.Split(scope, ",")
	}
	return g
}

func issuedAs(bearer string, t gateway.Token, err error) (any, error) {
	return issuedToken{OK: true, Token: t, Bearer: bearer}, err
}

func (s *stack) agentAdd(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	return issuedAs(s.agents.Add(ctx, grantOf(q, from)))
}

func (s *stack) agentRotate(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	return issuedAs(s.agents.Rotate(ctx, grantOf(q, from), time.Duration(number(q.Args, "overlap"))*time.Second))
}

func (s *stack) tokenAdd(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	return issuedAs(s.agents.Issue(ctx, grantOf(q, from)))
}

func (s *stack) agentRemove(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	name := text(q.Args, "agent")
	return map[string]any{"ok": true, "agent": name}, s.agents.Remove(ctx, name, q.Operator, from.Principal.Person)
}

func (s *stack) tokenRevoke(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	return s.agents.Revoke(ctx, text(q.Args, "id"), q.Operator, from.Principal.Person)
}

func (s *stack) listAgents(context.Context, wire.Query, bailey.Call) (any, error) {
	return agentList{s.agents.Names()}, nil
}

func (s *stack) listTokens(context.Context, wire.Query, bailey.Call) (any, error) {
	all := s.agents.List()
	for i := range all {
		all[i].Hash = "" // no client needs it
	}
	return tokenList{all}, nil
}

// agentsChange describes a change of the rules for agents, for the difference that init shows.
func agentsChange(old, now gateway.AgentRules) string {
	lines := func(r gateway.AgentRules) string {
		var list []string
		if r.Required {
			list = append(list, "agents: calls need a token")
		}
		if r.Listed > 0 {
			list = append(list, fmt.Sprintf("agents: are shown %d tools, and search for the rest", r.Listed))
		}
		for _, name := range r.Asking {
			list = append(list, "agents: "+cell(name)+" may ask its person and answer for it")
		}
		return strings.Join(list, "\n")
	}
	words := difference(lines(old), lines(now))
	if old.Required && !now.Required {
		words += "  ! calls need no token from now on\n"
	}
	return words
}
