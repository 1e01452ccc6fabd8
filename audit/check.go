package audit

import (
	"errors"
	"fmt"
	"slices"
)

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
				Detail: fmt.Sprintf("this ledger is %s, and the key is of %s", v.Name, k.Name())}
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
				Detail: fmt.Sprintf("the key %s is none of those that this ledger announces: it was written by who has another, or cut before that key came", k)}
		}
	}
	return nil
}

// firstContradiction returns the first contradiction between the ledger and all checkpoints.
func (v *verifier) firstContradiction(c Check) *Bad {
	if c.Newest == nil && len(c.Seen) == 0 && c.Trust.Quorum > 0 {
		return &Bad{Reason: Unwitnessed,
			Detail: "witnesses are wanted, and no checkpoint was given that they could have cosigned"}
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
				Detail: fmt.Sprintf("its newest checkpoint is of %d entries, and one of %d was seen: it was put back",
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
		bad.Detail += fmt.Sprintf("; it names %d entries, and %d are here: a ledger that was cut before a change of key does not lead to the next", said.Size, v.report.Entries)
	}
	return Signed{}, bad
}

func (v *verifier) newReplacedBad(c Checkpoint) *Bad {
	return &Bad{Entry: 1, Reason: Replaced,
		Detail: fmt.Sprintf("this ledger is %s, and the checkpoint is of %s", v.Name, c.Origin)}
}

func (v *verifier) compareSigned(s Signed) *Bad {
	switch {
	case v.report.Entries == 0:
		return &Bad{Entry: 1, Reason: Truncated, Detail: fmt.Sprintf("%d entries were signed and none is left", s.Size)}
	case s.Origin != v.Name:
		return v.newReplacedBad(s.Checkpoint)
	case s.Size > v.report.Entries:
		return &Bad{Entry: v.report.Entries + 1, Reason: Truncated,
			Detail: fmt.Sprintf("%d entries were signed and %d are left: its end was cut, or it was put back", s.Size,
				v.report.Entries)}
	case v.roots[s.Size] != s.Root:
		return &Bad{Within: s.Size, Reason: Forked,
			Detail: fmt.Sprintf("the first %d entries are not those that were signed", s.Size)}
	}
	if k, ok := v.Keys.keyAt(s.Size); ok && !slices.Contains(s.Keys, k) {
		return newUnsignedBad("the key of the log at %d entries is %s, and another signed the checkpoint", s.Size, k)
	}
	return nil
}
