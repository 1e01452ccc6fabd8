package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/wire"
)

// repinAct is the verb of the operator command `pack repin`.
const repinAct = "repin"

// changed lists programs of a capability whose change awaits the approval of an operator, or has been accepted.
type changed struct {
	OK         bool                `json:"ok"`
	Changed    bool                `json:"changed"` // the new digests were accepted
	Capability bailey.CapabilityID `json:"capability"`
	Programs   []gateway.Pin       `json:"programs"`
}

func (a *app) packVerb() *cobra.Command {
	var yes bool
	repin := &cobra.Command{
		Use: "repin CAPABILITY", Short: "Accept a tool that has changed",
		Long: `Accept the programs of a capability as they are now.

A program that others than root can write is compared with what it was at its first call. Once it is another,
each call that would run it asks for an approval, until this verb says that the change was meant. It shows the
old and the new digest, and asks.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey pack repin git.status",
		Args:    oneArg("a capability, as in: bailey pack repin git.status"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.repin(cmd.Context(), args[0], yes)
		},
	}
	repin.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd := &cobra.Command{Use: "pack", Short: "What capabilities are made of"}
	cmd.AddCommand(a.packList(), a.packShow(), a.packDiscover(), a.packValidate(), a.packScaffold(), a.packBundle(), a.packKeygen(), a.packSign(), a.packVerify(), a.packDiff(),
		a.packTrust(), a.packUntrust(), a.packInstall(), a.packUninstall(), a.packPublish(), repin)
	return cmd
}

// repin shows the changes, asks, and accepts them.
func (a *app) repin(ctx context.Context, id string, yes bool) error {
	op, err := a.operator("pack repin", yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	var seen changed
	if err := c.Look(ctx, wire.Query{Verb: "changes", Args: map[string]any{"id": id}}, &seen); err != nil {
		return err
	}
	if len(seen.Programs) > 0 {
		if !yes || !a.json {
			for _, p := range seen.Programs {
				fmt.Fprintf(a.dialog(), "%s, which others than root can write\n  - %s\n  + %s\n", visible(p.Path), p.Was, p.SHA256)
			}
		}
		if !yes {
			if err := a.confirm(ctx, "Accept this?"); err != nil {
				return err
			}
		}
		shown, err := json.Marshal(seen.Programs)
		if err != nil {
			return err
		}
		if err := act(ctx, c, op, repinAct, map[string]any{"id": id, "shown": string(shown)}, &seen); err != nil {
			return err
		}
	}
	switch {
	case a.json:
		return a.print(seen)
	case !seen.Changed:
		fmt.Fprintln(a.stdout, "nothing changes: its programs are what they were")
	default:
		fmt.Fprintf(a.stdout, "%s runs it as it is now\n", seen.Capability)
	}
	return nil
}

// changes is a query: it returns the changed programs of a capability that need an approval.
func (s *stack) changes(ctx context.Context, q wire.Query, _ bailey.Call) (any, error) {
	job, pins, err := s.pinned(q)
	if err != nil {
		return nil, err
	}
	programs, err := pins.Changes(ctx, job)
	return changed{OK: err == nil, Capability: job.Capability, Programs: programs}, err
}

// pinned returns a capability's job, without inputs because its programs do not depend on them, and the pins that check
// it.
func (s *stack) pinned(q wire.Query) (bailey.Job, *gateway.Pins, error) {
	m, err := s.shelf.Catalog().Lookup(bailey.CapabilityID(text(q.Args, "id")))
	if err != nil {
		return bailey.Job{}, nil, err
	}
	pins := s.pins
	if m.Uncaged() {
		pins = s.open
	}
	return m.Job(nil, nil), pins, nil
}

// acts returns the operator commands by verb.
func (s *stack) acts() map[string]gateway.Verb {
	acts := s.desk.acts()
	acts[jailRunEvent] = s.jailRun
	acts[wrapStart], acts[wrapRefused], acts[wrapEnd] = s.wrapStart, s.wrapRefused, s.wrapEnd
	acts[repinAct] = s.repin
	acts[shimInstallEvent], acts[shimUninstallEvent] = s.shimmed, s.shimmed
	acts[packOnboardEvent] = s.packOnboard
	acts[gateway.ProfileEvent] = s.applyProfiles
	acts[forgetAct] = s.forget
	acts[rotateAct] = s.rotate
	acts[policyEvent] = s.rules.apply
	acts[resumeVerb] = s.resume
	acts[gateway.AgentAddEvent], acts[agentRotateAct], acts[gateway.AgentRemoveEvent] = s.agentAdd, s.agentRotate, s.agentRemove
	acts[gateway.TokenAddEvent], acts[gateway.TokenRevokeEvent] = s.tokenAdd, s.tokenRevoke
	acts[approveVerb] = s.approve
	acts[notifyTestVerb], acts[notifyKeyVerb] = s.notifyTest, s.notifyKey
	acts[approvalsServeEvent] = s.serveNoted
	acts[standVerb] = s.stand
	acts[revokeVerb] = s.revoke
	acts[hooksEvent], acts[hooksRunVerb], acts[hooksNoteVerb] = s.applyHooks, s.runHooks, s.noteHooks
	acts[packTrustEvent], acts[packUntrustEvent] = s.packed.trust, s.packed.untrust
	acts[packInstallEvent], acts[packUninstallEvent], acts[packPublishEvent] = s.packed.install, s.packed.uninstall, s.packed.published
	return acts
}

func (s *stack) repin(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	job, pins, err := s.pinned(q)
	if err != nil {
		return nil, err
	}
	r := gateway.Repin{Capability: job.Capability, Operator: q.Operator, Person: from.Principal.Person}
	if err := json.Unmarshal([]byte(text(q.Args, "shown")), &r.Programs); err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a repin names the programs that were shown", Err: err}
	}
	if err := pins.Repin(ctx, job, r); err != nil {
		return nil, err
	}
	return changed{OK: true, Changed: true, Capability: job.Capability, Programs: r.Programs}, nil
}
