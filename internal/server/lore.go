package server

import (
	"encoding/json"
	"fmt"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gateway"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/settings"
)

// State is the state that a gateway derives from its ledger, other than receipts: the result of folding entries of some
// kinds. It is stored nowhere else, so each change of it is visible in the ledger. The zero lore is that of an empty
// ledger.
//
// It is saved in this format, and read again by a gateway that folds the same kinds ([lore.parts]). If the meaning of a
// kind of entry or of a field changes, [loreFormat] must be raised, so that an older snapshot is not used as complete.
type State struct {
	Settings settings.Applied                 `json:"settings"`
	Clients  map[string]apitype.Configuration `json:"clients,omitempty"` // by file: written by init and not undone
	Pins     gateway.Digests                  `json:"pins"`
	Policy   apitype.AppliedPolicy            `json:"policy,omitzero"`
	Killed   apitype.Killed                   `json:"killed,omitzero"`
	Sessions gateway.IssuedSessions           `json:"sessions,omitempty"`
	Asked    approve.State                    `json:"asked,omitzero"`
	Hooks    apitype.AppliedHooks             `json:"hooks,omitzero"`
	Wraps    apitype.WrapsKnown               `json:"wraps,omitzero"`
	Packs    packstore.State                  `json:"packs,omitzero"`
	Profiles settings.InUse                   `json:"profiles,omitzero"`
	Agents   gateway.KnownAgents              `json:"agents,omitzero"`
}

// applyEntry applies the data of one entry. A malformed entry changes nothing.
type applyEntry func(l *State, data []byte) error

// folds returns a fold for every kind of entry that contributes to the lore. No other entry affects a gateway that
// starts.
func folds() map[string]applyEntry {
	return map[string]applyEntry{
		gateway.ApplyEvent:     foldAs(func(l *State, a settings.Applied) { l.Settings = a }),
		apitype.ProfileEvent:   foldAs(func(l *State, u settings.InUse) { l.Profiles = u }),
		gateway.PinEvent:       foldAs(func(l *State, p apitype.Pin) { l.Pins.Keep(p) }),
		gateway.RepinEvent:     foldAs(func(l *State, r gateway.Repin) { l.Pins.Keep(r.Programs...) }),
		apitype.ConfigureEvent: foldAs((*State).configure),
		apitype.UndoEvent:      foldAs(func(l *State, c apitype.Configuration) { delete(l.Clients, c.File) }),
		apitype.PolicyEvent:    foldAs(func(l *State, p apitype.AppliedPolicy) { l.Policy = p }),
		apitype.HooksEvent:     foldAs(func(l *State, a apitype.AppliedHooks) { l.Hooks = a }),
		gateway.KillEvent: foldAs(func(l *State, k apitype.Killed) {
			if !l.Killed.On() { // the first reason is kept
				l.Killed = k
			}
			l.Asked.Questions = nil // an entry withdraws each question, but not if the gateway ended before
		}),
		gateway.IssueEvent:           foldAs(func(l *State, i gateway.Issued) { l.Sessions.Keep(i) }),
		gateway.UseEvent:             foldAs(func(l *State, i gateway.Issued) { l.Sessions.Keep(i) }),
		apitype.AgentAddEvent:        foldAs(func(l *State, a apitype.Agent) { l.Agents.Add(a) }),
		apitype.AgentRemoveEvent:     foldAs(func(l *State, a apitype.Agent) { l.Agents.Remove(a) }),
		apitype.TokenAddEvent:        foldAs(func(l *State, t apitype.Token) { l.Agents.Issue(t) }),
		apitype.TokenRevokeEvent:     foldAs(func(l *State, e gateway.TokenEnd) { l.Agents.End(e) }),
		approve.QuestionEvent:        foldAs(func(l *State, q bailey.Question) { l.Asked.Asked(q) }),
		approve.AnswerEvent:          foldAs(func(l *State, e approve.Event) { l.Asked.Answered(e) }),
		approve.UseEvent:             foldAs(func(l *State, u approve.Use) { l.Asked.Used(u) }),
		approve.GrantEvent:           foldAs(func(l *State, g approve.Standing) { l.Asked.Given(g) }),
		approve.RevokeEvent:          foldAs(func(l *State, r approve.Revoked) { l.Asked.Revoked(r) }),
		apitype.WrapStart:            foldAs(func(l *State, w apitype.WrapStarting) { l.Wraps.Start(w) }),
		apitype.WrapRefused:          foldAs(func(l *State, w apitype.WrapRefusals) { l.Wraps.Refuse(w) }),
		apitype.WrapEnd:              foldAs(func(l *State, w apitype.WrapEnding) { l.Wraps.End(w) }),
		packstore.PackTrustEvent:     foldAs(func(l *State, k packstore.TrustedKey) { l.Packs.Trust(k) }),
		packstore.PackUntrustEvent:   foldAs(func(l *State, k packstore.TrustedKey) { l.Packs.Untrust(k) }),
		packstore.PackInstallEvent:   foldAs(func(l *State, p packstore.Installed) { l.Packs.Install(p) }),
		packstore.PackUninstallEvent: foldAs(func(l *State, p packstore.Installed) { l.Packs.Uninstall(p) }),
		gateway.ResumeEvent:          foldAs(func(l *State, _ gateway.Resumed) { l.Killed = apitype.Killed{} }),
	}
}

func foldAs[T any](take func(*State, T)) applyEntry {
	return func(l *State, data []byte) error {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		take(l, v)
		return nil
	}
}

func (l *State) configure(c apitype.Configuration) {
	if l.Clients == nil {
		l.Clients = map[string]apitype.Configuration{}
	}
	l.Clients[c.File] = c
}

// event is an entry that contributes to the lore, or a part of a snapshot.
type event struct {
	seq  uint64
	kind string
	data []byte
}

// take folds events in their order. It skips the parts of snapshots, which add nothing new.
func (l *State) take(folds map[string]applyEntry, events []event) error {
	for _, e := range events {
		if e.kind == memoryEvent {
			continue
		}
		if err := folds[e.kind](l, e.data); err != nil {
			return fmt.Errorf("entry %d of kind %s: %w", e.seq, e.kind, err)
		}
	}
	return nil
}
