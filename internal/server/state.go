package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gateway"
	"bailey/internal/localapi/apitype"
	"bailey/internal/packstore"
	"bailey/internal/settings"
	"bailey/internal/strictjson"
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
	Orders   apitype.Orders                   `json:"orders,omitzero"` // of the control plane
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

// entryHandlers returns a fold for every kind of entry that contributes to the lore. No other entry affects a gateway that
// starts.
func entryHandlers() map[string]applyEntry {
	return map[string]applyEntry{
		gateway.ApplyEvent:     foldAs(func(l *State, a settings.Applied) { l.Settings = a }),
		apitype.ProfileEvent:   foldAs(func(l *State, u settings.InUse) { l.Profiles = u }),
		gateway.PinEvent:       foldAs(func(l *State, p apitype.Pin) { l.Pins.Keep(p) }),
		gateway.RepinEvent:     foldAs(func(l *State, r gateway.Repin) { l.Pins.Keep(r.Programs...) }),
		apitype.ConfigureEvent: foldAs((*State).setConfiguration),
		apitype.UndoEvent:      foldAs(func(l *State, c apitype.Configuration) { delete(l.Clients, c.File) }),
		apitype.PolicyEvent:    foldAs(func(l *State, p apitype.AppliedPolicy) { l.Policy = p }),
		apitype.HooksEvent:     foldAs(func(l *State, a apitype.AppliedHooks) { l.Hooks = a }),
		gateway.KillEvent: foldAs(func(l *State, k apitype.Killed) {
			if !l.Killed.On() { // the first reason is kept
				l.Killed = k
			}
			l.Asked.Questions = nil // an entry withdraws each question, but not if the gateway ended before
		}),
		gateway.OrdersEvent:          foldAs((*State).setOrders),
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
		gateway.ResumeEvent:          foldAs(func(l *State, _ gateway.Resumed) { l.Killed, l.Orders.Kills = apitype.Killed{}, nil }),
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

// setOrders keeps orders of the control plane. Those that stop everything end the questions, as the kill switch does.
func (l *State) setOrders(o apitype.Orders) {
	if l.Orders = o; o.All() != nil {
		l.Asked.Questions = nil
	}
}

func (l *State) setConfiguration(c apitype.Configuration) {
	if l.Clients == nil {
		l.Clients = map[string]apitype.Configuration{}
	}
	l.Clients[c.File] = c
}

// stateEvent is an entry that contributes to the lore, or a part of a snapshot.
type stateEvent struct {
	seq  uint64
	kind string
	data []byte
}

// applyEvents folds events in their order. It skips the parts of snapshots, which add nothing new.
func (l *State) applyEvents(folds map[string]applyEntry, events []stateEvent) error {
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

// memoryEvent is the kind of ledger entry for snapshots of the lore, so that the next gateway need not read everything.
// Its data is a [snapshotPart].
const memoryEvent = "memory"

// loreFormat is the format of snapshots. Other formats are not read.
const loreFormat = 3

const (
	partBytes = 28 << 10 // of text in an entry of 64 KiB: encoding as a JSON string may double it
	maxParts  = 1 << 10  // 28 MiB of text, well below a segment
)

// snapshotPart is one piece of a snapshot, in one entry. The snapshot is valid only if all parts are present, in order, without
// an entry of a folded kind between them.
type snapshotPart struct {
	Format int    `json:"format"`
	Digest string `json:"digest"` // SHA-256 of the whole text, hex; the same in all parts
	Part   int    `json:"part"`   // counted from 1
	Of     int    `json:"of"`
	Text   string `json:"text"`
}

// encodeState is the text of a snapshot, as JSON. The entries contain it as a string, because file names may differ only in
// case, and keys in the ledger must not.
type encodeState struct {
	Kinds []string `json:"kinds"` // of the entries that were folded
	State
}

func kindsOf(folds map[string]applyEntry) []string { return slices.Sorted(maps.Keys(folds)) }

// snapshotParts encodes the lore as a snapshot. It fails if that needs more than maxParts.
func (l *State) snapshotParts(folds map[string]applyEntry) ([]snapshotPart, error) {
	b, err := json.Marshal(encodeState{kindsOf(folds), *l})
	if err != nil {
		return nil, err
	}
	digest, list := apitype.DigestOf(string(b)), []snapshotPart(nil)
	for len(b) > 0 {
		n := min(len(b), partBytes)
		for n < len(b) && !utf8.RuneStart(b[n]) {
			n--
		}
		list = append(list, snapshotPart{Format: loreFormat, Digest: digest, Part: len(list) + 1, Text: string(b[:n])})
		b = b[n:]
	}
	if len(list) > maxParts {
		return nil, fmt.Errorf("it takes %d entries, more than %d", len(list), maxParts)
	}
	for i := range list {
		list[i].Of = len(list)
	}
	return list, nil
}

// decodeState returns the lore if the last of events completes a snapshot that was folded from the same kinds.
func decodeState(folds map[string]applyEntry, events []stateEvent) (l State, ok bool) {
	last, ok := readPart(events, len(events)-1)
	if !ok || last.Part != last.Of {
		return State{}, false
	}
	var text strings.Builder
	for i := range last.Of {
		p, ok := readPart(events, len(events)-last.Of+i)
		if !ok || p.Digest != last.Digest || p.Of != last.Of || p.Part != i+1 {
			return State{}, false
		}
		text.WriteString(p.Text)
	}
	if apitype.DigestOf(text.String()) != last.Digest {
		return State{}, false
	}
	var w encodeState
	if strictjson.Decode([]byte(text.String()), &w) != nil || !slices.Equal(w.Kinds, kindsOf(folds)) {
		return State{}, false
	}
	return w.State, true
}

// readPart decodes the event at i, if it exists and is a part of this format.
func readPart(events []stateEvent, i int) (p snapshotPart, ok bool) {
	if i < 0 || events[i].kind != memoryEvent {
		return p, false
	}
	return p, strictjson.Decode(events[i].data, &p) == nil && p.Format == loreFormat && p.Part > 0
}
