package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// Limits of an evidence bundle.
const (
	MaxEvidence        = 64 << 20 // bytes
	MaxEvidenceEntries = 100_000
	maxSeal            = 4 << 10
)

// Faults of an evidence bundle, beside those of a ledger.
const (
	Missing    Reason = "missing" // a listed entry is not in the bundle
	Added      Reason = "added"   // an entry is not in the list
	Altered    Reason = "altered" // an entry is not the one that is listed
	Disordered Reason = "order"   // entries are not in the order of their numbers
	Unsealed   Reason = "seal"    // the seal is not that of a trusted witness over these bytes
)

const (
	evidenceHead = "bailey.audit/evidence/v1\n"
	sealHead     = "bailey.audit/evidence-seal/v1\n"
)

// Evidence is an evidence bundle: entries of one ledger with their proofs, a signed checkpoint, and a list of the
// entries. The party that made the selection seals it, so that the selection itself cannot be changed later.
type Evidence struct {
	About      []byte // a compact JSON object: the subject of the selection
	Key        Key    // the log's first key, for readers without another source
	Witness    Key    // of the seal, for the same
	Listed     []Listed
	Entries    []Proven
	Checkpoint []byte // the signed note
	Seal       []byte // a note by Witness over the digest of everything before it
}

// Listed is an entry in the list of a bundle.
type Listed struct {
	Seq  uint64
	Leaf Hash
}

// VerifiedEvidence holds the facts that an evidence bundle proves.
type VerifiedEvidence struct {
	Signed
	About   []byte
	Entries []Entry
	Open    int         // intents without an outcome in the bundle
	Sealed  Cosignature // the party that made the selection, and when
}

// sealedText returns everything before the seal.
func (e Evidence) sealedText() []byte {
	b := []byte(evidenceHead)
	b = fmt.Appendf(b, "about %s\nkey %s\nwitness %s\n", e.About, e.Key, e.Witness)
	for _, l := range e.Listed {
		b = fmt.Appendf(b, "listed %d %s\n", l.Seq, l.Leaf)
	}
	b = append(b, '\n')
	for _, p := range e.Entries {
		b = appendProven(b, p)
	}
	b = fmt.Appendf(b, "\ncheckpoint %d\n", len(e.Checkpoint))
	return append(b, e.Checkpoint...)
}

// Text returns the bundle's one encoding.
func (e Evidence) Text() []byte {
	return append(fmt.Appendf(e.sealedText(), "seal %d\n", len(e.Seal)), e.Seal...)
}

// sealText is the text of the seal's note. Its second line is no number, so it cannot be taken for a checkpoint.
func sealText(sealed []byte) string {
	sum := sha256.Sum256(sealed)
	return sealHead + hex.EncodeToString(sum[:]) + "\n"
}

// SealEvidence lists the entries, seals the bundle, and returns its text. The signer must be that of e.Witness. It
// verifies nothing.
func SealEvidence(e Evidence, by note.Signer) ([]byte, error) {
	e.Listed = nil
	for _, p := range e.Entries {
		e.Listed = append(e.Listed, Listed{p.Seq, Leaf(p.Line)})
	}
	var err error
	if e.Seal, err = note.Sign(&note.Note{Text: sealText(e.sealedText())}, by); err != nil {
		return nil, err
	}
	text := e.Text()
	if len(text) > MaxEvidence || len(e.Entries) > MaxEvidenceEntries {
		return nil, fmt.Errorf("a bundle has at most %d entries and %d MiB", MaxEvidenceEntries, MaxEvidence>>20)
	}
	return text, nil
}

// IsEvidence reports whether a file begins like an evidence bundle.
func IsEvidence(text []byte) bool { return bytes.HasPrefix(text, []byte(evidenceHead)) }

// ParseEvidence accepts only the output of Text. It verifies nothing.
func ParseEvidence(text []byte) (e Evidence, err error) {
	if len(text) > MaxEvidence {
		return e, fmt.Errorf("an evidence bundle must have at most %d MiB", MaxEvidence>>20)
	}
	rest, ok := bytes.CutPrefix(text, []byte(evidenceHead))
	if !ok {
		return e, fmt.Errorf("an evidence bundle must begin with the line %q", strings.TrimSpace(evidenceHead))
	}
	if rest, err = e.parseHead(rest); err != nil {
		return Evidence{}, err
	}
	for !bytes.HasPrefix(rest, []byte("\n")) {
		p, left, err := parseProven(rest)
		if err == nil && len(e.Entries) == MaxEvidenceEntries {
			err = errors.New("there are too many")
		}
		if err != nil {
			return Evidence{}, fmt.Errorf("entry %d of the bundle: %w", len(e.Entries)+1, err)
		}
		e.Entries, rest = append(e.Entries, p), left
	}
	if e.Checkpoint, rest, err = cutSized(rest[1:], "checkpoint ", MaxNote); err == nil {
		e.Seal, rest, err = cutSized(rest, "seal ", maxSeal)
	}
	switch {
	case err != nil:
		return Evidence{}, err
	case len(rest) > 0:
		return Evidence{}, errors.New("bytes follow the seal")
	case !bytes.Equal(e.Text(), text):
		return Evidence{}, errors.New("the bundle is not in canonical form")
	}
	return e, nil
}

// parseHead parses the lines before the entries and returns the rest.
func (e *Evidence) parseHead(b []byte) (rest []byte, err error) {
	about, rest, ok := cutBetween(b, "about ", "\n")
	key, rest, ok2 := cutBetween(rest, "key ", "\n")
	witness, rest, ok3 := cutBetween(rest, "witness ", "\n")
	if !ok || !ok2 || !ok3 || len(about) > MaxLine {
		return nil, errors.New("the bundle has no subject, key and witness")
	}
	if _, _, err := checkData("evidence", about); err != nil {
		return nil, fmt.Errorf("the subject of the bundle: %w", err)
	}
	e.About = bytes.Clone(about)
	if e.Key, err = ParseKey(string(key)); err != nil {
		return nil, err
	}
	if e.Witness, err = ParseKey(string(witness)); err != nil {
		return nil, err
	}
	if e.Key.Witness() || !e.Witness.Witness() {
		return nil, errors.New("the bundle must name the key of a log and that of a witness")
	}
	for !bytes.HasPrefix(rest, []byte("\n")) {
		line, left, ok := cutBetween(rest, "listed ", "\n")
		number, leaf, ok2 := bytes.Cut(line, []byte(" "))
		seq, err := strconv.ParseUint(string(number), 10, 64)
		h, ok3 := parseHash(leaf)
		if !ok || !ok2 || !ok3 || err != nil || len(e.Listed) == MaxEvidenceEntries {
			return nil, fmt.Errorf("line %d of the bundle's list is malformed", len(e.Listed)+1)
		}
		e.Listed, rest = append(e.Listed, Listed{seq, h}), left
	}
	return rest[1:], nil
}

// cutSized returns the bytes after a line with their number.
func cutSized(b []byte, prefix string, most int) (text, rest []byte, err error) {
	digits, rest, ok := cutBetween(b, prefix, "\n")
	n, bad := strconv.ParseUint(string(digits), 10, 31)
	if !ok || bad != nil || n > uint64(most) || n > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("the bundle is cut off, or its %sis malformed", prefix)
	}
	return bytes.Clone(rest[:n]), rest[n:], nil
}

// OwnTrust returns the keys that the bundle itself names. They prove nothing about whose keys they are.
func (e Evidence) OwnTrust() Trust { return Trust{Keys: []Key{e.Key}, Witnesses: []Key{e.Witness}} }

// VerifyEvidence verifies an evidence bundle: the list against the entries, the seal by a witness of t over everything,
// the proof of each entry, and the signature of the checkpoint by the log, with t's quorum. An error of the content is
// a *[Bad] with the reason.
func VerifyEvidence(text []byte, t Trust) (v VerifiedEvidence, err error) {
	e, err := ParseEvidence(text)
	if err != nil {
		return v, err
	}
	if err := e.compareList(); err != nil {
		return v, err
	}
	if v.Sealed, err = e.openSeal(t); err != nil {
		return v, err
	}
	if v.Signed, v.Entries, v.Open, err = e.verifyEntries(t); err != nil {
		return VerifiedEvidence{}, err
	}
	v.About = e.About
	return v, nil
}

// compareList returns a *Bad for the first difference between the list and the entries.
func (e Evidence) compareList() error {
	bad := func(seq uint64, reason Reason, format string, args ...any) error {
		return &Bad{Entry: seq, Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	for i, l := range e.Listed {
		if i > 0 && l.Seq <= e.Listed[i-1].Seq {
			return bad(l.Seq, Disordered, "the list names entry %d after entry %d", l.Seq, e.Listed[i-1].Seq)
		}
	}
	here := map[uint64]bool{}
	for _, p := range e.Entries {
		here[p.Seq] = true
	}
	listed := map[uint64]Hash{}
	for _, l := range e.Listed {
		if listed[l.Seq] = l.Leaf; !here[l.Seq] {
			return bad(l.Seq, Missing, "entry %d is listed and is not in the bundle", l.Seq)
		}
	}
	last := uint64(0)
	for _, p := range e.Entries {
		leaf, ok := listed[p.Seq]
		switch {
		case !ok:
			return bad(p.Seq, Added, "entry %d is in the bundle and is not listed", p.Seq)
		case leaf != Leaf(p.Line):
			return bad(p.Seq, Altered, "entry %d is not the one that is listed: its bytes were changed", p.Seq)
		case p.Seq <= last:
			return bad(p.Seq, Disordered, "entry %d follows entry %d", p.Seq, last)
		}
		last = p.Seq
	}
	return nil
}

// openSeal verifies the seal by a witness of t.
func (e Evidence) openSeal(t Trust) (c Cosignature, err error) {
	bad := func(format string, args ...any) error {
		return &Bad{Reason: Unsealed, Detail: fmt.Sprintf(format, args...)}
	}
	text, _, _ := strings.Cut(string(e.Seal), "\n\n")
	if text+"\n" != sealText(e.sealedText()) {
		return c, bad("the seal is of other bytes: the bundle was changed after it was made")
	}
	n, err := openNote(e.Seal, Trust{Witnesses: t.Witnesses})
	if err != nil {
		var names []string
		for _, k := range t.Witnesses {
			names = append(names, keyID{k.Name(), k.KeyHash()}.String())
		}
		return c, bad("the seal is not signed by %s", strings.Join(names, " or "))
	}
	if len(n.Sigs)+len(n.UnverifiedSigs) != 1 {
		return c, bad("the seal must have one signature")
	}
	k := t.byName()[keyID{n.Sigs[0].Name, n.Sigs[0].Hash}]
	return Cosignature{k.Name(), cosignedAt(n.Sigs[0]), k}, nil
}

// verifyEntries verifies the entries against each other, their proofs, and the checkpoint.
func (e Evidence) verifyEntries(t Trust) (s Signed, entries []Entry, open int, err error) {
	var r receiptVerifier
	for _, p := range e.Entries {
		entry, err := r.checkProven(p)
		if err == nil && !slices.Contains([]string{KindIntent, KindOutcome, KindPlan, KindKey}, entry.Kind) {
			err = fmt.Errorf("an entry of kind %s cannot be part of a bundle", entry.Kind)
		}
		if err != nil {
			return s, nil, 0, &Bad{Entry: p.Seq, Reason: Chain, Detail: fmt.Sprintf("entry %d: %v", p.Seq, err)}
		}
		entries = append(entries, entry)
	}
	s, err = r.keys.extendTrust(t).Open(e.Checkpoint)
	if err != nil {
		var bad *Bad
		if errors.As(err, &bad) {
			bad.Checkpoint = "its checkpoint"
		}
		return s, nil, 0, err
	}
	for _, p := range e.Entries {
		if err := s.Includes(p.Seq, Leaf(p.Line), p.Proof); err != nil {
			return s, nil, 0, &Bad{Entry: p.Seq, Reason: Forked, Detail: err.Error()}
		}
	}
	if last, any := r.keys.Last(); any && !slices.Contains(s.Keys, last) {
		return s, nil, 0, newUnsignedBad("the log's key is %s, but another key signed the checkpoint", last)
	}
	return s, entries, r.pairs.Len(), nil
}

// Proves returns the facts that the bundle proves, as sentences.
func (v VerifiedEvidence) Proves() []string {
	said := []string{
		fmt.Sprintf("its %d entries are in the ledger %s, which had %d entries", len(v.Entries), v.Origin, v.Size),
		fmt.Sprintf("the key %s signed that ledger", v.Keys[0]),
	}
	for _, c := range v.Cosignatures {
		said = append(said, fmt.Sprintf("%s had cosigned no other history of this log, and none longer, by %s", c.Witness,
			c.Time.Format(time.RFC3339)))
	}
	return append(said, fmt.Sprintf("%s made this selection at %s, and nothing was changed, added, removed or moved since",
		v.Sealed.Witness, v.Sealed.Time.Format(time.RFC3339)))
}

// LeavesOpen returns the facts that the bundle does not prove, as sentences.
func (v VerifiedEvidence) LeavesOpen() []string {
	said := []string{fmt.Sprintf("that the selection is complete is the word of %s: the ledger itself shows it",
		v.Sealed.Witness)}
	if len(v.Cosignatures) == 0 {
		said = append(said, "no named witness cosigned the checkpoint: anyone with the log's key can sign other entries")
	}
	if v.Open > 0 {
		said = append(said, fmt.Sprintf("%d calls have no outcome here: they may have ended later", v.Open))
	}
	return append(said, "the times come from the writer's clock; the order comes from the numbers",
		"calls that did not pass the gate are not in the ledger, and its contents are what the gate reported")
}
