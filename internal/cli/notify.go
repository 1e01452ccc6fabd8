package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/notify"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

func (a *App) notifyVerb() *cobra.Command {
	return GroupVerb("notify", "Notify people of open questions",
		"Manage how people are notified of a question that waits for an answer. Set the channels in\nsettings.yaml, under notify; docs/notify.md describes how a receiver verifies the messages.",
		a.notifyTest(), a.notifyKey())
}

// unaskedFlag is the help for --yes of commands that ask no question.
const unaskedFlag = "with BAILEY_OPERATOR=1, if there is no terminal"

func (a *App) notifyTest() *cobra.Command {
	return a.YesFlag(&cobra.Command{
		Use: "test", Short: "Send a test over every channel in use, and show the results", Args: cobra.NoArgs,
		Long: `Send a test over every configured channel, once, and show the result. Exit code 1 if one of them
failed, or none is configured.

This is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := Operate(cmd.Context(), a, "notify test", apitype.TestNotifications, localapi.None{}, "")
			switch {
			case err != nil:
				return err
			case len(out.Ways) == 0:
				return bailey.NotFound.New("no notification channel is configured",
					"write notify: {desktop: true} or a webhook's url into "+settings.FileName+", then run bailey init --apply")
			}
			return ExitUnless(out.OK, apitype.ExitDenied, PrintAnswer(a, out, printNotified))
		},
	}, unaskedFlag)
}

func printNotified(w io.Writer, out apitype.NotifyTested) {
	PrintTable(w, "", out.Ways, func(r notify.Result) []any {
		word := "sent"
		if !r.OK {
			word = "FAILED"
		}
		return []any{r.Way, word, terminal.Shown(r.Said) + CureLine(r.Hint)}
	})
}

func (a *App) notifyKey() *cobra.Command {
	var fresh bool
	cmd := &cobra.Command{
		Use: "key", Short: "Create the key that signs webhook messages", Args: cobra.NoArgs,
		Long: `Create the key that signs webhook messages if there is none, and print its file: the receiver
needs the contents of that file. --new replaces the key at once, and the receiver must get the new one.

This is an operator command: it needs a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := apitype.NotifyKeyRequest{New: fresh}
			out, err := Operate(cmd.Context(), a, "notify key", apitype.MakeNotifyKey, r, "")
			if err != nil {
				return err
			}
			word := "the key already exists"
			if out.Made {
				word = "created a key"
			}
			return a.PrintLine(out, "%s, %s: copy the contents of %s to the receiver\n", word, out.Fingerprint,
				terminal.CutLine(out.File))
		},
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "replace the key")
	return a.YesFlag(cmd, unaskedFlag)
}

// notifyChange describes a change of the notifications, for the difference that init shows.
func notifyChange(old, now settings.Notify) string {
	words := terminal.Diff(notifyLines(old), notifyLines(now))
	if old != (settings.Notify{}) && !now.Desktop && now.Webhook == "" {
		words += "  ! people are no longer notified of questions\n"
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
