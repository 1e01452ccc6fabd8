package hooks

import (
	"context"

	"bailey"
	"bailey/hook"
)

// Prepare plans a hook as an event would, for whoever looks at it or runs it on streams of their own, and starts nothing.
// Asked says what will hold it. The caller closes the run.
func (d *Dispatcher) Prepare(ctx context.Context, h hook.Hook) (bailey.Run, bailey.Lent, Asked, error) {
	e := named(h.Event)
	a := Asked{Event: h.Event, Program: h.Argv[0]}
	r, lent, err := d.plan(ctx, e, h, &a)
	if err != nil {
		a.Reason, a.Hint = err.Error(), bailey.HintOf(err)
	}
	return r, lent, a, err
}

// named is an event with nothing in it.
func named(n hook.Name) hook.Event {
	for _, e := range []hook.Event{hook.UserPromptSubmit{}, hook.AssistantMessageRender{}, hook.PreToolUse{}, hook.PostToolUse{}, hook.SessionEnd{}} {
		if e.Name() == n {
			return e
		}
	}
	return hook.SessionStart{}
}
