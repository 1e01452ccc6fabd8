package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
)

// keptLook is the look at what sessions of redact the gateway keeps.
const keptLook = "redactions"

// keptSessions is the answer to keptLook. It holds no text.
type keptSessions struct {
	Sessions []gateway.KeptSession `json:"sessions"`
}

// keptSessions is a look: which sessions there are, or one that is asked for.
func (s *stack) keptSessions(_ context.Context, q gateway.Query, _ bailey.Call) (any, error) {
	id := text(q.Args, "session")
	if id == "" {
		return keptSessions{s.kept.List()}, nil
	}
	one, err := s.kept.Find(bailey.SessionID(id))
	return keptSessions{[]gateway.KeptSession{one}}, err
}

// keptIDs completes --session. It starts no gateway: without one there is no session.
func keptIDs(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	home, err := gateway.FindHome()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var kept keptSessions
	if (&gateway.Client{Home: home}).Look(cmd.Context(), gateway.Query{Verb: keptLook}, &kept) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	for _, s := range kept.Sessions {
		ids = append(ids, fmt.Sprintf("%s\t%s", s.ID, times(s.Texts, "text")))
	}
	return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
