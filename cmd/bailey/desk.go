package main

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"bailey"
	"bailey/audit"
	"bailey/internal/gateway"
)

// The ledger's kinds of entry for what init writes into the files of an agent's client.
const (
	configureEvent = "client.configure"
	undoEvent      = "client.undo"
)

// configuration is the data of both events: a file of a client, and what of it is ours. It is recorded
// before the file changes.
type configuration struct {
	Client   string           `json:"client"`
	Scope    string           `json:"scope"`
	File     string           `json:"file"`
	Command  string           `json:"command"`
	Added    added            `json:"added"`
	Operator gateway.Operator `json:"operator,omitempty"`
	Person   string           `json:"person,omitempty"`
}

// desk answers the operator verbs of init, inside the gateway. What it knows comes from the ledger.
type desk struct {
	settings *gateway.Settings
	note     func(ctx context.Context, kind string, data any) error

	mu         sync.Mutex
	configured map[string]configuration // by file; guarded by mu
}

// openDesk reads what operators did from the home's ledger, which nobody writes to yet, and opens the home's
// settings. learn sees every other entry.
func openDesk(home gateway.Home, w *gateway.Workspaces, r *gateway.Redaction, note func(context.Context, string, any) error,
	learn func(kind string, data []byte) error, log *slog.Logger) (*desk, error) {
	d := &desk{note: note, configured: map[string]configuration{}}
	var last gateway.Applied
	err := eachEntry(home.Ledger(), func(e audit.Entry) error {
		switch e.Kind {
		case gateway.ApplyEvent:
			last = gateway.Applied{}
			return json.Unmarshal(e.Data, &last)
		case configureEvent, undoEvent:
			var c configuration
			if err := json.Unmarshal(e.Data, &c); err != nil {
				return err
			}
			d.keep(e.Kind, c)
		default:
			return learn(e.Kind, e.Data)
		}
		return nil
	})
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: "what operators did cannot be read from the ledger", Hint: "bailey audit verify", Err: err}
	}
	d.settings, err = gateway.OpenSettings(home, w, r, last, note, log)
	return d, err
}

// lastApplied reads what operators applied last from the ledger of a home without a gateway.
func lastApplied(home gateway.Home) (last gateway.Applied, err error) {
	err = eachEntry(home.Ledger(), func(e audit.Entry) error {
		if e.Kind != gateway.ApplyEvent {
			return nil
		}
		last = gateway.Applied{}
		return json.Unmarshal(e.Data, &last)
	})
	return last, err
}

func (d *desk) keep(kind string, c configuration) {
	if kind == undoEvent {
		delete(d.configured, c.File)
		return
	}
	d.configured[c.File] = c
}

// eachEntry reads a ledger that nobody writes to, in its order.
func eachEntry(dir string, see func(audit.Entry) error) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	segment := regexp.MustCompile(`^[0-9]{8}\.jsonl$`)
	list = slices.DeleteFunc(list, func(d fs.DirEntry) bool { return !segment.MatchString(d.Name()) })
	var head audit.Head
	for _, entry := range list {
		if head, err = scanSegment(filepath.Join(dir, entry.Name()), head, see); err != nil {
			return err
		}
	}
	return nil
}

func scanSegment(name string, head audit.Head, see func(audit.Entry) error) (audit.Head, error) {
	f, err := os.Open(name)
	if err != nil {
		return head, err
	}
	defer f.Close()
	for e, err := range audit.Scan(f, head) {
		if err == nil {
			err = see(e)
		}
		if err != nil {
			return head, err
		}
		head = audit.Head{Seq: e.Seq, Hash: e.Hash}
	}
	return head, nil
}

// state is a look: the settings file beside what was applied.
func (d *desk) state(_ context.Context, q gateway.Query, _ bailey.Call) (any, error) {
	return d.settings.State(text(q.Args, "dir"))
}

// configuration is a look: what init wrote into a client's file and did not undo.
func (d *desk) configuration(_ context.Context, q gateway.Query, _ bailey.Call) (any, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.configured[text(q.Args, "file")], nil
}

func (d *desk) acts() map[string]gateway.Verb {
	return map[string]gateway.Verb{"apply": d.apply, configureEvent: d.configure, undoEvent: d.configure}
}

func (d *desk) apply(ctx context.Context, q gateway.Query, from bailey.Call) (any, error) {
	var content []byte
	if s, ok := q.Args["text"].(string); ok {
		content = []byte(s)
	}
	by := gateway.Applied{Operator: q.Operator, Person: from.Principal.Person}
	return d.settings.Apply(ctx, text(q.Args, "base"), content, by)
}

func (d *desk) configure(ctx context.Context, q gateway.Query, from bailey.Call) (any, error) {
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
