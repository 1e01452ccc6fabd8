package apitype

import (
	"fmt"

	"bailey"
	"bailey/hook"
	"bailey/internal/hooks"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

// HooksQuery is the query that lists the hooks. hooksNoteVerb is the command that records a run of hooks by the command
// line.
const HooksQuery, HooksNoteVerb = "hooks", "hooks.note"

// HookRow is a hook in the output of `hooks list`.
type HookRow struct {
	Hook    int       `json:"hook"` // position in the file that names it, from 1
	Line    int       `json:"line"`
	Event   hook.Name `json:"event"`
	Argv    []string  `json:"argv"`
	Matcher string    `json:"matcher,omitempty"`
	Applied bool      `json:"applied"`           // it is in use
	Gone    bool      `json:"gone,omitempty"`    // applied, but no longer in the file
	Status  string    `json:"status,omitempty"`  // expected status of a run
	Problem string    `json:"problem,omitempty"` // why it would not start

	// The latest warning in the gateway's log since the hooks were applied.
	Warned *hooks.Warning `json:"warned,omitempty"`
}

type HookList struct {
	File    string       `json:"file"`
	Applied AppliedHooks `json:"applied"`
	Drift   string       `json:"drift,omitempty"`
	Fault   string       `json:"fault,omitempty"` // why every call is denied
	Hooks   []HookRow    `json:"hooks"`
}

// HooksRan is the data of the events hooks.test and hooks.exec, which record a run of hooks by a user before it starts.
type HooksRan struct {
	Kind     string            `json:"-"`
	Argv     []string          `json:"argv,omitempty"` // redacted; omitted if over [bailey.InlineCap]
	Digest   string            `json:"digest,omitempty"`
	Hooks    int               `json:"hooks,omitempty"`
	Status   string            `json:"status,omitempty"`
	EnvNames []string          `json:"envNames,omitempty"`
	Cage     *bailey.Cage      `json:"cage,omitempty"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

const HooksTestEvent, HooksExecEvent = "hooks.test", "hooks.exec"

// HooksStatus is the state of the hooks in `bailey status`.
type HooksStatus struct {
	Applied AppliedHooks `json:"applied"`
	Drift   string       `json:"drift,omitempty"`
	Fault   string       `json:"fault,omitempty"` // why every call is denied
}

func (h *HooksStatus) summary() string {
	return fmt.Sprintf("%s, applied %s by %s", Counts(h.Applied.Hooks, "hook"), h.Applied.At.Format("2006-01-02T15:04:05Z07:00"), terminal.TableCell(h.Applied.Person))
}
