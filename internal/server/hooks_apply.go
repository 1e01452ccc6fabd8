package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// propose reads the file and compares it with the hooks in use.
func (b *hookStore) propose() (p apitype.HookProposal, e hookEdition, err error) {
	if e.text, e.config, err = b.file(); err != nil {
		return p, e, err
	}
	now := b.now.Load()
	p = apitype.HookProposal{OK: true, File: b.path(), Digest: apitype.FileDigest(e.text), Hooks: len(e.config.Hooks), Applied: b.applied}
	p.Differs = now.fault != nil || p.Digest != b.applied.Digest || p.Digest != "" && b.userHome != b.applied.UserHome
	p.Text = terminal.Diff(string(now.text), string(e.text))
	for _, h := range e.config.Hooks {
		p.Loud = append(p.Loud, apitype.Loud(h)...)
		if !b.asked(h) {
			p.Loud = append(p.Loud, fmt.Sprintf("line %d: %s is asked about no tool there is: bailey capabilities list has their names, and none matches %q", h.Line, h.Argv[0], h.Matcher))
		}
	}
	return p, e, nil
}

// asked reports whether the hook matches at least one existing tool. Other agents have other names for their tools.
func (b *hookStore) asked(h hook.Hook) bool {
	return b.tools == nil || h.Matcher == "" || slices.ContainsFunc(b.tools(), func(name string) bool {
		return h.Matches(hook.PreToolUse{ToolName: name}) || h.Matches(hook.PostToolUse{ToolName: name})
	})
}

// compare is a query. It returns the effect of a reload.
func (b *hookStore) compare(context.Context, localapi.Query, bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, _, err := b.propose()
	return p, err
}

// apply is the command that applies the file. The file must be the one that was shown, and the hooks in use must not
// have changed since.
func (b *hookStore) apply(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, e, err := b.propose()
	if err != nil {
		return nil, err
	}
	if p.Digest != text(q.Args, "digest") || b.applied.Digest != text(q.Args, "base") {
		return nil, &bailey.Error{Kind: bailey.Conflict, Message: apitype.HooksName + " changed meanwhile", Hint: "bailey hooks reload shows it anew"}
	}
	if !p.Differs {
		return p, nil
	}
	now := apitype.AppliedHooks{Digest: p.Digest, UserHome: b.userHome, Hooks: p.Hooks, At: time.Now().UTC().Truncate(time.Second), Operator: q.Operator, Person: from.Principal.Person}
	if p.Digest != "" {
		if err := b.keep(now.Digest, e.text); err != nil {
			return nil, err
		}
	}
	if err := b.note(ctx, apitype.HooksEvent, now); err != nil {
		return nil, err
	}
	b.applied, e.id = now, now.ID()
	b.now.Store(&e)
	p.Changed, p.Applied = true, now
	return p, nil
}

// keep stores the text durably under its digest, which must happen before the ledger names it.
func (b *hookStore) keep(digest string, text []byte) error {
	root, err := safefile.OpenDir(string(b.home), apitype.KeptHooks)
	if err != nil {
		return &bailey.Error{Kind: bailey.Unavailable, Message: "the hooks cannot be kept", Err: err, Hint: "look at the home's mode and the disk's space"}
	}
	defer root.Close()
	return safefile.Replace(root, digest+".json", text, 0o600, func() error { return nil })
}
