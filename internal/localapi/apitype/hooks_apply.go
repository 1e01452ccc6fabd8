package apitype

import (
	"fmt"

	"bailey/hook"
)

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
