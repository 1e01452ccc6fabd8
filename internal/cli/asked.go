package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"bailey"
	"bailey/internal/agenthook"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy/review"
	"bailey/internal/terminal"
)

// approveAsked answers a question that the hook of an agent asked: for the session, or for good. The agent's own dialog
// answers it once.
func (a *App) approveAsked(ctx context.Context, c *localapi.Client, op localapi.Operator,
	asked agenthook.Asked, how answerFlags) error {
	a.Explain(describeAsked(asked))
	switch {
	case how.always:
		return a.alwaysAsked(ctx, asked)
	case !how.session:
		return bailey.Invalid.New("the agent itself asks this question once, in its own dialog",
			"answer there, or approve it with --session or --always")
	case how.key != "" || how.signature != "":
		return bailey.Invalid.New("an answer for a session has no text to sign",
			"leave --key and --signature out, or use --always")
	}
	if err := a.Confirm(ctx, "Allow this until the session of the agent ends?"); err != nil {
		return err
	}
	g, err := apitype.GrantSession.Do(ctx, c, op, apitype.ID{ID: string(asked.ID)})
	if err != nil {
		return err
	}
	return a.PrintLine(g, "granted until the session ends; to end it earlier: bailey grants revoke %s\n", g.ID)
}

// describeAsked shows what an answer would cover.
func describeAsked(asked agenthook.Asked) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks, in %s:\n", terminal.Shown(asked.Principal.Agent), terminal.Shown(asked.Dir))
	for _, c := range asked.Calls {
		fmt.Fprintf(&b, "  %s  %s %s\n", c.Capability, c.Input, terminal.Shown(c.Value))
		if c.Dir != "" && c.Dir != asked.Dir {
			fmt.Fprintf(&b, "    in %s\n", terminal.Shown(c.Dir))
		}
		for _, r := range c.Rules {
			fmt.Fprintf(&b, "    rule %s: %s\n", terminal.Shown(string(r.ID)), terminal.Shown(r.Reason))
		}
	}
	fmt.Fprintf(&b, "asked at %s\n", asked.At.Local().Format(time.TimeOnly))
	return b.String()
}

// alwaysAsked writes a rule for each call of a question of the hook.
func (a *App) alwaysAsked(ctx context.Context, asked agenthook.Asked) error {
	for _, call := range asked.Calls {
		w := review.Wish{Capability: call.Capability, Agent: ruleAgent(asked.Principal)}
		switch call.Input {
		case "command":
			w.Where = map[string]string{"command": call.Value, "cwd": call.Dir}
		case "tool", "host", "path":
			w.Where = map[string]string{call.Input: call.Value}
		default:
			w.Dir = call.Dir
		}
		if err := a.addRule(ctx, "approve", w); err != nil {
			return err
		}
	}
	return nil
}

// allowAlways writes a rule for the calls of a question, in the directory of its call.
func (a *App) allowAlways(ctx context.Context, q apitype.OpenQuestion) error {
	w := review.Wish{Capability: q.Call, Agent: ruleAgent(q.Principal), Dir: q.Dir.Text}
	return a.addRule(ctx, "approve", w)
}

// ruleAgent returns the agent for which a rule is written; "" for calls of the person.
func ruleAgent(p bailey.Principal) string {
	if p.Agent == apitype.LocalAgent {
		return ""
	}
	return p.Agent
}
