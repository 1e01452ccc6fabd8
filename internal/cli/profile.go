package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) profileVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "profile",
		Short: "Select profiles: active packs, workspaces, hosts and secrets",
		Long:  "Profiles are files $BAILEY_HOME/profiles/NAME.yaml; docs/profiles.md has all that they may say."}
	cmd.AddCommand(a.profileList(), a.profileShow(), a.profileUse())
	return cmd
}

func (a *App) profileList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the profiles, and which are in use", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return Show(cmd.Context(), a, apitype.ListProfiles, localapi.None{}, func(l apitype.ProfileList) {
				w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
				for _, p := range l.Profiles {
					fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, profileState(p), terminal.TableCell(profileSays(p)))
				}
				w.Flush()
				switch {
				case l.Fault != "":
					fmt.Fprintln(a.Stdout, "NOTHING CAN BE CALLED: "+terminal.Shown(l.Fault))
				case len(l.Profiles) == 0:
					fmt.Fprintln(a.Stdout, "no profiles: everything that is installed is active")
				}
			})
		},
	}
}

func profileState(p apitype.ProfileState) string {
	switch {
	case p.Fault != "" && p.InUse:
		return "in use, FILE FAULTY"
	case p.Fault != "":
		return "FAULTY"
	case p.Changed:
		return "in use, FILE CHANGED"
	case p.InUse:
		return "in use"
	}
	return "-"
}

func profileSays(p apitype.ProfileState) string {
	if p.Fault != "" {
		return p.Fault
	}
	words := p.Profile.Description
	if words == "" && len(p.Profile.Packs) > 0 {
		words = strings.Join(p.Profile.Packs, ", ")
	}
	return words
}

func (a *App) profileShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Show a profile", Args: OneArg("a profile"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			l, err := apitype.ListProfiles.Ask(cmd.Context(), c, localapi.None{})
			if err != nil {
				return err
			}
			at := slices.IndexFunc(l.Profiles, func(p apitype.ProfileState) bool { return p.Name == args[0] })
			if at < 0 {
				return bailey.NotFound.New("there is no profile "+args[0],
					"bailey profile list names those there are")
			}
			p := l.Profiles[at]
			if a.JSON {
				return a.Print(p)
			}
			if p.Fault != "" {
				return bailey.Invalid.New(p.Fault, p.Cure)
			}
			fmt.Fprintf(a.Stdout, "%s, %s\n%s\n", p.Name, profileState(p), terminal.IndentValue(p.Profile))
			return nil
		},
	}
}

func (a *App) profileUse() *cobra.Command {
	var yes, none bool
	cmd := &cobra.Command{
		Use: "use NAME... | --none", Short: "Show what profiles change, and use them",
		Long: `Put profiles to use, from the next call on, in place of those in use now.

Several add up, in their order: lists are joined, and of a single value or a binding the later profile's holds. What
is in use is what the files said now; that they say something else later is a finding of status and doctor.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey profile use development\n  bailey profile use base production\n  bailey profile use --none",
		RunE: func(cmd *cobra.Command, args []string) error {
			if none == (len(args) > 0) {
				return bailey.Invalid.New("want profiles, or --none alone",
					"bailey profile list names those there are")
			}
			return a.useProfiles(cmd.Context(), args, yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&none, "none", false, "use no profile: everything that is installed is active")
	return cmd
}

func (a *App) useProfiles(ctx context.Context, names []string, yes bool) error {
	op, err := a.Operator("profile use", yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	r := apitype.ProfilesRequest{Names: append([]string{}, names...)}
	p, err := apitype.CompareProfiles.Ask(ctx, c, r)
	if err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.JSON {
			fmt.Fprint(a.Dialog(), p.Summary())
		}
		if !yes {
			if err := a.Confirm(ctx, "Use this?"); err != nil {
				return err
			}
		}
		r.Digests = p.Digests
		if p, err = apitype.UseProfiles.Do(ctx, c, op, r); err != nil {
			return err
		}
	}
	switch {
	case a.JSON:
		return a.Print(p)
	case !p.Changed:
		fmt.Fprintln(a.Stdout, "nothing changes: this is in use")
	case len(p.InUse) == 0:
		fmt.Fprintln(a.Stdout, "no profile is in use: everything that is installed is active from the next call on")
	default:
		fmt.Fprintf(a.Stdout, "in use from the next call on: %s\n", strings.Join(p.InUse, ", "))
	}
	return nil
}
