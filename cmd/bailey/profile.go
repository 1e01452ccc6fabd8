package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// profilesLook is the query for the profiles, profileCompare that for the effect of using some.
const profilesLook, profileCompare = "profiles", "profile.compare"

type profileList struct {
	OK       bool                   `json:"ok"`
	InUse    []string               `json:"inUse"`
	Fault    string                 `json:"fault,omitempty"` // why no capability can be called
	Profiles []gateway.ProfileState `json:"profiles"`
}

// profileChange describes the changes of a use of profiles.
type profileChange struct {
	OK      bool     `json:"ok"`
	Changed bool     `json:"changed"` // it was applied
	Differs bool     `json:"differs"`
	InUse   []string `json:"inUse"`
	Digests []string `json:"digests"`
	Text    string   `json:"text,omitempty"`  // the difference, line by line
	More    []string `json:"more,omitempty"`  // capabilities that become callable
	Fewer   []string `json:"fewer,omitempty"` // capabilities that stop being callable
}

func (a *app) profileVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "profile", Short: "What is active here: packs, capabilities, workspaces, places, names of secrets",
		Long: "Profiles are files $BAILEY_HOME/profiles/NAME.yaml; docs/profiles.md has all that they may say."}
	cmd.AddCommand(a.profileList(), a.profileShow(), a.profileUse())
	return cmd
}

func (a *app) profileList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The profiles, and which are in use", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: profilesLook}, func(l profileList) {
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for _, p := range l.Profiles {
					fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, profileState(p), cell(profileSays(p)))
				}
				w.Flush()
				switch {
				case l.Fault != "":
					fmt.Fprintln(a.stdout, "NOTHING CAN BE CALLED: "+terminal.Shown(l.Fault))
				case len(l.Profiles) == 0:
					fmt.Fprintln(a.stdout, "no profiles: everything that is installed is active")
				}
			})
		},
	}
}

func profileState(p gateway.ProfileState) string {
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

func profileSays(p gateway.ProfileState) string {
	if p.Fault != "" {
		return p.Fault
	}
	words := p.Profile.Description
	if words == "" && len(p.Profile.Packs) > 0 {
		words = strings.Join(p.Profile.Packs, ", ")
	}
	return words
}

func (a *app) profileShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "What a profile says", Args: oneArg("a profile"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var l profileList
			c, err := a.client()
			if err != nil {
				return err
			}
			if err := c.Look(cmd.Context(), wire.Query{Verb: profilesLook}, &l); err != nil {
				return err
			}
			at := slices.IndexFunc(l.Profiles, func(p gateway.ProfileState) bool { return p.Name == args[0] })
			if at < 0 {
				return &bailey.Error{Kind: bailey.NotFound, Message: "there is no profile " + args[0], Hint: "bailey profile list names those there are"}
			}
			p := l.Profiles[at]
			if a.json {
				return a.print(p)
			}
			if p.Fault != "" {
				return &bailey.Error{Kind: bailey.Invalid, Message: p.Fault, Hint: p.Cure}
			}
			fmt.Fprintf(a.stdout, "%s, %s\n%s\n", p.Name, profileState(p), indentValue(p.Profile))
			return nil
		},
	}
}

func (a *app) profileUse() *cobra.Command {
	var yes, none bool
	cmd := &cobra.Command{
		Use: "use NAME... | --none", Short: "Put profiles to use, after showing what they change",
		Long: `Put profiles to use, from the next call on, in place of those in use now.

Several add up, in their order: lists are joined, and of a single value or a binding the later profile's holds. What
is in use is what the files said now; that they say something else later is a finding of status and doctor.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey profile use development\n  bailey profile use base production\n  bailey profile use --none",
		RunE: func(cmd *cobra.Command, args []string) error {
			if none == (len(args) > 0) {
				return &bailey.Error{Kind: bailey.Invalid, Message: "want profiles, or --none alone", Hint: "bailey profile list names those there are"}
			}
			return a.useProfiles(cmd.Context(), args, yes)
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&none, "none", false, "use no profile: everything that is installed is active")
	return cmd
}

func (a *app) useProfiles(ctx context.Context, names []string, yes bool) error {
	op, err := a.operator("profile use", yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	listed, _ := json.Marshal(append([]string{}, names...)) // cannot fail for strings
	query := map[string]any{"names": string(listed)}
	var p profileChange
	if err := c.Look(ctx, wire.Query{Verb: profileCompare, Args: query}, &p); err != nil {
		return err
	}
	if p.Differs {
		if !yes || !a.json {
			fmt.Fprint(a.dialog(), p.words())
		}
		if !yes {
			if err := a.confirm(ctx, "Use this?"); err != nil {
				return err
			}
		}
		digests, _ := json.Marshal(p.Digests)
		query["digests"] = string(digests)
		if err := act(ctx, c, op, gateway.ProfileEvent, query, &p); err != nil {
			return err
		}
	}
	switch {
	case a.json:
		return a.print(p)
	case !p.Changed:
		fmt.Fprintln(a.stdout, "nothing changes: this is in use")
	case len(p.InUse) == 0:
		fmt.Fprintln(a.stdout, "no profile is in use: everything that is installed is active from the next call on")
	default:
		fmt.Fprintf(a.stdout, "in use from the next call on: %s\n", strings.Join(p.InUse, ", "))
	}
	return nil
}

func (p profileChange) words() string {
	var b strings.Builder
	b.WriteString(p.Text)
	for _, of := range []struct {
		words string
		ids   []string
	}{{"can be called then", p.More}, {"cannot be called then", p.Fewer}} {
		if len(of.ids) > 0 {
			fmt.Fprintf(&b, "%s: %s\n", of.words, strings.Join(of.ids, ", "))
		}
	}
	return b.String()
}

// listProfiles is a query.
func (s *stack) listProfiles(context.Context, wire.Query, bailey.Call) (any, error) {
	states, err := s.shelf.profiles.States()
	stack := s.shelf.profiles.InForce()
	l := profileList{OK: true, InUse: append([]string{}, stack.Names()...), Profiles: states}
	if fault := stack.Fault(); fault != nil {
		l.Fault = withHint(fault)
	}
	return l, err
}

// compareProfiles is the query that precedes a use.
func (s *stack) compareProfiles(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	names, err := wordsOf(q, "names")
	if err != nil {
		return nil, err
	}
	return s.proposeProfiles(names)
}

func (s *stack) proposeProfiles(names []string) (p profileChange, err error) {
	now := s.shelf.profiles.InForce()
	then, err := s.shelf.profiles.Propose(names)
	if err != nil {
		return p, err
	}
	p = profileChange{OK: true, InUse: append([]string{}, then.Names()...), Digests: []string{}}
	for _, u := range then.Profiles {
		p.Digests = append(p.Digests, u.Digest)
	}
	p.Text = difference(profilesText(now.InUse), profilesText(then))
	p.Differs = p.Text != "" || now.Fault() != nil
	next := gateway.Stack{InUse: then}
	for _, m := range s.shelf.Catalog().All() {
		switch was, will := admit(now, m) == nil, admit(next, m) == nil; {
		case will && !was:
			p.More = append(p.More, string(m.ID))
		case was && !will:
			p.Fewer = append(p.Fewer, string(m.ID))
		}
	}
	return p, nil
}

// profilesText lists the settings of profiles, one a line, for comparison.
func profilesText(u gateway.InUse) string {
	var b strings.Builder
	for _, p := range u.Profiles {
		fmt.Fprintf(&b, "profile %s (%.12s)\n%s\n", p.Name, p.Digest, indentValue(p.Profile))
	}
	return b.String()
}

// wordsOf decodes a list of strings from a query argument.
func wordsOf(q wire.Query, key string) (list []string, err error) {
	if err = json.Unmarshal([]byte(text(q.Args, key)), &list); err != nil {
		err = &bailey.Error{Kind: bailey.Invalid, Message: key + " is a list of words", Err: err}
	}
	return list, err
}

// applyProfiles is the operator command.
func (s *stack) applyProfiles(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	names, err := wordsOf(q, "names")
	if err != nil {
		return nil, err
	}
	digests, err := wordsOf(q, "digests")
	if err != nil {
		return nil, err
	}
	p, err := s.proposeProfiles(names)
	if err != nil {
		return nil, err
	}
	_, err = s.shelf.profiles.Use(ctx, names, digests, gateway.InUse{Operator: q.Operator, Person: from.Principal.Person})
	p.Changed = err == nil
	return p, err
}

// profileStatus is the state of the profiles, as `bailey status` shows it.
type profileStatus struct {
	InUse   []string `json:"inUse"`
	Fault   string   `json:"fault,omitempty"`
	Changed []string `json:"changed,omitempty"` // whose file has changed since
}

func newProfileStatus(all *gateway.Profiles) *profileStatus {
	stack := all.InForce()
	if len(stack.Profiles) == 0 {
		return nil
	}
	p := &profileStatus{InUse: stack.Names()}
	if fault := stack.Fault(); fault != nil {
		p.Fault = withHint(fault)
	}
	states, _ := all.States()
	for _, st := range states {
		if st.Changed {
			p.Changed = append(p.Changed, st.Name)
		}
	}
	return p
}

func (p *profileStatus) words(line func(name, format string, args ...any)) {
	line("profile", "%s", strings.Join(p.InUse, ", "))
	if p.Fault != "" {
		line("PROFILE", "NOTHING CAN BE CALLED: %s", terminal.Shown(p.Fault))
	}
	if len(p.Changed) > 0 {
		line("DRIFT", "%s; %s", p.drift(), p.cure())
	}
}

func (p *profileStatus) drift() string {
	return fmt.Sprintf("profiles/%s.yaml is not what is in use", strings.Join(p.Changed, ".yaml and profiles/"))
}

func (p *profileStatus) cure() string {
	return fmt.Sprintf("bailey profile use %s shows the difference and applies it", strings.Join(p.InUse, " "))
}

// examineProfiles returns the doctor's finding about the profiles in use. If no gateway is running, it examines the
// profiles that the next gateway would use.
func examineProfiles(home wire.Home, s status) []finding {
	const name, tried = "profiles", "held what is in use against its files"
	if !s.Running && ledger.Begun(home.Ledger()) {
		l, err := recalled(home)
		if err != nil {
			return []finding{wrong(name, missing, "read what was put to use last", err)}
		}
		homes := gateway.Homes()
		s.Profile = newProfileStatus(gateway.OpenProfiles(home, gateway.NewWorkspaces(gateway.Masks(home, homes), homes), l.Profiles, nil, slog.New(slog.DiscardHandler)))
	}
	switch p := s.Profile; {
	case p == nil:
		return nil
	case p.Fault != "":
		return []finding{{name, missing, p.Fault, p.cure()}}
	case len(p.Changed) > 0:
		return []finding{{name, warning, tried + ": " + p.drift(), p.cure()}}
	default:
		return []finding{{name, good, tried + ": " + strings.Join(p.InUse, ", "), ""}}
	}
}
