package audit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
)

// book is a ledger under construction, with the state that a writer carries and the keys of the log and the witnesses.
type book struct {
	t        testing.TB
	segments [][]byte
	name     string
	head     Head
	tree     Tree
	pairs    Pairs
	roots    []Checkpoint // by size
}

// newBook begins a ledger. Another origin gives another ledger.
func newBook(t testing.TB, origin byte) *book {
	g := Genesis{Format, fmt.Sprintf("%032x", origin), "castle"}
	b := &book{t: t, segments: [][]byte{nil}, name: g.Name()}
	b.roots = []Checkpoint{b.checkpoint()}
	b.add(KindGenesis, g)
	return b
}

// add appends an entry. data is a JSON string, or a value to encode as JSON.
func (b *book) add(kind string, data any) {
	b.t.Helper()
	raw, ok := data.(string)
	if !ok {
		text, err := json.Marshal(data)
		do(b.t, err)
		raw = string(text)
	}
	e := Entry{Seq: b.head.Seq + 1, Time: time.Date(2026, 11, 3, 9, 0, int(b.head.Seq), 0, time.UTC), Kind: kind, Data: json.RawMessage(raw)}
	line, h, err := Append(b.head.Hash, e)
	do(b.t, err)
	last := len(b.segments) - 1
	b.segments[last] = append(b.segments[last], line...)
	b.head = Head{e.Seq, h}
	b.tree.Add(Leaf(line))
	_, raws, err := parseLine(line)
	do(b.t, err)
	e, err = parseEntry(raws)
	do(b.t, err)
	do(b.t, b.pairs.Add(e))
	b.roots = append(b.roots, b.checkpoint())
}

// call adds a plan, an intent and an outcome.
func (b *book) call(id string) {
	text := "plan of " + id
	digest := Hash(sha256.Sum256([]byte(text)))
	b.add(KindIntent, `{"receipt":"`+id+`","capability":"git.status","agent":"local"}`)
	b.add(KindPlan, Plan{Digest: digest.String(), Text: text})
	b.add(KindOutcome, `{"receipt":"`+id+`","outcome":"ok","cage":{"planDigest":"`+digest.String()+`"}}`)
}

// rotate begins the next segment.
func (b *book) rotate() {
	b.t.Helper()
	start := newStart(b.head, b.tree, b.pairs.Open())
	b.segments = append(b.segments, nil)
	b.add(KindSegment, start)
}

func (b *book) checkpoint() Checkpoint { return Checkpoint{b.name, b.tree.Size(), b.tree.Root()} }

// sign signs the state at size with the log's key of this number.
func (b *book) sign(size int, key byte) []byte {
	b.t.Helper()
	by, err := newSigner(b.name, private(key))
	do(b.t, err)
	out, err := signNote(b.roots[size], by)
	do(b.t, err)
	return out
}

// cosign adds the cosignature of the witness of this number, at 1000 seconds plus the number.
func (b *book) cosign(signed []byte, witness byte) []byte {
	b.t.Helper()
	by, err := newCosigner(fmt.Sprintf("witness.example/w%d", witness), private(100+witness), func() time.Time { return time.Unix(1000+int64(witness), 0) })
	do(b.t, err)
	out, err := cosignNote(signed, by)
	do(b.t, err)
	return out
}

// cosignedAt adds a cosignature with any time. No witness makes such a one.
func (b *book) cosignedAt(signed []byte, witness byte, when uint64) []byte {
	b.t.Helper()
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	text = append(slices.Clone(text), '\n')
	key := b.witness(witness)
	sig := binary.BigEndian.AppendUint32(nil, key.KeyHash())
	sig = binary.BigEndian.AppendUint64(sig, when)
	sig = append(sig, ed25519.Sign(private(100+witness), cosignedBytes(when, text))...)
	return append(slices.Clone(signed), fmt.Sprintf("— %s %s\n", key.Name(), base64.StdEncoding.EncodeToString(sig))...)
}

// change announces a key that the previous key signed.
func (b *book) change(old, next byte) {
	b.t.Helper()
	by, before := private(old), Key{}
	if old != 0 {
		before = b.key(old)
	} else {
		by = private(next)
	}
	c, err := newKeyChange(before, b.key(next), by)
	do(b.t, err)
	b.add(KindKey, c)
}

func (b *book) key(n byte) Key {
	k, err := LogKey(b.name, private(n).Public().(ed25519.PublicKey))
	do(b.t, err)
	return k
}

func (b *book) witness(n byte) Key {
	k, err := WitnessKey(fmt.Sprintf("witness.example/w%d", n), private(100+n).Public().(ed25519.PublicKey))
	do(b.t, err)
	return k
}

func (b *book) trust(keys ...byte) (t Trust) {
	for _, n := range keys {
		t.Keys = append(t.Keys, b.key(n))
	}
	return t
}

func (b *book) readers() (list []io.Reader) { return readers(b.segments...) }

func readers(segments ...[]byte) (list []io.Reader) {
	for _, s := range segments {
		list = append(list, bytes.NewReader(s))
	}
	return list
}

// verify verifies the ledger against c. want is the expected reason; "": the ledger is valid.
func (b *book) verify(c Check, want Reason) Report {
	b.t.Helper()
	r, err := c.Verify(b.readers()...)
	do(b.t, err)
	var got Reason
	if r.FirstBad != nil {
		got = r.FirstBad.Reason
	}
	if got != want || r.OK != (want == "") {
		b.t.Fatalf("%v, want %q", r.FirstBad, want)
	}
	return r
}

// private returns a test key whose seed is the number.
func private(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}
