package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"sync"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
	"bailey/internal/terminal"
	"bailey/internal/workspace"
)

// settingsHandler handles the operator commands of init inside the gateway. Its state comes from the ledger.
type settingsHandler struct {
	settings *gateway.Settings
	note     func(ctx context.Context, kind string, data any) error

	mu         sync.Mutex
	configured map[string]apitype.Configuration // by file; guarded by mu
}

// openSettingsHandler restores the state from known, and opens the settings of the home.
func openSettingsHandler(home localapi.Home, w *workspace.Workspaces, r *gateway.Redaction, known State, note func(context.Context, string, any) error,
	log *slog.Logger) (*settingsHandler, error) {
	settings, err := gateway.OpenSettings(home, w, r, known.Settings, note, log)
	return &settingsHandler{settings: settings, note: note, configured: maps.Clone(known.Clients)}, err
}

func (d *settingsHandler) keep(kind string, c apitype.Configuration) {
	if kind == apitype.UndoEvent {
		delete(d.configured, c.File)
		return
	}
	if d.configured == nil {
		d.configured = map[string]apitype.Configuration{}
	}
	d.configured[c.File] = c
}

// state is a query. It returns the settings file and the applied settings.
func (d *settingsHandler) state(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	return d.settings.State(text(q.Args, "dir"))
}

// configuration is a query. It returns the entry that init wrote to a client's file and did not undo.
func (d *settingsHandler) configuration(_ context.Context, q localapi.Query, _ bailey.Call) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.configured[text(q.Args, "file")], nil
}

func (d *settingsHandler) acts() map[string]gateway.Verb {
	return map[string]gateway.Verb{"apply": d.apply, apitype.ConfigureEvent: d.configure, apitype.UndoEvent: d.configure}
}

func (d *settingsHandler) apply(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	var content []byte
	if s, ok := q.Args["text"].(string); ok {
		content = []byte(s)
	}
	by := settings.Applied{Operator: q.Operator, Person: from.Principal.Person}
	return d.settings.Apply(ctx, text(q.Args, "base"), content, by)
}

func (d *settingsHandler) configure(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	c := apitype.Configuration{
		Client: text(q.Args, "client"), Scope: text(q.Args, "scope"), File: text(q.Args, "file"), Command: text(q.Args, "command"),
		Added: apitype.Added(text(q.Args, "added")), Operator: q.Operator, Person: from.Principal.Person,
	}
	if !filepath.IsAbs(c.File) || c.Client == "" {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a configuration names a client and a file"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.note(ctx, q.Verb, c); err != nil {
		return nil, err
	}
	d.keep(q.Verb, c)
	return c, nil
}

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
