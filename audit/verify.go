package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Report is the result of verification. All fields except FirstBad and Also describe the entries before FirstBad.
type Report struct {
	OK       bool   `json:"ok"`
	Entries  uint64 `json:"entries"`
	Segments int    `json:"segments"`
	Origin   string `json:"origin,omitempty"`
	Host     string `json:"host,omitempty"`
	Head     Hash   `json:"head"` // of the last good entry
	Root     Hash   `json:"root"` // of the tree over the good entries
	Intents  int    `json:"intents"`
	Outcomes int    `json:"outcomes"`
	Open     int    `json:"open"` // intents without an outcome; not an error
	// Plans counts the plans that the entries hold, each digest once.
	Plans PlanCount `json:"plans"`
	// Backward counts the entries whose wall clock is behind that of the previous entry. This is not an error.
	Backward int `json:"backward,omitempty"`
	// Held lists the given checkpoints that the ledger agrees with.
	Held     []Signed `json:"held,omitempty"`
	FirstBad *Bad     `json:"firstBad,omitempty"`
	// Also is the fault in the lines themselves, if FirstBad is a contradiction with a checkpoint or key.
	Also *Bad `json:"also,omitempty"`

	witnesses int // number of witnesses that were named
}

// PlanCount holds the number of plans whose text gave the digest again, and the number of plans that cannot be
// recomputed because their text is withheld.
type PlanCount struct {
	Recomputed int `json:"recomputed"`
	Redacted   int `json:"redacted"`
}

// Verify reads a ledger's segments in order and reports on them. It uses no keys or checkpoints: see [Check].
func Verify(segments ...io.Reader) (Report, error) { return Check{}.Verify(segments...) }

// Verify reads a ledger's segments in order and reports on them. The error is that of reading a segment. If the ledger
// is not in order, the report says so. A ledger without an entry is not in order.
func (c Check) Verify(segments ...io.Reader) (Report, error) {
	v := verifier{report: Report{Segments: len(segments), witnesses: len(c.Trust.Witnesses)},
		roots: c.checkpointSizes()}
	v.recordRoot()
	for i, r := range segments {
		err := v.verifySegment(r, i+1)
		var bad *Bad
		if errors.As(err, &bad) {
			if i+1 < len(segments) {
				bad.Tail = false // the next segment was written after these bytes
			}
			if bad.Reason == Torn && !bad.Tail {
				bad.Reason = Frame
			}
			v.report.FirstBad = bad
			break
		}
		if err != nil {
			return Report{}, fmt.Errorf("segment %d of the ledger: %w", i+1, err)
		}
	}
	if v.report.Entries == 0 && v.report.FirstBad == nil {
		v.report.FirstBad = &Bad{Segment: 1, Entry: 1, Reason: Empty, Detail: "there are no entries"}
	}
	v.checkAgainst(c)
	v.report.Root = v.Tree.Root()
	v.report.Open = v.Pairs.Len()
	v.report.Plans.Recomputed, v.report.Plans.Redacted = v.Plans.countPlans()
	v.report.OK = v.report.FirstBad == nil
	return v.report, nil
}

type verifier struct {
	State
	report Report
	last   time.Time
	roots  map[uint64]Hash // at the sizes that checkpoints name, as far as the ledger reaches
}

func (v *verifier) verifySegment(r io.Reader, number int) error {
	s := newScanner(r, number, v.Head)
	for {
		at := s.off
		e, err := s.nextEntry()
		if err == io.EOF && at == 0 && number > 1 {
			return &Bad{Segment: number, Entry: v.Head.Seq + 1, Reason: Started, Detail: "the segment has no entry"}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if bad := v.Add(e, number > 1 && at == 0); bad != nil {
			bad.Segment, bad.Offset = number, at
			return bad
		}
		v.countEntry(e)
		v.recordRoot()
	}
}

// recordRoot records the root if a checkpoint names the current size.
func (v *verifier) recordRoot() {
	if _, ok := v.roots[v.Tree.Size()]; ok {
		v.roots[v.Tree.Size()] = v.Tree.Root()
	}
}

func (v *verifier) countEntry(e Entry) {
	r := &v.report
	r.Entries, r.Head = r.Entries+1, e.Hash
	switch e.Kind {
	case KindGenesis:
		var g Genesis
		if json.Unmarshal(e.Data, &g) == nil { // already checked by the scanner
			r.Origin, r.Host = g.Origin, g.Host
		}
	case KindIntent:
		r.Intents++
	case KindOutcome:
		r.Outcomes++
	}
	if e.Time.Before(v.last) {
		r.Backward++
	}
	v.last = e.Time
}

// Check holds the keys and checkpoints with which a ledger is compared. With the zero Check, it is compared with
// nothing.
type Check struct {
	Trust  Trust    // its quorum applies to Seen, or to Newest if Seen is empty
	Newest []byte   // the signed checkpoint that the ledger shows as its newest
	Seen   [][]byte // signed checkpoints of the ledger that were kept elsewhere
	Called []string // names (files) for messages: that of Newest, then those of Seen
	Own    bool     // also trust Shown and the keys that the ledger announces; it cannot vouch for them
	// Shown are keys of the party that shows Newest. They make a checkpoint valid only if Own is set; they help to
	// explain why one is invalid.
	Shown []Key
}

// checkpointName returns the name of checkpoint i. Checkpoint 0 is Newest.
func (c Check) checkpointName(i int) string {
	if i < len(c.Called) {
		return c.Called[i]
	}
	return ""
}

// checkpointSizes returns the sizes that the notes name, verified or not. The roots at these sizes must be kept.
func (c Check) checkpointSizes() map[uint64]Hash {
	roots := make(map[uint64]Hash)
	for _, signed := range append([][]byte{c.Newest}, c.Seen...) {
		if c, err := ReadCheckpoint(signed); err == nil {
			roots[c.Size] = Hash{}
		}
	}
	return roots
}

// checkAgainst compares the ledger with the keys and checkpoints of c. A contradiction with them takes precedence over a torn
// tail or an empty ledger. If the ledger is another one or a fork, that takes precedence over everything.
func (v *verifier) checkAgainst(c Check) {
	given := c.Trust.Keys
	if c.Own {
		c.Trust.Keys = slices.Concat(v.Keys.All(), given, c.Shown)
		given = nil
	}
	first := v.report.FirstBad
	bad := v.checkKeyOrigins(given)
	if bad == nil {
		bad = v.firstContradiction(c)
	}
	if bad == nil && first == nil {
		bad = v.checkKeysAnnounced(given, c.Newest != nil || len(c.Seen) > 0)
	}
	if bad == nil {
		return
	}
	switch {
	case first == nil, first.Reason == Empty && isLedgerFault(bad):
		v.report.FirstBad = bad
	case bad.Reason == Replaced || bad.Reason == Forked, first.Reason == Torn && isLedgerFault(bad):
		v.report.FirstBad, v.report.Also = bad, first
	}
}

// isLedgerFault reports whether a contradiction says more than that the last bytes of the ledger are not an entry.
func isLedgerFault(bad *Bad) bool { return bad.Reason != Unsigned && bad.Reason != Unwitnessed }

// checkKeyOrigins returns a *Bad if a given key belongs to another log. A given key determines which ledger this must be.
func (v *verifier) checkKeyOrigins(keys []Key) *Bad {
	for _, k := range keys {
		if v.Name != "" && !k.Witness() && k.Name() != v.Name {
			return &Bad{Entry: 1, Reason: Replaced,
				Detail: fmt.Sprintf("this ledger is %s, but the key is of %s", v.Name, k.Name())}
		}
	}
	return nil
}

// checkKeysAnnounced returns a *Bad if the ledger does not announce one of keys. A key is announced before any verifier
// receives it. A ledger without that entry was therefore cut before it, or another party wrote it. held means that a
// given checkpoint is signed by such a key; then a ledger that announces no key at all is accepted.
func (v *verifier) checkKeysAnnounced(keys []Key, held bool) *Bad {
	own := v.Keys.All()
	for _, k := range keys {
		if !(held && len(own) == 0) && !k.Witness() && !slices.Contains(own, k) {
			return &Bad{Reason: Rekeyed,
				Detail: fmt.Sprintf("this ledger does not announce the key %s: it was written with another key, or was cut before the key was announced", k)}
		}
	}
	return nil
}

// firstContradiction returns the first contradiction between the ledger and all checkpoints.
func (v *verifier) firstContradiction(c Check) *Bad {
	if c.Newest == nil && len(c.Seen) == 0 && c.Trust.Quorum > 0 {
		return &Bad{Reason: Unwitnessed,
			Detail: "witnesses are required, but no checkpoint was given that they could have cosigned"}
	}
	shown := c.Trust
	if len(c.Seen) > 0 {
		shown.Quorum = 0
	}
	newest, bad := v.compareCheckpoint(c.Newest, c.checkpointName(0), shown)
	// The entry of the signing key may be gone from the ledger. If so, that is the fault to report.
	if bad != nil && bad.Reason == Unsigned {
		shown.Keys = append(slices.Clone(shown.Keys), c.Shown...)
		if s, err := v.Keys.extendTrust(shown).Open(c.Newest); err == nil {
			if why := v.compareSigned(s); why != nil {
				why.Checkpoint, bad = c.checkpointName(0), why
			}
		}
	}
	for i, signed := range c.Seen {
		if bad != nil {
			break
		}
		var seen Signed
		if seen, bad = v.compareCheckpoint(signed, c.checkpointName(i+1), c.Trust); (bad == nil ||
			bad.Reason == Truncated) && c.Newest != nil && newest.Size < seen.Size {
			bad = &Bad{Entry: newest.Size + 1, Reason: Rollback, Checkpoint: c.checkpointName(i + 1),
				Detail: fmt.Sprintf("its newest checkpoint is of %d entries, but one of %d was seen: it was restored",
					newest.Size, seen.Size)}
		}
	}
	return bad
}

// compareCheckpoint compares the ledger with one signed checkpoint. If signed is nil, there is nothing to compare.
func (v *verifier) compareCheckpoint(signed []byte, called string, t Trust) (Signed, *Bad) {
	if signed == nil {
		return Signed{}, nil
	}
	s, bad := v.openCheckpoint(signed, t)
	if bad == nil {
		bad = v.compareSigned(s)
	}
	if bad != nil {
		bad.Checkpoint = called
		return s, bad
	}
	s.From = called
	v.report.Held = append(v.report.Held, s)
	return s, nil
}

// openCheckpoint verifies the signatures of a checkpoint. If the checkpoint is of another ledger, the error names that ledger.
func (v *verifier) openCheckpoint(signed []byte, t Trust) (Signed, *Bad) {
	said, unreadable := ReadCheckpoint(signed)
	if unreadable == nil && v.Name != "" && said.Origin != v.Name {
		return Signed{}, v.newReplacedBad(said)
	}
	s, err := v.Keys.extendTrust(t).Open(signed)
	if err == nil {
		return s, nil
	}
	var bad *Bad
	if !errors.As(err, &bad) {
		return Signed{}, newUnsignedBad("%v", err)
	}
	for _, c := range v.Keys.changes {
		if bad.Reason == Unsigned && slices.Contains(signerIDs(signed), keyID{c.key.Name(), c.key.KeyHash()}) &&
			!slices.Contains(v.Keys.extendTrust(t).Keys, c.key) {
			bad.Detail += fmt.Sprintf("; the ledger announces that key in entry %d", c.seq)
		}
	}
	if bad.Reason == Unsigned && unreadable == nil && said.Size > v.report.Entries {
		bad.Detail += fmt.Sprintf("; it is of %d entries, but %d are here: a ledger that was cut before a change of key does not lead to the next key", said.Size, v.report.Entries)
	}
	return Signed{}, bad
}

func (v *verifier) newReplacedBad(c Checkpoint) *Bad {
	return &Bad{Entry: 1, Reason: Replaced,
		Detail: fmt.Sprintf("this ledger is %s, but the checkpoint is of %s", v.Name, c.Origin)}
}

func (v *verifier) compareSigned(s Signed) *Bad {
	switch {
	case v.report.Entries == 0:
		return &Bad{Entry: 1, Reason: Truncated, Detail: fmt.Sprintf("%d entries were signed, none is left", s.Size)}
	case s.Origin != v.Name:
		return v.newReplacedBad(s.Checkpoint)
	case s.Size > v.report.Entries:
		return &Bad{Entry: v.report.Entries + 1, Reason: Truncated,
			Detail: fmt.Sprintf("%d entries were signed, but %d are left: it was cut, or an old copy restored", s.Size,
				v.report.Entries)}
	case v.roots[s.Size] != s.Root:
		return &Bad{Within: s.Size, Reason: Forked,
			Detail: fmt.Sprintf("the first %d entries are not the ones that were signed", s.Size)}
	}
	if k, ok := v.Keys.keyAt(s.Size); ok && !slices.Contains(s.Keys, k) {
		return newUnsignedBad("the log's key at %d entries is %s, but another key signed the checkpoint", s.Size, k)
	}
	return nil
}

// Proves returns the facts that a report with OK proves, as sentences without repetition.
func (r Report) Proves() []string {
	said := []string{fmt.Sprintf("the order of its %d entries, and that none was changed, removed or inserted without rewriting everything after it", r.Entries)}
	for _, s := range r.Held {
		from := r.checkpointFiles(func(o Signed) bool { return o.Checkpoint == s.Checkpoint && slices.Contains(o.Keys, s.Keys[0]) })
		said = append(said, fmt.Sprintf("its first %d entries are the ones that the key %s signed%s", s.Size, s.Keys[0], from))
		for _, c := range s.Cosignatures {
			from := r.checkpointFiles(func(o Signed) bool { return o.Checkpoint == s.Checkpoint && slices.Contains(o.Cosignatures, c) })
			said = append(said,
				fmt.Sprintf("%s had cosigned no other history of this log, and none longer, by %s%s", c.Witness,
					c.Time.Format(time.RFC3339), from))
		}
	}
	var once []string
	for _, s := range said {
		if !slices.Contains(once, s) {
			once = append(once, s)
		}
	}
	return once
}

// checkpointFiles returns a phrase with the files of the checkpoints for which says is true.
func (r Report) checkpointFiles(says func(Signed) bool) string {
	var files []string
	for _, s := range r.Held {
		if says(s) && s.From != "" && !slices.Contains(files, s.From) {
			files = append(files, s.From)
		}
	}
	if len(files) == 0 {
		return ""
	}
	return " (checkpoint " + strings.Join(files, " and ") + ")"
}

// LeavesOpen returns the facts that the report does not prove, as sentences.
func (r Report) LeavesOpen() []string {
	var said []string
	signed, witnessed := uint64(0), uint64(0)
	for _, s := range r.Held {
		signed = max(signed, s.Size)
		if len(s.Cosignatures) > 0 {
			witnessed = max(witnessed, s.Size)
		}
	}
	if signed < r.Entries {
		said = append(said, fmt.Sprintf("no signature covers the entries from %d on: anyone with write access to the files can replace them by others that verify, or cut them off", signed+1))
	}
	switch {
	case r.witnesses == 0:
		said = append(said, "no witness was named: anyone with the log's key can sign other entries in place of these")
	case witnessed < r.Entries:
		said = append(said, fmt.Sprintf("no named witness covers the entries from %d on: anyone with the log's key can sign others in their place", witnessed+1))
	}
	return append(said,
		"bodies in blobs/ were not checked: they may be missing or changed",
		"the times come from the writer's clock; the order comes from the numbers",
		"calls that did not pass the gate are not in it, and its contents are what the gate reported")
}
