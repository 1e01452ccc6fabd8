package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// listProfiles is a query.
func (s *Server) listProfiles(context.Context, localapi.Query, bailey.Call) (any, error) {
	states, err := s.shelf.profiles.States()
	stack := s.shelf.profiles.InForce()
	l := apitype.ProfileList{OK: true, InUse: append([]string{}, stack.Names()...), Profiles: states}
	if fault := stack.Fault(); fault != nil {
		l.Fault = apitype.WithHint(fault)
	}
	return l, err
}

// compareProfiles is the query that precedes a use.
func (s *Server) compareProfiles(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	names, err := wordsOf(q, "names")
	if err != nil {
		return nil, err
	}
	return s.proposeProfiles(names)
}

func (s *Server) proposeProfiles(names []string) (p apitype.ProfileChange, err error) {
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
func profilesText(u settings.InUse) string {
	var b strings.Builder
	for _, p := range u.Profiles {
		fmt.Fprintf(&b, "profile %s (%.12s)\n%s\n", p.Name, p.Digest, terminal.IndentValue(p.Profile))
	}
	return b.String()
}

// wordsOf decodes a list of strings from a query argument.
func wordsOf(q localapi.Query, key string) (list []string, err error) {
	if err = json.Unmarshal([]byte(text(q.Args, key)), &list); err != nil {
		err = &bailey.Error{Kind: bailey.Invalid, Message: key + " is a list of words", Err: err}
	}
	return list, err
}

// applyProfiles is the operator command.
func (s *Server) applyProfiles(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
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
	_, err = s.shelf.profiles.Use(ctx, names, digests, settings.InUse{Operator: q.Operator, Person: from.Principal.Person})
	p.Changed = err == nil
	return p, err
}

// ProfileStatus returns the state of the profiles for bailey status, or nil if none is in use.
func ProfileStatus(all *gateway.Profiles) *apitype.ProfileStatus {
	states, _ := all.States()
	return apitype.NewProfileStatus(all.InForce(), states)
}
