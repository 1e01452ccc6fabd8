package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"bailey/internal/localapi/apitype"
)

// memoryEvent is the kind of ledger entry for snapshots of the lore, so that the next gateway need not read everything.
// Its data is a [part].
const memoryEvent = "memory"

// loreFormat is the format of snapshots. Other formats are not read.
const loreFormat = 3

const (
	partBytes = 28 << 10 // of text in an entry of 64 KiB: encoding as a JSON string may double it
	maxParts  = 1 << 10  // 28 MiB of text, well below a segment
)

// part is one piece of a snapshot, in one entry. The snapshot is valid only if all parts are present, in order, without
// an entry of a folded kind between them.
type part struct {
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

// parts encodes the lore as a snapshot. It fails if that needs more than maxParts.
func (l *State) parts(folds map[string]applyEntry) ([]part, error) {
	b, err := json.Marshal(encodeState{kindsOf(folds), *l})
	if err != nil {
		return nil, err
	}
	digest, list := apitype.DigestOf(string(b)), []part(nil)
	for len(b) > 0 {
		n := min(len(b), partBytes)
		for n < len(b) && !utf8.RuneStart(b[n]) {
			n--
		}
		list = append(list, part{Format: loreFormat, Digest: digest, Part: len(list) + 1, Text: string(b[:n])})
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
func decodeState(folds map[string]applyEntry, events []event) (l State, ok bool) {
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
	if apitype.Strictly([]byte(text.String()), &w) != nil || !slices.Equal(w.Kinds, kindsOf(folds)) {
		return State{}, false
	}
	return w.State, true
}

// readPart decodes the event at i, if it exists and is a part of this format.
func readPart(events []event, i int) (p part, ok bool) {
	if i < 0 || events[i].kind != memoryEvent {
		return p, false
	}
	return p, apitype.Strictly(events[i].data, &p) == nil && p.Format == loreFormat && p.Part > 0
}
