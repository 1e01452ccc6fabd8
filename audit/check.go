package audit

import (
	"errors"
	"fmt"
	"slices"
)

// Check is what a ledger is held against beyond itself. The zero Check is nothing.
type Check struct {
	Trust  Trust    // its quorum is of those in Seen, and of Newest when there are none
	Newest []byte   // the signed checkpoint that the ledger itself shows as its newest
	Seen   [][]byte // signed checkpoints of it that were kept elsewhere
	Called []string // what Newest, first, and those in Seen are called in what is said: their files
	Own    bool     // trust the keys that the ledger announces itself, and those in Shown, too: it cannot vouch for them
	Shown  []Key    // of whoever shows Newest. They make no checkpoint hold unless Own says so; they tell why one does not
}

// called returns what a checkpoint is called, of which 0 is Newest.
func (c Check) called(i int) string {
	if i < len(c.Called) {
		return c.Called[i]
	}
	return ""
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

// hold holds the ledger against the keys and checkpoints of c. What contradicts them goes before a torn tail or nothing at
// all, and what is another ledger before everything.
func (v *verifier) hold(c Check) {
	given := c.Trust.Keys
	if c.Own {
		c.Trust.Keys = slices.Concat(v.Keys.All(), given, c.Shown)
		given = nil
	}
	first := v.report.FirstBad
	bad := v.foreign(given)
	if bad == nil {
		bad = v.contradiction(c)
	}
	if bad == nil && first == nil {
		bad = v.unannounced(given, c.Newest != nil || len(c.Seen) > 0)
	}
	if bad == nil {
		return
	}
	switch {
	case first == nil, first.Reason == Empty && over(bad):
		v.report.FirstBad = bad
	case bad.Reason == Replaced || bad.Reason == Forked, first.Reason == Torn && over(bad):
		v.report.FirstBad, v.report.Also = bad, first
	}
}

// over tells whether a contradiction says more than that the ledger's last bytes are no entry.
func over(bad *Bad) bool { return bad.Reason != Unsigned && bad.Reason != Unwitnessed }

// foreign says which key is another log's: who gives one says whose ledger this has to be.
func (v *verifier) foreign(keys []Key) *Bad {
	for _, k := range keys {
		if v.Name != "" && !k.Witness() && k.Name() != v.Name {
			return &Bad{Entry: 1, Reason: Replaced, Detail: fmt.Sprintf("this ledger is %s, and the key is of %s", v.Name, k.Name())}
		}
	}
	return nil
}

// unannounced says which key never signed for this ledger. A key is announced before anybody is given it, so a ledger without
// that entry was cut before it, or is written by somebody else; unless a checkpoint that the key signed is held by it.
func (v *verifier) unannounced(keys []Key, held bool) *Bad {
	own := v.Keys.All()
	for _, k := range keys {
		if !(held && len(own) == 0) && !k.Witness() && !slices.Contains(own, k) {
			return &Bad{Reason: Rekeyed, Detail: fmt.Sprintf("the key %s is none of those that this ledger announces: it was written by who has another, or cut before that key came", k)}
		}
	}
	return nil
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
	newest, bad := v.agree(c.Newest, c.called(0), shown)
	if bad != nil && bad.Reason == Unsigned { // it may be of a key that is gone from the ledger: then that is the news
		shown.Keys = append(slices.Clone(shown.Keys), c.Shown...)
		if s, err := v.Keys.follow(shown).Open(c.Newest); err == nil {
			if why := v.contradicts(s); why != nil {
				why.Checkpoint, bad = c.called(0), why
			}
		}
	}
	for i, signed := range c.Seen {
		if bad != nil {
			break
		}
		var seen Signed
		if seen, bad = v.agree(signed, c.called(i+1), c.Trust); (bad == nil || bad.Reason == Truncated) && c.Newest != nil && newest.Size < seen.Size {
			bad = &Bad{Entry: newest.Size + 1, Reason: Rollback, Checkpoint: c.called(i + 1),
				Detail: fmt.Sprintf("its newest checkpoint is of %d entries, and one of %d was seen: it was put back", newest.Size, seen.Size)}
		}
	}
	return bad
}

// agree holds the ledger against one signed checkpoint, nil is none.
func (v *verifier) agree(signed []byte, called string, t Trust) (Signed, *Bad) {
	if signed == nil {
		return Signed{}, nil
	}
	s, bad := v.opened(signed, t)
	if bad == nil {
		bad = v.contradicts(s)
	}
	if bad != nil {
		bad.Checkpoint = called
		return s, bad
	}
	s.From = called
	v.report.Held = append(v.report.Held, s)
	return s, nil
}

// opened verifies a checkpoint's signatures, and says of one that is not this ledger's whose it is.
func (v *verifier) opened(signed []byte, t Trust) (Signed, *Bad) {
	said, unreadable := ReadCheckpoint(signed)
	if unreadable == nil && v.Name != "" && said.Origin != v.Name {
		return Signed{}, v.alien(said)
	}
	s, err := v.Keys.follow(t).Open(signed)
	if err == nil {
		return s, nil
	}
	var bad *Bad
	if !errors.As(err, &bad) {
		return Signed{}, unsigned("%v", err)
	}
	for _, c := range v.Keys.changes {
		if bad.Reason == Unsigned && slices.Contains(signers(signed), keyID{c.key.Name(), c.key.KeyHash()}) && !slices.Contains(v.Keys.follow(t).Keys, c.key) {
			bad.Detail += fmt.Sprintf("; the ledger announces that key in entry %d", c.seq)
		}
	}
	if bad.Reason == Unsigned && unreadable == nil && said.Size > v.report.Entries {
		bad.Detail += fmt.Sprintf("; it names %d entries, and %d are here: a ledger that was cut before a change of key does not lead to the next", said.Size, v.report.Entries)
	}
	return Signed{}, bad
}

func (v *verifier) alien(c Checkpoint) *Bad {
	return &Bad{Entry: 1, Reason: Replaced, Detail: fmt.Sprintf("this ledger is %s, and the checkpoint is of %s", v.Name, c.Origin)}
}

func (v *verifier) contradicts(s Signed) *Bad {
	switch {
	case v.report.Entries == 0:
		return &Bad{Entry: 1, Reason: Truncated, Detail: fmt.Sprintf("%d entries were signed and none is left", s.Size)}
	case s.Origin != v.Name:
		return v.alien(s.Checkpoint)
	case s.Size > v.report.Entries:
		return &Bad{Entry: v.report.Entries + 1, Reason: Truncated,
			Detail: fmt.Sprintf("%d entries were signed and %d are left: its end was cut, or it was put back", s.Size, v.report.Entries)}
	case v.roots[s.Size] != s.Root:
		return &Bad{Within: s.Size, Reason: Forked, Detail: fmt.Sprintf("the first %d entries are not those that were signed", s.Size)}
	}
	if k, ok := v.Keys.at(s.Size); ok && !slices.Contains(s.Keys, k) {
		return unsigned("the key of the log at %d entries is %s, and another signed the checkpoint", s.Size, k)
	}
	return nil
}
