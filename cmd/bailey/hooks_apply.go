package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/safefile"
	"bailey/internal/wire"
)

// hookProposal is a hooks.json that could be applied, compared with the one in use.
type hookProposal struct {
	OK      bool         `json:"ok"`
	Changed bool         `json:"changed"` // it was applied
	File    string       `json:"file"`
	Digest  string       `json:"digest,omitempty"` // "" without a file
	Hooks   int          `json:"hooks"`
	Differs bool         `json:"differs"` // from the hooks in use
	Text    string       `json:"text,omitempty"`
	Loud    []string     `json:"warnings,omitempty"` // points that the operator must not overlook
	Applied appliedHooks `json:"applied"`
}

// propose reads the file and compares it with the hooks in use.
func (b *hookbook) propose() (p hookProposal, e hookEdition, err error) {
	if e.text, e.config, err = b.file(); err != nil {
		return p, e, err
	}
	now := b.now.Load()
	p = hookProposal{OK: true, File: b.path(), Digest: fileDigest(e.text), Hooks: len(e.config.Hooks), Applied: b.applied}
	p.Differs = now.fault != nil || p.Digest != b.applied.Digest || p.Digest != "" && b.userHome != b.applied.UserHome
	p.Text = difference(string(now.text), string(e.text))
	for _, h := range e.config.Hooks {
		p.Loud = append(p.Loud, loud(h)...)
		if !b.asked(h) {
			p.Loud = append(p.Loud, fmt.Sprintf("line %d: %s is asked about no tool there is: bailey capabilities list has their names, and none matches %q", h.Line, h.Argv[0], h.Matcher))
		}
	}
	return p, e, nil
}

// asked reports whether the hook matches at least one existing tool. Other agents have other names for their tools.
func (b *hookbook) asked(h hook.Hook) bool {
	return b.tools == nil || h.Matcher == "" || slices.ContainsFunc(b.tools(), func(name string) bool {
		return h.Matches(hook.PreToolUse{ToolName: name}) || h.Matches(hook.PostToolUse{ToolName: name})
	})
}

// loud returns the points of a hook that the operator must not overlook.
func loud(h hook.Hook) (list []string) {
	say := func(words string, args ...any) {
		list = append(list, fmt.Sprintf("line %d: %s ", h.Line, h.Argv[0])+fmt.Sprintf(words, args...))
	}
	if h.Unsandboxed {
		say("runs without a cage, with all rights of yours")
	}
	for _, path := range h.Write {
		say("may write %s", path)
	}
	for _, to := range h.Network {
		say("may reach %s with what it is asked about", to)
	}
	return list
}

// compare is a query. It returns the effect of a reload.
func (b *hookbook) compare(context.Context, wire.Query, bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, _, err := b.propose()
	return p, err
}

// apply is the command that applies the file. The file must be the one that was shown, and the hooks in use must not
// have changed since.
func (b *hookbook) apply(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, e, err := b.propose()
	if err != nil {
		return nil, err
	}
	if p.Digest != text(q.Args, "digest") || b.applied.Digest != text(q.Args, "base") {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: hooksName + " changed meanwhile", Hint: "bailey hooks reload shows it anew"}
	}
	if !p.Differs {
		return p, nil
	}
	now := appliedHooks{Digest: p.Digest, UserHome: b.userHome, Hooks: p.Hooks, At: time.Now().UTC().Truncate(time.Second), Operator: q.Operator, Person: from.Principal.Person}
	if p.Digest != "" {
		if err := b.keep(now.Digest, e.text); err != nil {
			return nil, err
		}
	}
	if err := b.note(ctx, hooksEvent, now); err != nil {
		return nil, err
	}
	b.applied, e.id = now, now.id()
	b.now.Store(&e)
	p.Changed, p.Applied = true, now
	return p, nil
}

// keep stores the text durably under its digest, which must happen before the ledger names it.
func (b *hookbook) keep(digest string, text []byte) error {
	root, err := safefile.OpenDir(string(b.home), keptHooks)
	if err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the hooks cannot be kept", Err: err, Hint: "look at the home's mode and the disk's space"}
	}
	defer root.Close()
	return safefile.Replace(root, digest+".json", text, 0o600, func() error { return nil })
}
