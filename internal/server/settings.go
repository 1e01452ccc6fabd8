package server

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// showSettings returns the settings file and the applied settings.
func (s *Server) showSettings(_ context.Context, r apitype.SettingsQuery, _ gateway.Caller) (settings.State, error) {
	return s.settings.State(r.Dir)
}

// showConfiguration returns the entry that init wrote to a client's file and did not undo.
func (s *Server) showConfiguration(_ context.Context, r apitype.ClientFile,
	_ gateway.Caller) (apitype.Configuration, error) {
	s.scribe.mu.Lock()
	defer s.scribe.mu.Unlock()
	return s.scribe.lore.Clients[r.File], nil
}

func (s *Server) applySettings(ctx context.Context, r apitype.SettingsRequest,
	from gateway.Caller) (settings.Applied, error) {
	var content []byte
	if r.Text != nil {
		content = []byte(*r.Text)
	}
	by := settings.Applied{Operator: from.Operator, Person: from.Principal.Person}
	defer s.askResources()
	return s.settings.Apply(ctx, r.Base, content, by)
}

func (s *Server) recordConfiguration(ctx context.Context, c apitype.Configuration,
	from gateway.Caller) (apitype.Configuration, error) {
	return s.noteConfiguration(ctx, apitype.ConfigureEvent, c, from)
}

func (s *Server) undoConfiguration(ctx context.Context, c apitype.Configuration,
	from gateway.Caller) (apitype.Configuration, error) {
	return s.noteConfiguration(ctx, apitype.UndoEvent, c, from)
}

// noteConfiguration records a change of a client's file before it happens.
func (s *Server) noteConfiguration(ctx context.Context, kind string, c apitype.Configuration,
	from gateway.Caller) (apitype.Configuration, error) {
	c.Operator, c.Person = from.Operator, from.Principal.Person
	if !filepath.IsAbs(c.File) || c.Client == "" {
		return c, bailey.Invalid.New("a configuration needs a client and a file", "")
	}
	return c, s.scribe.recordEvent(ctx, kind, c)
}

func (s *Server) listProfiles(context.Context, localapi.None, gateway.Caller) (apitype.ProfileList, error) {
	states, err := s.shelf.profiles.States()
	stack := s.shelf.profiles.InForce()
	l := apitype.ProfileList{OK: true, InUse: append([]string{}, stack.Names()...), Profiles: states}
	if fault := stack.Fault(); fault != nil {
		l.Fault = apitype.WithHint(fault)
	}
	return l, err
}

// compareProfiles returns the effect of a use.
func (s *Server) compareProfiles(_ context.Context, r apitype.ProfilesRequest,
	_ gateway.Caller) (apitype.ProfileChange, error) {
	return s.proposeProfiles(r.Names)
}

func (s *Server) proposeProfiles(names []string) (p apitype.ProfileChange, err error) {
	if names == nil {
		return p, noWords("names")
	}
	now := s.shelf.profiles.InForce()
	then, err := s.shelf.profiles.Propose(names)
	if err != nil {
		return p, err
	}
	p = apitype.ProfileChange{OK: true, InUse: append([]string{}, then.Names()...), Digests: []string{}}
	for _, u := range then.Profiles {
		p.Digests = append(p.Digests, u.Digest)
	}
	p.Text = terminal.Diff(profilesText(now.InUse), profilesText(then))
	p.Differs = p.Text != "" || now.Fault() != nil
	next := settings.Stack{InUse: then}
	for _, m := range s.shelf.Catalog().All() {
		switch was, will := admitCapability(now, m) == nil, admitCapability(next, m) == nil; {
		case will && !was:
			p.More = append(p.More, string(m.ID))
		case was && !will:
			p.Fewer = append(p.Fewer, string(m.ID))
		}
	}
	return p, nil
}

// profilesText lists the settings of profiles, one a line, for comparison.
func profilesText(u settings.InUse) string {
	var b strings.Builder
	for _, p := range u.Profiles {
		fmt.Fprintf(&b, "profile %s (%.12s)\n%s\n", p.Name, p.Digest, terminal.IndentValue(p.Profile))
	}
	return b.String()
}

// noWords returns the error for a request without a required list.
func noWords(key string) error {
	return bailey.Invalid.New(key+" must be a list of words", "")
}

// useProfiles puts profiles into use.
func (s *Server) useProfiles(ctx context.Context, r apitype.ProfilesRequest,
	from gateway.Caller) (p apitype.ProfileChange, err error) {
	if r.Names != nil && r.Digests == nil {
		return p, noWords("digests")
	}
	if p, err = s.proposeProfiles(r.Names); err != nil {
		return p, err
	}
	_, err = s.shelf.profiles.Use(ctx, r.Names, r.Digests,
		settings.InUse{Operator: from.Operator, Person: from.Principal.Person})
	p.Changed = err == nil
	return p, err
}

// ProfileStatus returns the state of the profiles for bailey status, or nil if none is in use.
func ProfileStatus(all *gateway.Profiles) *apitype.ProfileStatus {
	states, _ := all.States()
	return apitype.NewProfileStatus(all.InForce(), states)
}
