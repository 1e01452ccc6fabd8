package main

import (
	"encoding/json"
	"fmt"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gateway"
)

// lore is the state that a gateway derives from its ledger, other than receipts: the result of folding entries of some
// kinds. It is stored nowhere else, so each change of it is visible in the ledger. The zero lore is that of an empty
// ledger.
//
// It is saved in this format, and read again by a gateway that folds the same kinds ([lore.parts]). If the meaning of a
// kind of entry or of a field changes, [loreFormat] must be raised, so that an older snapshot is not used as complete.
type lore struct {
	Settings gateway.Applied          `json:"settings"`
	Clients  map[string]configuration `json:"clients,omitempty"` // by file: written by init and not undone
	Pins     gateway.Digests          `json:"pins"`
	Policy   appliedPolicy            `json:"policy,omitzero"`
	Killed   gateway.Killed           `json:"killed,omitzero"`
	Sessions gateway.IssuedSessions   `json:"sessions,omitempty"`
	Asked    approve.State            `json:"asked,omitzero"`
	Hooks    appliedHooks             `json:"hooks,omitzero"`
	Wraps    wrapsKnown               `json:"wraps,omitzero"`
	Packs    lorePacks                `json:"packs,omitzero"`
	Profiles gateway.InUse            `json:"profiles,omitzero"`
	Agents   gateway.KnownAgents      `json:"agents,omitzero"`
}

// fold applies the data of one entry. A malformed entry changes nothing.
type fold func(l *lore, data []byte) error

// folds returns a fold for every kind of entry that contributes to the lore. No other entry affects a gateway that
// starts.
func folds() map[string]fold {
	return map[string]fold{
		gateway.ApplyEvent:   foldAs(func(l *lore, a gateway.Applied) { l.Settings = a }),
		gateway.ProfileEvent: foldAs(func(l *lore, u gateway.InUse) { l.Profiles = u }),
		gateway.PinEvent:     foldAs(func(l *lore, p gateway.Pin) { l.Pins.Keep(p) }),
		gateway.RepinEvent:   foldAs(func(l *lore, r gateway.Repin) { l.Pins.Keep(r.Programs...) }),
		configureEvent:       foldAs((*lore).configure),
		undoEvent:            foldAs(func(l *lore, c configuration) { delete(l.Clients, c.File) }),
		policyEvent:          foldAs(func(l *lore, p appliedPolicy) { l.Policy = p }),
		hooksEvent:           foldAs(func(l *lore, a appliedHooks) { l.Hooks = a }),
		gateway.KillEvent: foldAs(func(l *lore, k gateway.Killed) {
			if !l.Killed.On() { // the first reason is kept
				l.Killed = k
			}
			l.Asked.Questions = nil // an entry withdraws each question, but not if the gateway ended before
		}),
		gateway.IssueEvent:       foldAs(func(l *lore, i gateway.Issued) { l.Sessions.Keep(i) }),
		gateway.UseEvent:         foldAs(func(l *lore, i gateway.Issued) { l.Sessions.Keep(i) }),
		gateway.AgentAddEvent:    foldAs(func(l *lore, a gateway.Agent) { l.Agents.Add(a) }),
		gateway.AgentRemoveEvent: foldAs(func(l *lore, a gateway.Agent) { l.Agents.Remove(a) }),
		gateway.TokenAddEvent:    foldAs(func(l *lore, t gateway.Token) { l.Agents.Issue(t) }),
		gateway.TokenRevokeEvent: foldAs(func(l *lore, e gateway.TokenEnd) { l.Agents.End(e) }),
		approve.QuestionEvent:    foldAs(func(l *lore, q bailey.Question) { l.Asked.Asked(q) }),
		approve.AnswerEvent:      foldAs(func(l *lore, e approve.Event) { l.Asked.Answered(e) }),
		approve.UseEvent:         foldAs(func(l *lore, u approve.Use) { l.Asked.Used(u) }),
		approve.GrantEvent:       foldAs(func(l *lore, g approve.Standing) { l.Asked.Given(g) }),
		approve.RevokeEvent:      foldAs(func(l *lore, r approve.Revoked) { l.Asked.Revoked(r) }),
		wrapStart:                foldAs(func(l *lore, w wrapStarting) { l.Wraps.start(w) }),
		wrapRefused:              foldAs(func(l *lore, w wrapRefusals) { l.Wraps.refuse(w) }),
		wrapEnd:                  foldAs(func(l *lore, w wrapEnding) { l.Wraps.end(w) }),
		packTrustEvent:           foldAs(func(l *lore, k trustedKey) { l.Packs.trust(k) }),
		packUntrustEvent:         foldAs(func(l *lore, k trustedKey) { l.Packs.untrust(k) }),
		packInstallEvent:         foldAs(func(l *lore, p installedPack) { l.Packs.install(p) }),
		packUninstallEvent:       foldAs(func(l *lore, p installedPack) { l.Packs.uninstall(p) }),
		gateway.ResumeEvent:      foldAs(func(l *lore, _ gateway.Resumed) { l.Killed = gateway.Killed{} }),
	}
}

func foldAs[T any](take func(*lore, T)) fold {
	return func(l *lore, data []byte) error {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		take(l, v)
		return nil
	}
}

func (l *lore) configure(c configuration) {
	if l.Clients == nil {
		l.Clients = map[string]configuration{}
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
func (l *lore) take(folds map[string]fold, events []event) error {
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
