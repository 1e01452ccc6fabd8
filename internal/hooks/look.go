package hooks

import (
	"context"

	"bailey"
	"bailey/hook"
)

// Prepare plans a hook as for an event, for a caller that shows the plan or runs it with its own streams. It starts
// nothing. The returned Asked says how the hook will be isolated. The caller must close the run.
func (d *Dispatcher) Prepare(ctx context.Context, h hook.Hook) (bailey.Run, bailey.Lent, Asked, error) {
	e := emptyEvent(h.Event)
	a := Asked{Event: h.Event, Program: h.Argv[0]}
	r, lent, err := d.planHook(ctx, e, h, &a)
	if err != nil {
		a.Reason, a.Hint = err.Error(), bailey.HintOf(err)
	}
	return r, lent, a, err
}

// emptyEvent returns an empty event with this name.
func emptyEvent(n hook.Name) hook.Event {
	for _, e := range []hook.Event{hook.UserPromptSubmit{}, hook.AssistantMessageRender{}, hook.PreToolUse{},
		hook.PostToolUse{}, hook.SessionEnd{}} {
		if e.Name() == n {
			return e
		}
	}
	return hook.SessionStart{}
}
