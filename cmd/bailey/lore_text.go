package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
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

// written is the text of a snapshot, as JSON. The entries contain it as a string, because file names may differ only in
// case, and keys in the ledger must not.
type written struct {
	Kinds []string `json:"kinds"` // of the entries that were folded
	lore
}

func kindsOf(folds map[string]fold) []string { return slices.Sorted(maps.Keys(folds)) }

// parts encodes the lore as a snapshot. It fails if that needs more than maxParts.
func (l *lore) parts(folds map[string]fold) ([]part, error) {
	b, err := json.Marshal(written{kindsOf(folds), *l})
	if err != nil {
		return nil, err
	}
	digest, list := digestOf(string(b)), []part(nil)
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

// readBack returns the lore if the last of events completes a snapshot that was folded from the same kinds.
func readBack(folds map[string]fold, events []event) (l lore, ok bool) {
	last, ok := readPart(events, len(events)-1)
	if !ok || last.Part != last.Of {
		return lore{}, false
	}
	var text strings.Builder
	for i := range last.Of {
		p, ok := readPart(events, len(events)-last.Of+i)
		if !ok || p.Digest != last.Digest || p.Of != last.Of || p.Part != i+1 {
			return lore{}, false
		}
		text.WriteString(p.Text)
	}
	if digestOf(text.String()) != last.Digest {
		return lore{}, false
	}
	var w written
	if strictly([]byte(text.String()), &w) != nil || !slices.Equal(w.Kinds, kindsOf(folds)) {
		return lore{}, false
	}
	return w.lore, true
}

// readPart decodes the event at i, if it exists and is a part of this format.
func readPart(events []event, i int) (p part, ok bool) {
	if i < 0 || events[i].kind != memoryEvent {
		return p, false
	}
	return p, strictly(events[i].data, &p) == nil && p.Format == loreFormat && p.Part > 0
}

// strictly decodes one JSON value. It rejects unknown fields and trailing data.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("something follows: %v", err)
	}
	return nil
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
