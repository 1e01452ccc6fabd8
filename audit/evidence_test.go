package audit

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// evidence returns a bundle of the entries numbered seqs, sealed by the witness.
func (b *book) evidence(size int, seqs []uint64, change func(*Evidence)) (Evidence, []byte) {
	b.t.Helper()
	signed := b.cosign(b.sign(size, 1), 1)
	e := Evidence{About: []byte(`{"session":"s-1"}`), Key: b.key(1), Witness: b.witness(1), Checkpoint: signed,
		Entries: b.prove(signed, seqs...).Entries}
	if change != nil {
		change(&e)
	}
	text, err := SealEvidence(e, b.sealer(1))
	do(b.t, err)
	e, err = ParseEvidence(text)
	do(b.t, err)
	return e, text
}

func (b *book) sealer(n byte) testSigner {
	return testSigner{b.witness(n), private(100 + n), func() time.Time { return time.Unix(2000, 0) }}
}

// sessionBook has three calls after its key. The first two and the key are the evidence.
func sessionBook(t testing.TB) (b *book, seqs []uint64) {
	b = newBook(t, 1)
	b.change(0, 1)
	for _, id := range []string{"r-1", "r-2", "r-3"} {
		b.call(id)
	}
	return b, []uint64{2, 3, 4, 5, 6, 7, 8}
}

func TestEvidence(t *testing.T) {
	b, seqs := sessionBook(t)
	_, text := b.evidence(11, seqs, nil)
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	v, err := VerifyEvidence(text, trust)
	if err != nil || len(v.Entries) != 7 || v.Size != 11 || v.Sealed.Witness != "witness.example/w1" ||
		!v.Sealed.Time.Equal(time.Unix(2000, 0)) || string(v.About) != `{"session":"s-1"}` || v.Open != 0 ||
		len(v.Cosignatures) != 1 {
		t.Fatalf("%+v, %v", v, err)
	}
	if said := strings.Join(append(v.Proves(), v.LeavesOpen()...), "\n"); !strings.Contains(said, "made this selection") {
		t.Error(said)
	}
	if e, _ := ParseEvidence(text); !slices.Equal(e.OwnTrust().Keys, trust.Keys) {
		t.Errorf("%+v", e.OwnTrust())
	}
	for name, other := range map[string]Trust{"another key": {b.trust(2).Keys, trust.Witnesses, 0},
		"another witness": {trust.Keys, []Key{b.witness(2)}, 0}, "no witness": {Keys: trust.Keys}} {
		if _, err := VerifyEvidence(text, other); err == nil {
			t.Errorf("%s: verified", name)
		}
	}
}

// TestEvidenceRefuses: each change of the selection is found, with its reason, also if the list was adapted.
func TestEvidenceRefuses(t *testing.T) {
	t.Parallel()
	b, seqs := sessionBook(t)
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	whole, _ := b.evidence(11, seqs, nil)
	more, _ := b.evidence(11, append(slices.Clone(seqs), 9, 10, 11), nil)
	adapted := func(e *Evidence) {
		e.Listed = nil
		for _, p := range e.Entries {
			e.Listed = append(e.Listed, Listed{p.Seq, Leaf(p.Line)})
		}
	}
	alter := func(e *Evidence) {
		e.Entries[3].Line = bytes.Replace(e.Entries[3].Line, []byte(`"ok"`), []byte(`"no"`), 1)
	}
	for name, c := range map[string]struct {
		change func(*Evidence)
		want   Reason
	}{
		"altered":               {alter, Altered},
		"altered and listed":    {func(e *Evidence) { alter(e); adapted(e) }, Unsealed},
		"missing":               {func(e *Evidence) { e.Entries = slices.Delete(e.Entries, 4, 5) }, Missing},
		"missing everywhere":    {func(e *Evidence) { e.Entries = e.Entries[:4]; adapted(e) }, Unsealed},
		"added":                 {func(e *Evidence) { e.Entries = more.Entries }, Added},
		"added and listed":      {func(e *Evidence) { e.Entries, e.Listed = more.Entries, more.Listed }, Unsealed},
		"reordered":             {func(e *Evidence) { e.Entries[2], e.Entries[3] = e.Entries[3], e.Entries[2] }, Disordered},
		"reordered in the list": {func(e *Evidence) { e.Listed[2], e.Listed[3] = e.Listed[3], e.Listed[2] }, Disordered},
		"twice":                 {func(e *Evidence) { e.Entries = append(e.Entries, e.Entries[6]) }, Disordered},
		"another subject":       {func(e *Evidence) { e.About = []byte(`{"session":"s-2"}`) }, Unsealed},
		"another checkpoint":    {func(e *Evidence) { e.Checkpoint = b.sign(10, 1) }, Unsealed},
		"another proof":         {func(e *Evidence) { e.Entries[0].Proof[0][0] ^= 1 }, Unsealed},
		"another signer too": {func(e *Evidence) {
			e.Seal = append(e.Seal, "— other AAAAAAAA\n"...)
		}, Unsealed},
		"an empty seal": {func(e *Evidence) { e.Seal = nil }, Unsealed},
	} {
		e, err := ParseEvidence(whole.Text())
		do(t, err)
		c.change(&e)
		_, err = VerifyEvidence(e.Text(), trust)
		var bad *Bad
		if !errors.As(err, &bad) || bad.Reason != c.want {
			t.Errorf("%s: %v, want the reason %s", name, err, c.want)
		}
	}
}

// TestEvidenceOfTheWitness: a witness that seals entries that are not in the ledger is found out by the proofs.
func TestEvidenceOfTheWitness(t *testing.T) {
	t.Parallel()
	b, seqs := sessionBook(t)
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	for name, c := range map[string]struct {
		seqs   []uint64
		change func(*Evidence)
		want   Reason
	}{
		"another outcome": {seqs, func(e *Evidence) {
			e.Entries[6].Line = bytes.Replace(e.Entries[6].Line, []byte(`"ok"`), []byte(`"no"`), 1)
		}, Chain},
		"another last outcome": {[]uint64{2, 9, 11}, func(e *Evidence) {
			e.Entries[2].Line = bytes.Replace(e.Entries[2].Line, []byte(`,"cage"`), []byte(`,"page"`), 1)
		}, Forked},
		"a moved proof":       {seqs, func(e *Evidence) { e.Entries[0].Proof = e.Entries[1].Proof }, Forked},
		"no checkpoint":       {seqs, func(e *Evidence) { e.Checkpoint = nil }, Unsigned},
		"unsigned":            {seqs, func(e *Evidence) { e.Checkpoint = b.sign(11, 7) }, Unsigned},
		"an outcome alone":    {[]uint64{2, 5}, nil, Chain},
		"without the plan":    {[]uint64{2, 3, 5}, nil, Chain},
		"the genesis":         {[]uint64{1, 2}, nil, Chain},
		"a proof of no entry": {nil, func(e *Evidence) { e.Entries = []Proven{{Seq: 3, Line: []byte("{}\n")}} }, Chain},
	} {
		_, text := b.evidence(11, c.seqs, c.change)
		_, err := VerifyEvidence(text, trust)
		var bad *Bad
		if !errors.As(err, &bad) || bad.Reason != c.want {
			t.Errorf("%s: %v, want the reason %s", name, err, c.want)
		}
	}
	seal, err := ParseEvidence(func() []byte { _, text := b.evidence(11, seqs, nil); return text }())
	do(t, err)
	if c, err := ReadCheckpoint(seal.Seal); err == nil {
		t.Errorf("the seal can be read as a checkpoint: %+v", c)
	}
}

// TestEveryBitOfEvidence checks that a bundle does not verify if any bit changes.
func TestEveryBitOfEvidence(t *testing.T) {
	ktest.Long(t)
	b, _ := sessionBook(t)
	_, text := b.evidence(5, []uint64{2, 3, 4, 5}, nil)
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	if _, err := VerifyEvidence(text, trust); err != nil {
		t.Fatal(err)
	}
	for i := range text {
		for bit := range 8 {
			bad := bytes.Clone(text)
			bad[i] ^= 1 << bit
			if _, err := VerifyEvidence(bad, trust); err == nil {
				t.Fatalf("bit %d of byte %d: verified\n%s", bit, i, bad)
			}
		}
		if _, err := VerifyEvidence(slices.Concat(text[:i], text[i+1:]), trust); err == nil {
			t.Fatalf("byte %d left out: verified", i)
		}
	}
}

// FuzzEvidence checks that no input causes a panic, that a bundle has one encoding, and that a bundle that verifies is
// one that the witness has sealed.
func FuzzEvidence(f *testing.F) {
	b, seqs := sessionBook(f)
	var sealed [][]byte
	for _, list := range [][]uint64{seqs, seqs[:4], {2}, nil} {
		_, text := b.evidence(11, list, nil)
		sealed = append(sealed, text)
		f.Add(text)
	}
	trust := Trust{b.trust(1).Keys, []Key{b.witness(1)}, 1}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseEvidence(data)
		if err == nil && !bytes.Equal(e.Text(), data) {
			t.Fatalf("another encoding of %q", data)
		}
		_, err = VerifyEvidence(data, trust)
		if err == nil && !slices.ContainsFunc(sealed, func(s []byte) bool { return bytes.Equal(s, data) }) {
			t.Fatalf("verified: %q", data)
		}
		VerifyEvidence(data, e.OwnTrust())
	})
}
