package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) profileVerb() *cobra.Command {
	return GroupVerb("profile", "Select profiles: active packs, workspaces, hosts and secrets",
		"Profiles are files $BAILEY_HOME/profiles/NAME.yaml; see docs/profiles.md for their contents.",
		a.profileShow(), a.profileUse(), QueryVerb(a, &cobra.Command{
			Use: "list", Short: "List the profiles, and which are in use",
		}, apitype.ListProfiles, nil, printProfiles))
}

func printProfiles(w io.Writer, l apitype.ProfileList) {
	PrintTable(w, "", l.Profiles, func(p apitype.ProfileState) []any {
		return []any{p.Name, profileState(p), terminal.TableCell(profileSays(p))}
	})
	switch {
	case l.Fault != "":
		fmt.Fprintln(w, "NO CALL IS POSSIBLE: "+terminal.Shown(l.Fault))
	case len(l.Profiles) == 0:
		fmt.Fprintln(w, "no profiles: everything installed is active")
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
			l, err := Ask(cmd.Context(), a, apitype.ListProfiles, localapi.None{})
			if err != nil {
				return err
			}
			at := slices.IndexFunc(l.Profiles, func(p apitype.ProfileState) bool { return p.Name == args[0] })
			if at < 0 {
				return bailey.NotFound.New("there is no profile "+args[0],
					"run bailey profile list to show the profiles")
			}
			p := l.Profiles[at]
			if p.Fault != "" && !a.JSON {
				return bailey.Invalid.New(p.Fault, p.Cure)
			}
			return a.PrintLine(p, "%s, %s\n%s\n", p.Name, profileState(p), terminal.IndentValue(p.Profile))
		},
	}
}

func (a *App) profileUse() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use: "use NAME... | --none", Short: "Show what profiles change, and use them",
		Long: `Use profiles from the next call on, in place of those in use now.

Several profiles are merged in the given order: lists are joined; for single values and bindings the later
profile wins. The current contents of the files are used. If the files change later, status and doctor report
the difference.`,
		Example: "  bailey profile use development\n  bailey profile use base production\n  bailey profile use --none",
		RunE: func(cmd *cobra.Command, args []string) error {
			if none == (len(args) > 0) {
				return bailey.Invalid.New("use needs profiles, or only --none",
					"run bailey profile list to show the profiles")
			}
			return a.useProfiles(cmd.Context(), args)
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "use no profile: everything installed is active")
	return a.OperatorVerb(cmd)
}

func (a *App) useProfiles(ctx context.Context, names []string) error {
	r := apitype.ProfilesRequest{Names: append([]string{}, names...)}
	return propose(ctx, a, "profile use", "Use this?", apitype.CompareProfiles, r, apitype.UseProfiles,
		func(p apitype.ProfileChange) (bool, string, *apitype.ProfilesRequest) {
			r.Digests = p.Digests
			return p.Differs, p.Summary(), changeIf(p.Differs, r)
		}, func(p apitype.ProfileChange) string {
			switch {
			case !p.Changed:
				return "nothing to do: this is in use"
			case len(p.InUse) == 0:
				return "no profile is in use: everything installed is active from the next call on"
			}
			return "in use from the next call on: " + strings.Join(p.InUse, ", ")
		})
}
