package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

func (a *App) notifyVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify", Short: "Notify people of open questions",
		Long: "Say how people are told of a question that waits for an answer. Which ways are on stands in settings.yaml, under notify;\ndocs/notify.md says how a receiver verifies what it is sent.",
	}
	cmd.AddCommand(a.notifyTest(), a.notifyKey())
	return cmd
}

func (a *App) notifyTest() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "test", Short: "Send a test over every channel in use, and show the results", Args: cobra.NoArgs,
		Long: `Send a test by every way that settings put on, once, and say what came back. Exit code 1 when one of them failed, or none
is on.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := notifyAct(cmd.Context(), a, apitype.TestNotifications, localapi.None{}, yes)
			if err != nil {
				return err
			}
			return a.notifyTested(out)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "beside BAILEY_OPERATOR=1, where there is no terminal")
	return cmd
}

func (a *App) notifyTested(out apitype.NotifyTested) error {
	if len(out.Ways) == 0 {
		return bailey.NotFound.New("no way to tell people is on",
			"write notify: {desktop: true} or a webhook's url into "+settings.FileName+", then bailey init --apply")
	}
	if a.JSON {
		if err := a.Print(out); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
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
		return Exit(apitype.ExitDenied)
	}
	return nil
}

func (a *App) notifyKey() *cobra.Command {
	var yes, fresh bool
	cmd := &cobra.Command{
		Use: "key", Short: "Create the key that signs webhook messages", Args: cobra.NoArgs,
		Long: `Make the key that signs what a webhook is sent, unless there is one, and say which file has it: the receiver wants what is
in that file. With --new another takes its place at once, and the receiver has to learn it.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := notifyAct(cmd.Context(), a, apitype.MakeNotifyKey, apitype.NotifyKeyRequest{New: fresh}, yes)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.Print(out)
			}
			word := "there is a key already"
			if out.Made {
				word = "made a key"
			}
			_, err = fmt.Fprintf(a.Stdout, "%s, %s: the receiver wants what is in %s\n", word, out.Fingerprint,
				terminal.CutLine(out.File))
			return err
		},
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "put another in its place")
	cmd.Flags().BoolVar(&yes, "yes", false, "beside BAILEY_OPERATOR=1, where there is no terminal")
	return cmd
}

// notifyAct sends a command to the gateway. It does not ask for a confirmation.
func notifyAct[Request, Answer any](ctx context.Context, a *App, e localapi.Endpoint[Request, Answer],
	r Request, yes bool) (out Answer, err error) {
	op, err := a.Operator(strings.ReplaceAll(e.Name, ".", " "), yes)
	if err != nil {
		return out, err
	}
	c, err := a.Client()
	if err != nil {
		return out, err
	}
	return e.Do(ctx, c, op, r)
}

// notifyChange describes a change of the notifications, for the difference that init shows.
func notifyChange(old, now settings.Notify) string {
	words := terminal.Diff(notifyLines(old), notifyLines(now))
	if old != (settings.Notify{}) && !now.Desktop && now.Webhook == "" {
		words += "  ! nobody is told of a question any more\n"
	}
	return words
}

func notifyLines(n settings.Notify) string {
	var list []string
	if n.Desktop {
		list = append(list, "notify desktop")
	}
	if n.Webhook != "" {
		list = append(list, "notify webhook "+n.Webhook)
	}
	return strings.Join(list, "\n")
}
