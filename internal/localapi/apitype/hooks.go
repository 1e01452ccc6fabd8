package apitype

import (
	"fmt"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/hooks"
	"bailey/internal/localapi"
	"bailey/internal/terminal"
)

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

// HookList is the answer with the hooks in the file and those in use. Drift is empty if the file is the applied one.
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

// HooksNote asks to record a run of hooks by the command line.
type HooksNote struct {
	Kind string   `json:"kind"` // [HooksTestEvent] or [HooksExecEvent]
	Ran  HooksRan `json:"ran"`
}

// HooksStatus is the state of the hooks in `bailey status`.
type HooksStatus struct {
	Applied AppliedHooks `json:"applied"`
	Drift   string       `json:"drift,omitempty"`
	Fault   string       `json:"fault,omitempty"` // why every call is denied
}

func (h *HooksStatus) summaryText() string {
	return fmt.Sprintf("%s, applied %s by %s", Counts(h.Applied.Hooks, "hook"),
		h.Applied.At.Format("2006-01-02T15:04:05Z07:00"), terminal.TableCell(h.Applied.Person))
}

// HooksRequest asks to apply hooks.json.
type HooksRequest struct {
	Digest string `json:"digest"` // of the file that was shown; "" without a file
	Base   string `json:"base"`   // digest of the applied file with which it was compared; "" if none was applied
}

// HookProposal is a hooks.json that could be applied, compared with the one in use.
type HookProposal struct {
	OK      bool         `json:"ok"`
	Changed bool         `json:"changed"` // it was applied
	File    string       `json:"file"`
	Digest  string       `json:"digest,omitempty"` // "" without a file
	Hooks   int          `json:"hooks"`
	Differs bool         `json:"differs"` // from the hooks in use
	Text    string       `json:"text,omitempty"`
	Loud    []string     `json:"warnings,omitempty"` // points that the operator must not overlook
	Applied AppliedHooks `json:"applied"`
}

// Loud returns the points of a hook that the operator must not overlook.
func Loud(h hook.Hook) (list []string) {
	say := func(words string, args ...any) {
		list = append(list, fmt.Sprintf("line %d: %s ", h.Line, h.Argv[0])+fmt.Sprintf(words, args...))
	}
	if h.Unsandboxed {
		say("runs without a jail, with all your rights")
	}
	for _, path := range h.Write {
		say("may write %s", path)
	}
	for _, to := range h.Network {
		say("may send its input to %s", to)
	}
	return list
}

// HooksEvent is the ledger event for a hooks.json that was applied. Its data is an [appliedHooks].
const HooksEvent = "hooks.apply"

// HooksName is the file in the home that operators edit. keptHooks is the directory in which each applied file is
// stored by its digest.
const HooksName, KeptHooks = "hooks.json", "applied-hooks"

// AppliedHooks is the hooks.json that an operator applied last. The zero value has no hooks.
type AppliedHooks struct {
	Digest   string            `json:"digest,omitempty"`   // SHA-256 of the file, hex
	UserHome string            `json:"userHome,omitempty"` // the value of ~/, for every user who starts the gateway
	Hooks    int               `json:"hooks"`              // number of hooks
	At       time.Time         `json:"at,omitzero"`
	Operator localapi.Operator `json:"operator,omitempty"`
	Person   string            `json:"person,omitempty"`
}

// ID returns the digest and the user home, which together identify the applied hooks.
func (a AppliedHooks) ID() string { return a.Digest + " " + a.UserHome }

// FileDigest returns the SHA-256 of a file, in hex, or "" if text is nil because there is no file.
func FileDigest(text []byte) string {
	if text == nil {
		return ""
	}
	return DigestOf(string(text))
}

// HooksRunVerb is the command that runs the chain of an event, and its ledger event.
const HooksRunVerb = "hooks.run"

// HooksFrame asks to run the chain of an event.
type HooksFrame struct {
	Frame []byte `json:"frame"` // the event, as hooks receive it
}

// ChainRun is the result of a chain.
type ChainRun struct {
	OK     bool          `json:"ok"` // not blocked
	Effect string        `json:"effect"`
	Frame  string        `json:"frame,omitempty"` // the resulting frame
	Reason string        `json:"reason,omitempty"`
	Hint   string        `json:"hint,omitempty"`
	Said   string        `json:"message,omitempty"` // message of the hooks to the user
	Hooks  []hooks.Asked `json:"hooks"`
}
