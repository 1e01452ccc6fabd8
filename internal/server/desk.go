package server

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/settings"
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
