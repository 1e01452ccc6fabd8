package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/notify"
	"bailey/internal/terminal"
)

// notifyTestVerb and notifyKeyVerb are operator commands, and the kinds of their ledger entries.
const notifyTestVerb, notifyKeyVerb = "notify.test", "notify.key"

// notifyTested is the result of a test, as JSON.
type notifyTested struct {
	OK   bool            `json:"ok"`
	Ways []notify.Result `json:"ways"`
}

// notifyKeyed describes the key that signs the messages to a webhook. The key itself is only in the file.
type notifyKeyed struct {
	OK          bool   `json:"ok"`
	Made        bool   `json:"made"`
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint"`
}

func (a *app) notifyVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify", Short: "Telling people that a question is open",
		Long: "Say how people are told of a question that waits for an answer. Which ways are on stands in settings.yaml, under notify;\ndocs/notify.md says how a receiver verifies what it is sent.",
	}
	cmd.AddCommand(a.notifyTest(), a.notifyKey())
	return cmd
}

func (a *app) notifyTest() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "test", Short: "Send a test by every way that is on, and say what came back", Args: cobra.NoArgs,
		Long: `Send a test by every way that settings put on, once, and say what came back. Exit code 1 when one of them failed, or none
is on.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out notifyTested
			if err := a.notifyAct(cmd.Context(), notifyTestVerb, yes, nil, &out); err != nil {
				return err
			}
			return a.notifyTested(out)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "beside BAILEY_OPERATOR=1, where there is no terminal")
	return cmd
}

func (a *app) notifyTested(out notifyTested) error {
	if len(out.Ways) == 0 {
		return &bailey.Error{Kind: bailey.NotFound, Message: "no way to tell people is on", Hint: "write notify: {desktop: true} or a webhook's url into " + gateway.SettingsName + ", then bailey init --apply"}
	}
	if a.json {
		if err := a.print(out); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
		for _, r := range out.Ways {
			word := "sent"
			if !r.OK {
				word = "FAILED"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.Way, word, terminal.Shown(r.Said))
			if r.Hint != "" {
				fmt.Fprintf(w, "\t\t→ %s\n", terminal.Shown(r.Hint))
			}
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if !out.OK {
		return exit(exitDenied)
	}
	return nil
}

func (a *app) notifyKey() *cobra.Command {
	var yes, fresh bool
	cmd := &cobra.Command{
		Use: "key", Short: "Make the key that signs what a webhook is sent", Args: cobra.NoArgs,
		Long: `Make the key that signs what a webhook is sent, unless there is one, and say which file has it: the receiver wants what is
in that file. With --new another takes its place at once, and the receiver has to learn it.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out notifyKeyed
			if err := a.notifyAct(cmd.Context(), notifyKeyVerb, yes, map[string]any{"new": fresh}, &out); err != nil {
				return err
			}
			if a.json {
				return a.print(out)
			}
			word := "there is a key already"
			if out.Made {
				word = "made a key"
			}
			_, err := fmt.Fprintf(a.stdout, "%s, %s: the receiver wants what is in %s\n", word, out.Fingerprint, visible(out.File))
			return err
		},
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "put another in its place")
	cmd.Flags().BoolVar(&yes, "yes", false, "beside BAILEY_OPERATOR=1, where there is no terminal")
	return cmd
}

func (a *app) notifyAct(ctx context.Context, verb string, yes bool, args map[string]any, out any) error {
	op, err := a.operator(strings.ReplaceAll(verb, ".", " "), yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	return act(ctx, c, op, verb, args, out)
}

// notifyChange describes a change of the notifications, for the difference that init shows.
func notifyChange(old, now gateway.Notify) string {
	words := difference(notifyLines(old), notifyLines(now))
	if old != (gateway.Notify{}) && !now.Desktop && now.Webhook == "" {
		words += "  ! nobody is told of a question any more\n"
	}
	return words
}

func notifyLines(n gateway.Notify) string {
	var list []string
	if n.Desktop {
		list = append(list, "notify desktop")
	}
	if n.Webhook != "" {
		list = append(list, "notify webhook "+n.Webhook)
	}
	return strings.Join(list, "\n")
}

// notifyStatus is the state of the notification channels, and the number of rules that can ask.
type notifyStatus struct {
	Ways  []notify.State `json:"ways"`
	Asks  int            `json:"askingRules"`     // of the policy itself, for callable capabilities
	Fault string         `json:"fault,omitempty"` // why the webhook cannot be called
}

func (n *notifyStatus) words() string {
	var list []string
	for _, w := range n.Ways {
		text := strings.TrimSpace(w.Way+" "+w.Where) + fmt.Sprintf(": %d sent", w.Sent)
		for _, c := range []struct {
			n    uint64
			what string
		}{{w.Failed, "failed"}, {w.Dropped, "dropped"}, {uint64(w.Waiting), "waiting"}} {
			if c.n > 0 {
				text += fmt.Sprintf(", %d %s", c.n, c.what)
			}
		}
		for _, why := range []string{w.Absent, w.Last} {
			if why != "" {
				text += " (" + why + ")"
				break
			}
		}
		list = append(list, text)
	}
	if n.Fault != "" {
		list = append(list, n.Fault)
	}
	if len(list) == 0 {
		list = append(list, "nobody is told of questions")
	}
	return strings.Join(list, "; ")
}

// examineNotify checks whether a person learns of a pending question without looking for it.
func examineNotify(s status) []finding {
	const name = "notify"
	n := s.Notify
	if n == nil {
		return nil
	}
	tried := "looked at how people are told of questions: " + n.words()
	bad := slices.ContainsFunc(n.Ways, func(w notify.State) bool { return w.Absent != "" || w.Dropped > 0 || w.Failed > 0 && w.Last != "" })
	switch {
	case n.Fault != "":
		return []finding{{name, warning, tried, "bailey notify key makes the key; bailey notify test tries it"}}
	case bad:
		return []finding{{name, warning, tried, "bailey notify test says what is wrong now"}}
	case len(n.Ways) > 0:
		return []finding{{name, good, tried, ""}}
	case n.Asks > 0:
		return []finding{{name, warning, fmt.Sprintf("%s, and %s of the policy can ask: a question waits until somebody looks", tried, counts(n.Asks, "rule")),
			"write notify: {desktop: true} or a webhook's url into " + gateway.SettingsName + ", then bailey init --apply (docs/notify.md)"}}
	}
	return nil
}
