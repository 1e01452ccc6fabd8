package server

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/applied"
	"bailey/internal/gateway"
	"bailey/internal/hooks"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// listHooks returns the hooks of the file and those in use.
func (s *Server) listHooks(ctx context.Context, _ localapi.None, from gateway.Caller) (apitype.HookList, error) {
	b := s.hooks.hookStore
	l := apitype.HookList{File: b.hooksPath(), Applied: b.Applied(), Drift: b.describeDrift(),
		Hooks: []apitype.HookRow{}}
	if fault := b.Fault(); fault != nil {
		l.Fault = apitype.WithHint(fault)
	}
	inUse := b.Config().Hooks
	gone := inUse // those that are not in the file
	_, now, err := b.readHooksFile()
	if err != nil {
		now.Hooks = nil // drift gives the reason
	}
	for i, h := range now.Hooks {
		n := 0
		if at := sameHook(gone, h); at >= 0 {
			n = sameHook(inUse, h) + 1
			gone = append(gone[:at:at], gone[at+1:]...)
		}
		l.Hooks = append(l.Hooks, s.hookRow(ctx, from.Session.ID, i+1, h, n))
	}
	for _, h := range gone {
		n := sameHook(inUse, h) + 1
		r := s.hookRow(ctx, from.Session.ID, n, h, n)
		r.Gone = true
		l.Hooks = append(l.Hooks, r)
	}
	return l, nil
}

// sameHook returns the index of an equal hook in list, apart from its line, or -1.
func sameHook(list []hook.Hook, h hook.Hook) int {
	for i, o := range list {
		if o.Line = h.Line; reflect.DeepEqual(o, h) {
			return i
		}
	}
	return -1
}

// hookRow returns the row of the hook at a place in the file. applied is its place among the hooks in use, or 0.
func (s *Server) hookRow(ctx context.Context, session bailey.SessionID, place int, h hook.Hook,
	applied int) apitype.HookRow {
	r := apitype.HookRow{Hook: place, Line: h.Line, Event: h.Event, Argv: h.Argv, Matcher: h.Matcher,
		Applied: applied > 0}
	if last, ok := s.hooks.warnings.Load(applied); ok {
		w := last.(hooks.Warning)
		w.Text, w.Hint = s.redaction.Text(session, w.Text), s.redaction.Text(session, w.Hint)
		r.Warned = &w
	}
	run, _, asked, err := s.hooks.chain.Prepare(ctx, h)
	r.Status = string(asked.Status)
	if err != nil {
		r.Problem = apitype.WithHint(err)
		return r
	}
	run.Close()
	return r
}

// applyHooks applies the hooks. It resets all warnings.
func (s *Server) applyHooks(ctx context.Context, r apitype.HooksRequest,
	from gateway.Caller) (apitype.HookProposal, error) {
	p, err := s.hooks.applyFile(ctx, r, from)
	if err == nil {
		s.hooks.chain.Forget("")
		s.hooks.warnings.Clear()
	}
	return p, err
}

// noteHooks records a run of hooks by the command line before it starts.
func (s *Server) noteHooks(ctx context.Context, r apitype.HooksNote,
	from gateway.Caller) (none localapi.None, err error) {
	if r.Kind != apitype.HooksTestEvent && r.Kind != apitype.HooksExecEvent {
		return none, bailey.Invalid.New("the record of hooks to run is malformed", "")
	}
	ran := r.Ran
	ran.Operator, ran.Person = from.Operator, from.Principal.Person
	if b, err := json.Marshal(ran.Argv); err != nil || len(b) > bailey.InlineCap {
		ran.Argv = nil
	}
	event, err := s.redactValue(from.Session.ID, ran)
	if err != nil {
		return none, err
	}
	return none, s.scribe.recordEvent(ctx, r.Kind, event)
}

func (b *hookStore) Status() *apitype.HooksStatus {
	st := &apitype.HooksStatus{Applied: b.Applied(), Drift: b.describeDrift()}
	if fault := b.Fault(); fault != nil {
		st.Fault = apitype.WithHint(fault)
	}
	if st.Applied.Hooks == 0 && st.Drift == "" && st.Fault == "" {
		return nil
	}
	return st
}

// hookEdition is a loaded hooks.json.
type hookEdition struct {
	text    []byte
	config  hook.Config
	applied apitype.AppliedHooks // as the ledger records it
	fault   error                // why every call is denied
}

// hookStore is the hooks.json in use. The file is read when an operator applies it, and never because it changed. The
// applied file is stored in the home by its digest, which the ledger records.
type hookStore struct {
	home     localapi.Home
	userHome string
	note     func(ctx context.Context, kind string, data any) error
	tools    func() []string // names that a matcher may use; nil disables the check
	log      *slog.Logger
	now      applied.Store[hookEdition]
}

// openHookStore loads the hooks that were applied last. If they cannot be loaded, the gateway starts but denies every
// call, because only a running gateway can apply others. An unreadable hooks.json is an error here, because later it
// could go unnoticed.
func openHookStore(b *hookStore, last apitype.AppliedHooks) (*hookStore, error) {
	if _, _, err := b.readHooksFile(); err != nil {
		return nil, err
	}
	e, err := b.loadApplied(last)
	if err != nil {
		e.fault = bailey.Unavailable.Wrap(err, noHooks,
			"run bailey hooks reload to see "+apitype.HooksName+" and apply it")
		b.log.Error("the hooks cannot be used", "why", err)
	}
	b.now.Restore(e)
	return b, nil
}

const noHooks = "the applied hooks cannot be used, so no call can run"

// StandInHooks returns the hooks that a gateway of this home would use.
func StandInHooks(home localapi.Home) (*hookStore, error) {
	var known State
	if ledger.Begun(home.Ledger()) {
		var err error
		if known, err = Replayed(home); err != nil {
			return nil, err
		}
	}
	userHome, _ := os.UserHomeDir() // "" if unknown: no path may begin with ~/
	return openHookStore(&hookStore{home: home, userHome: userHome, log: slog.New(slog.DiscardHandler)}, known.Hooks)
}

// loadApplied loads the hooks that were applied last.
func (b *hookStore) loadApplied(last apitype.AppliedHooks) (e hookEdition, err error) {
	if e.applied = last; last.Digest == "" {
		return e, nil
	}
	dir := b.home.Path(apitype.KeptHooks)
	e.text, err = safefile.ReadPlain(filepath.Join(dir, last.Digest+".json"), hook.MaxFrame)
	switch {
	case err != nil:
		return e, err
	case e.text == nil:
		return e, bailey.NotFound.Errorf("", "no hooks %.12s are stored in %s", last.Digest, dir)
	case apitype.DigestOf(string(e.text)) != last.Digest:
		return e, bailey.Denied.Errorf(dir+" was changed",
			"the hooks stored as %.12s do not match that digest", last.Digest)
	}
	e.config, err = hook.ParseConfig(e.text, last.UserHome)
	return e, err
}

// readHooksFile reads the current hooks.json. If it does not exist, there are no hooks.
func (b *hookStore) readHooksFile() (text []byte, c hook.Config, err error) {
	name := b.hooksPath()
	if text, err = safefile.ReadPlain(name, hook.MaxFrame); err != nil || text == nil {
		return text, c, err
	}
	if c, err = hook.ParseConfig(text, b.userHome); err != nil {
		err = bailey.Invalid.Wrap(err, name+" cannot be used",
			"correct or remove it; then run bailey hooks reload to apply it")
	}
	return text, c, err
}

func (b *hookStore) hooksPath() string { return b.home.Path(apitype.HooksName) }

// Config returns the hooks in use.
func (b *hookStore) Config() hook.Config { return b.now.Load().config }

// Edition identifies the hooks in use by the digest of their file, and the value of ~/ in it. It is "" without hooks, or
// if every call is denied.
func (b *hookStore) Edition() string {
	e := b.now.Load()
	if e.fault != nil || len(e.config.Hooks) == 0 {
		return ""
	}
	return e.applied.ID()
}

// Fault returns the reason if every call is denied, otherwise nil.
func (b *hookStore) Fault() error { return b.now.Load().fault }

// Applied returns the hooks.json that an operator applied last.
func (b *hookStore) Applied() apitype.AppliedHooks { return b.now.Load().applied }

// describeDrift describes how the file differs from the applied one, or returns "" if it does not differ.
func (b *hookStore) describeDrift() string {
	text, _, err := b.readHooksFile()
	switch {
	case err != nil:
		return "what was applied stays in use, but " + err.Error()
	case apitype.FileDigest(text) == b.Applied().Digest:
		return ""
	case text == nil:
		return apitype.HooksName + " was removed; what was applied stays in use"
	}
	return apitype.HooksName + " differs from what was applied, and is not used"
}

// proposeReload reads the file and compares it with the hooks in use.
func (b *hookStore) proposeReload(now hookEdition) (p apitype.HookProposal, e hookEdition, err error) {
	if e.text, e.config, err = b.readHooksFile(); err != nil {
		return p, e, err
	}
	last := now.applied
	p = apitype.HookProposal{OK: true, File: b.hooksPath(), Digest: apitype.FileDigest(e.text),
		Hooks: len(e.config.Hooks), Applied: last}
	p.Differs = now.fault != nil || p.Digest != last.Digest || p.Digest != "" && b.userHome != last.UserHome
	p.Text = terminal.Diff(string(now.text), string(e.text))
	for _, h := range e.config.Hooks {
		p.Loud = append(p.Loud, apitype.Loud(h)...)
		if !b.hasMatchingTool(h) {
			p.Loud = append(p.Loud,
				fmt.Sprintf("line %d: %s matches no tool: no name in bailey capabilities list matches %q", h.Line, h.Argv[0], h.Matcher))
		}
	}
	return p, e, nil
}

// hasMatchingTool reports whether the hook matches at least one existing tool. Other agents have other names for their tools.
func (b *hookStore) hasMatchingTool(h hook.Hook) bool {
	return b.tools == nil || h.Matcher == "" || slices.ContainsFunc(b.tools(), func(name string) bool {
		return h.Matches(hook.PreToolUse{ToolName: name}) || h.Matches(hook.PostToolUse{ToolName: name})
	})
}

// previewReload returns the effect of a reload.
func (b *hookStore) previewReload(context.Context, localapi.None, gateway.Caller) (apitype.HookProposal, error) {
	p, _, err := b.proposeReload(b.now.Load())
	return p, err
}

// applyFile applies the file. It must be the one that was shown, and the hooks in use must not
// have changed since.
func (b *hookStore) applyFile(ctx context.Context, r apitype.HooksRequest,
	from gateway.Caller) (p apitype.HookProposal, err error) {
	err = b.now.Apply(func(now hookEdition) (next hookEdition, record func() error, err error) {
		p, next, err = b.proposeReload(now)
		switch {
		case err != nil:
			return next, nil, err
		case p.Digest != r.Digest || now.applied.Digest != r.Base:
			return next, nil, bailey.Conflict.New(apitype.HooksName+" changed meanwhile",
				"run bailey hooks reload to see it again")
		case !p.Differs:
			return next, nil, nil
		}
		next.applied = apitype.AppliedHooks{Digest: p.Digest, UserHome: b.userHome, Hooks: p.Hooks,
			At: time.Now().UTC().Truncate(time.Second), Operator: from.Operator, Person: from.Principal.Person}
		if p.Digest != "" { // the file is durable before the ledger names it
			err = safefile.Put(string(b.home), apitype.KeptHooks+"/"+p.Digest+".json", next.text, 0o600, nil)
		}
		return next, func() error {
			err := b.note(ctx, apitype.HooksEvent, next.applied)
			if err == nil {
				p.Changed, p.Applied = true, next.applied
			}
			return err
		}, err
	})
	return p, err
}
