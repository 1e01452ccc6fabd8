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
		"Say how people are told of a question that waits for an answer. Which ways are on stands in settings.yaml, under notify;\ndocs/notify.md says how a receiver verifies what it is sent.",
		a.notifyTest(), a.notifyKey())
}

// unaskedFlag is the help for --yes of commands that ask no question.
const unaskedFlag = "beside BAILEY_OPERATOR=1, where there is no terminal"

func (a *App) notifyTest() *cobra.Command {
	return a.YesFlag(&cobra.Command{
		Use: "test", Short: "Send a test over every channel in use, and show the results", Args: cobra.NoArgs,
		Long: `Send a test by every way that settings put on, once, and say what came back. Exit code 1 when one of them failed, or none
is on.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := Operate(cmd.Context(), a, "notify test", apitype.TestNotifications, localapi.None{}, "")
			switch {
			case err != nil:
				return err
			case len(out.Ways) == 0:
				return bailey.NotFound.New("no way to tell people is on",
					"write notify: {desktop: true} or a webhook's url into "+settings.FileName+", then bailey init --apply")
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
		Long: `Make the key that signs what a webhook is sent, unless there is one, and say which file has it: the receiver wants what is
in that file. With --new another takes its place at once, and the receiver has to learn it.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r := apitype.NotifyKeyRequest{New: fresh}
			out, err := Operate(cmd.Context(), a, "notify key", apitype.MakeNotifyKey, r, "")
			if err != nil {
				return err
			}
			word := "there is a key already"
			if out.Made {
				word = "made a key"
			}
			return a.PrintLine(out, "%s, %s: the receiver wants what is in %s\n", word, out.Fingerprint,
				terminal.CutLine(out.File))
		},
	}
	cmd.Flags().BoolVar(&fresh, "new", false, "put another in its place")
	return a.YesFlag(cmd, unaskedFlag)
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
