package server

import (
	"context"
	"encoding/json"
	"reflect"

	"bailey"
	"bailey/hook"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// listHooks is the query of hooksLook.
func (s *Server) listHooks(ctx context.Context, _ localapi.Query, from bailey.Call) (any, error) {
	b := s.hooks.book
	l := apitype.HookList{File: b.path(), Applied: b.Applied(), Drift: b.drift(), Hooks: []apitype.HookRow{}}
	if fault := b.Fault(); fault != nil {
		l.Fault = apitype.WithHint(fault)
	}
	applied := b.Config().Hooks
	_, now, err := b.file()
	if err != nil {
		now.Hooks = nil // drift gives the reason
	}
	for i, h := range now.Hooks {
		at, n := sameHook(applied, h), 0
		if at >= 0 {
			n = sameHook(b.Config().Hooks, h) + 1
			applied = append(applied[:at:at], applied[at+1:]...)
		}
		l.Hooks = append(l.Hooks, s.hookRow(ctx, from.Session.ID, i+1, h, n))
	}
	for _, h := range applied {
		n := sameHook(b.Config().Hooks, h) + 1
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
func (s *Server) hookRow(ctx context.Context, session bailey.SessionID, place int, h hook.Hook, applied int) apitype.HookRow {
	r := apitype.HookRow{Hook: place, Line: h.Line, Event: h.Event, Argv: h.Argv, Matcher: h.Matcher, Applied: applied > 0}
	if w, ok := s.hooks.of(applied); ok {
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

// applyHooks is the command that applies the hooks. It resets all warnings.
func (s *Server) applyHooks(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	p, err := s.hooks.book.apply(ctx, q, from)
	if err == nil {
		s.hooks.chain.Forget("")
		s.hooks.clear()
	}
	return p, err
}

// noteHooks is the command with which the command line records a run of hooks before it starts.
func (s *Server) noteHooks(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	var ran apitype.HooksRan
	b, err := json.Marshal(q.Args["ran"])
	if err == nil {
		err = apitype.Strictly(b, &ran)
	}
	kind := text(q.Args, "kind")
	if err != nil || kind != apitype.HooksTestEvent && kind != apitype.HooksExecEvent {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "no hooks that are run are recorded so", Err: err}
	}
	ran.Operator, ran.Person = q.Operator, from.Principal.Person
	if b, err := json.Marshal(ran.Argv); err != nil || len(b) > bailey.InlineCap {
		ran.Argv = nil
	}
	event, err := s.hidden(from.Session.ID, ran)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.scribe.note(ctx, kind, event)
}

func (b *hookStore) Status() *apitype.HooksStatus {
	st := &apitype.HooksStatus{Applied: b.Applied(), Drift: b.drift()}
	if fault := b.Fault(); fault != nil {
		st.Fault = apitype.WithHint(fault)
	}
	if st.Applied.Hooks == 0 && st.Drift == "" && st.Fault == "" {
		return nil
	}
	return st
}
