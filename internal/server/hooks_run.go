package server

import (
	"context"
	"encoding/base64"

	"bailey"
	"bailey/hook"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// runHooks is the command of hooksRunVerb.
func (s *Server) runHooks(ctx context.Context, q localapi.Query, from bailey.Call) (any, error) {
	if fault := s.hooks.book.Fault(); fault != nil {
		return nil, fault
	}
	frame, err := base64.StdEncoding.DecodeString(text(q.Args, "frame"))
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a frame comes in base64", Err: err}
	}
	e, err := hook.Decode(frame)
	if err != nil {
		return nil, err
	}
	o, asked := s.hooks.askAll(ctx, e)
	out := apitype.ChainRun{OK: o.Effect != hook.Blocked, Effect: o.Effect.String(), Reason: o.Reason, Hint: o.Hint, Said: o.Message, Hooks: asked}
	if out.OK {
		goes, err := hook.Encode(o.Event)
		if err != nil {
			return nil, err
		}
		out.Frame = string(goes)
	}
	data, err := s.hidden(from.Session.ID, map[string]any{"event": e.Name(), "session": e.In().ID, "effect": out.Effect, "hooks": len(asked),
		"operator": q.Operator, "person": from.Principal.Person})
	if err == nil {
		err = s.scribe.note(ctx, apitype.HooksRunVerb, data)
	}
	return out, err
}
