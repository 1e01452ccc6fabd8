package main

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/wire"
)

// The ledger events for the changes that init makes in the files of a client.
const (
	configureEvent = "client.configure"
	undoEvent      = "client.undo"
)

// configuration is the data of both events: a file of a client, and how much of it Bailey added. It must be recorded
// before the file changes.
type configuration struct {
	Client   string        `json:"client"`
	Scope    string        `json:"scope"`
	File     string        `json:"file"`
	Command  string        `json:"command"`
	Added    added         `json:"added"`
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// desk handles the operator commands of init inside the gateway. Its state comes from the ledger.
type desk struct {
	settings *gateway.Settings
	note     func(ctx context.Context, kind string, data any) error

	mu         sync.Mutex
	configured map[string]configuration // by file; guarded by mu
}

// openDesk restores the state from known, and opens the settings of the home.
func openDesk(home wire.Home, w *gateway.Workspaces, r *gateway.Redaction, known lore, note func(context.Context, string, any) error,
	log *slog.Logger) (*desk, error) {
	settings, err := gateway.OpenSettings(home, w, r, known.Settings, note, log)
	return &desk{settings: settings, note: note, configured: maps.Clone(known.Clients)}, err
}

func (d *desk) keep(kind string, c configuration) {
	if kind == undoEvent {
		delete(d.configured, c.File)
		return
	}
	if d.configured == nil {
		d.configured = map[string]configuration{}
	}
	d.configured[c.File] = c
}

// state is a query. It returns the settings file and the applied settings.
func (d *desk) state(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	return d.settings.State(text(q.Args, "dir"))
}

// configuration is a query. It returns the entry that init wrote to a client's file and did not undo.
func (d *desk) configuration(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.configured[text(q.Args, "file")], nil
}

func (d *desk) acts() map[string]gateway.Verb {
	return map[string]gateway.Verb{"apply": d.apply, configureEvent: d.configure, undoEvent: d.configure}
}

func (d *desk) apply(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	var content []byte
	if s, ok := q.Args["text"].(string); ok {
		content = []byte(s)
	}
	by := gateway.Applied{Operator: q.Operator, Person: from.Principal.Person}
	return d.settings.Apply(ctx, text(q.Args, "base"), content, by)
}

func (d *desk) configure(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	c := configuration{
		Client: text(q.Args, "client"), Scope: text(q.Args, "scope"), File: text(q.Args, "file"), Command: text(q.Args, "command"),
		Added: added(text(q.Args, "added")), Operator: q.Operator, Person: from.Principal.Person,
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
