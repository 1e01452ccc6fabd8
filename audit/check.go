package audit

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Check is what a ledger is held against beyond itself. The zero Check is nothing.
type Check struct {
	Trust  Trust    // its quorum is of those in Seen, and of Newest when there are none
	Newest []byte   // the signed checkpoint that the ledger itself shows as its newest
	Seen   [][]byte // signed checkpoints of it that were kept elsewhere
	Own    bool     // trust the keys that the ledger announces itself, too: it cannot vouch for them
}

// sizes returns the sizes that the notes name, verified or not: the roots there are to be kept.
func (c Check) sizes() map[uint64]Hash {
	roots := make(map[uint64]Hash)
	for _, signed := range append([][]byte{c.Newest}, c.Seen...) {
		if c, err := ReadCheckpoint(signed); err == nil {
			roots[c.Size] = Hash{}
		}
	}
	return roots
}

// hold holds the ledger against the checkpoints of c. What contradicts them goes before a torn tail or nothing at all, and
// what is another ledger before everything.
func (v *verifier) hold(c Check) {
	if c.Own {
		c.Trust.Keys = append(v.Keys.All(), c.Trust.Keys...)
	}
	bad := v.contradiction(c)
	if bad == nil {
		return
	}
	switch first := v.report.FirstBad; {
	case first == nil,
		bad.Reason == Replaced || bad.Reason == Forked,
		(first.Reason == Torn || first.Reason == Empty) && bad.Reason != Unsigned && bad.Reason != Unwitnessed:
		v.report.FirstBad = bad
	}
}

// contradiction returns what is wrong with the ledger in the light of all checkpoints.
func (v *verifier) contradiction(c Check) *Bad {
	if c.Newest == nil && len(c.Seen) == 0 && c.Trust.Quorum > 0 {
		return &Bad{Reason: Unwitnessed, Detail: "witnesses are wanted, and no checkpoint was given that they could have cosigned"}
	}
	shown := c.Trust
	if len(c.Seen) > 0 {
		shown.Quorum = 0
	}
	newest, bad := v.agree(c.Newest, shown)
	for _, signed := range c.Seen {
		if bad != nil {
			break
		}
		var seen Signed
		if seen, bad = v.agree(signed, c.Trust); (bad == nil || bad.Reason == Truncated) && c.Newest != nil && newest.Size < seen.Size {
			bad = &Bad{Entry: newest.Size + 1, Reason: Rollback,
				Detail: fmt.Sprintf("its newest checkpoint is of %d entries, and one of %d was seen: it was put back", newest.Size, seen.Size)}
		}
	}
	return bad
}

// agree holds the ledger against one signed checkpoint, nil is none.
func (v *verifier) agree(signed []byte, t Trust) (Signed, *Bad) {
	if signed == nil {
		return Signed{}, nil
	}
	s, err := v.Keys.follow(t).Open(signed)
	var bad *Bad
	if err != nil && !errors.As(err, &bad) {
		bad = unsigned("%v", err)
	}
	if bad != nil {
		return Signed{}, bad
	}
	if bad := v.contradicts(s); bad != nil {
		return s, bad
	}
	v.report.Held = append(v.report.Held, s)
	return s, nil
}

func (v *verifier) contradicts(s Signed) *Bad {
	switch {
	case v.report.Entries == 0:
		return &Bad{Entry: 1, Reason: Truncated, Detail: fmt.Sprintf("%d entries were signed and none is left", s.Size)}
	case s.Origin != v.Name:
		return &Bad{Entry: 1, Reason: Replaced, Detail: fmt.Sprintf("this ledger is %s, the checkpoint is of %s", v.Name, s.Origin)}
	case s.Size > v.report.Entries:
		return &Bad{Entry: v.report.Entries + 1, Reason: Truncated,
			Detail: fmt.Sprintf("%d entries were signed and %d are left: its end was cut, or it was put back", s.Size, v.report.Entries)}
	case v.roots[s.Size] != s.Root:
		return &Bad{Entry: s.Size, Reason: Forked, Detail: fmt.Sprintf("the first %d entries are not those that were signed", s.Size)}
	}
	if k, ok := v.Keys.at(s.Size); ok && !slices.Contains(s.Keys, k) {
		return &Bad{Entry: s.Size, Reason: Unsigned, Detail: fmt.Sprintf("the key of the log at %d entries is %s, and another signed the checkpoint", s.Size, k)}
	}
	return nil
}

// Proves returns in sentences what a report that is OK stands for.
func (r Report) Proves() []string {
	said := []string{fmt.Sprintf("the order of its %d entries, and that none was changed, taken out or put in without everything after it being written anew", r.Entries)}
	for _, s := range r.Held {
		said = append(said, fmt.Sprintf("its first %d entries are those that the key %s signed", s.Size, s.Keys[0]))
		for _, c := range s.Cosignatures {
			said = append(said, fmt.Sprintf("%s knew of no other and no longer ledger of that name at %s", c.Witness, c.Time.Format(time.RFC3339)))
		}
	}
	return said
}

// LeavesOpen returns in sentences what it does not prove.
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
		said = append(said, fmt.Sprintf("the entries from %d on are held against no signature: whoever can write the files can write others that verify, or cut them off", signed+1))
	}
	if witnessed < r.Entries {
		said = append(said, fmt.Sprintf("the entries from %d on have no witness: whoever has the log's key can sign others in their place", witnessed+1))
	}
	return append(said,
		"the times in it are the writer's clock; its order is the numbers'",
		"what did not pass the gate is not in it, and what is in it is what the gate said")
}
