package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/enrol"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

func (a *App) enrollVerb() *cobra.Command {
	var f enrol.Flags
	kind := enrol.Gateway
	cmd := &cobra.Command{
		Use: "enroll URL", Short: "Connect this gateway to the control plane of a team",
		Long: `Connect this gateway to a control plane. The token comes from standard input or from a file: an admin of the
organisation makes it there. The gateway then connects by itself, also after a restart, and works without
the control plane when it is away. It sends its ledger, with the redacted receipts, and obeys the kill switch.

With --kind host, the machine is there for sandboxes of the team: its gateway tells the control plane the capacity,
the images and the networks of its bailey-host, and makes the calls that the settings permit (fleet: {calls: […]}).`,
		Example: "  bailey enroll https://bailey.example.com --token-file token\n  pass bailey/token | bailey enroll https://bailey.example.com",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.enrollGateway(cmd.Context(), f, args[0], kind) },
	}
	cmd.Flags().StringVar(&kind, "kind", kind, "what this machine is for the team: `gateway or host`, as its token says")
	cmd.Flags().StringVar(&f.TokenFile, "token-file", "", "read the token from this `file`, not from standard input")
	cmd.Flags().StringVar(&f.CA, "ca", "", "trust the certificates in this PEM `file`, not those of the system")
	cmd.Flags().StringVar(&f.Cert, "cert", "", "show the certificate in this PEM `file` instead of a token")
	cmd.Flags().StringVar(&f.Key, "key", "", "the `file` with the key of --cert")
	cmd.Flags().BoolVar(&f.Insecure, "insecure-http", false, "permit http:// to another machine: the token crosses the network in clear")
	cmd.AddCommand(a.enrollStatus())
	return a.OperatorVerb(cmd)
}

// enrolled is the answer of enroll.
type enrolled struct {
	OK bool `json:"ok"`
	enrol.Shown
}

func (a *App) enrollGateway(ctx context.Context, f enrol.Flags, url, kind string) error {
	if kind != enrol.Gateway && kind != enrol.SandboxHost {
		return bailey.Invalid.Errorf("use --kind gateway or --kind host", "%q is not a kind of enrolment", kind)
	}
	home, err := localapi.FindHome()
	if err != nil {
		return err
	}
	_, err = a.OperatorBeside(ctx, "enroll", "Connect this gateway to "+terminal.Shown(url)+"?", "nothing was changed")
	if err != nil {
		return err
	}
	if err := home.Create(); err != nil {
		return err
	}
	e, err := enrol.DirOf(string(home)).Begin(ctx, f, url, a.Stdin, kind)
	if err != nil {
		return err
	}
	a.warnClear(e)
	return a.PrintLine(enrolled{true, e.Shown()},
		"enrolled as %s (%s); the gateway connects when it runs: bailey enroll status\n", terminal.Shown(e.Name), e.Host)
}

func (a *App) warnClear(e enrol.Enrolment) {
	if e.Insecure && !a.JSON {
		fmt.Fprintln(a.Stderr, "bailey: the token crosses the network in clear (--insecure-http)")
	}
}

func (a *App) unenrollVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "unenroll", Short: "End the connection to the control plane", Args: cobra.NoArgs,
		Long: `End the connection of this gateway to its control plane, and remove the token. What waited for the control
plane is lost to it; the ledger here keeps everything. The token stays valid until an admin removes it.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.Operator("unenroll"); err != nil {
				return err
			}
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			if err := a.Confirm(cmd.Context(), "End the connection to the control plane?"); err != nil {
				return err
			}
			if err := enrol.DirOf(string(home)).Remove(); err != nil {
				return err
			}
			return a.PrintLine(map[string]bool{"ok": true}, "this gateway is not enrolled any more\n")
		},
	})
}

func (a *App) enrollStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show the connection to the control plane", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			s, err := enrol.DirOf(string(home)).Report()
			if err != nil {
				return err
			}
			return PrintAnswer(a, s, func(w io.Writer, s enrol.Report) { s.Print(w, terminal.Shown) })
		},
	}
}
