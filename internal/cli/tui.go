package cli

import (
	"context"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
	"bailey/internal/tui"
)

func (a *App) tuiVerb() *cobra.Command {
	var key string
	var plain, yes bool
	cmd := &cobra.Command{
		Use: "tui", Short: "Questions, calls, receipts and grants on one screen", Args: cobra.NoArgs,
		Long: `Show what waits for a person, what runs, what was done, which grants stand, and the switch that stops everything, in a
terminal, by keys alone: ? lists them. A new question rings the bell.

Looking is everybody's. To grant, to revoke and to resume is an operator's, as on the command line: it wants a terminal,
or BAILEY_OPERATOR=1 and --yes. With --key answers are signed by ssh-keygen, which gets the terminal for a passphrase or a touch.

--plain goes line by line, for screen readers and for terminals that cannot do more: nothing is drawn over, and commands
are words. Every dialog begins at No.`,
		Example: "  bailey tui --key ~/.ssh/id_ed25519_sk\n  bailey tui --plain",
		RunE: func(cmd *cobra.Command, _ []string) error {
			plain = plain || os.Getenv("TERM") == "dumb"
			if err := a.screened(plain, yes); err != nil {
				return err
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			desk := &tuiBackend{app: a, home: c.Home, yes: yes}
			// the first query starts a gateway
			if err := c.Look(cmd.Context(), localapi.Query{Verb: apitype.NowQuery}, &apitype.Present{}); err != nil {
				return err
			}
			conf := tui.Config{Look: desk, Hand: desk, Color: os.Getenv("NO_COLOR") == "", Yes: yes}
			if key != "" {
				conf.Key = terminal.CutLine(key)
				conf.Sign = func(ctx context.Context, text string) (string, error) { return signAnswer(ctx, key, text) }
			}
			if plain {
				return tui.Plain(cmd.Context(), conf, a.Stdin, a.Stdout)
			}
			// On the screen Ctrl-C is a key. The SIGINT is meant for ssh-keygen while it has the terminal.
			ctx, stop := terminal.UntilSignal(context.WithoutCancel(cmd.Context()), syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return tui.Run(ctx, conf, os.Stdin, os.Stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "sign answers with this SSH key, a `file`")
	f.BoolVar(&plain, "plain", false, "line by line")
	f.BoolVar(&yes, "yes", false, "with --plain: do not ask")
	return cmd
}

// screened returns an error if the screen cannot be shown here.
func (a *App) screened(plain, yes bool) error {
	switch {
	case a.JSON:
		return &bailey.Error{Kind: bailey.Invalid, Message: "tui is for people and has no JSON", Hint: "bailey approvals list --json, bailey status --json and bailey receipts list --json have"}
	case plain:
		return nil
	case yes:
		return &bailey.Error{Kind: bailey.Invalid, Message: "--yes goes with --plain alone: a screen asks", Hint: "leave it out"}
	case !terminal.Is(os.Stdin) || !terminal.Is(os.Stdout):
		return &bailey.Error{Kind: bailey.Invalid, Message: "tui wants a terminal: " + noTerminal(), Hint: "bailey tui --plain goes line by line"}
	}
	return nil
}
