package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/signed anew")

// signedCase is a vector: a ledger or a receipt, the data to verify it against, and the expected result.
type signedCase struct {
	Name      string   `json:"name"`
	Ledger    []string `json:"ledger,omitempty"` // the files of its segments
	Receipt   string   `json:"receipt,omitempty"`
	Keys      []string `json:"keys,omitempty"`
	Witnesses []string `json:"witnesses,omitempty"`
	Quorum    int      `json:"quorum,omitempty"`
	Newest    string   `json:"newest,omitempty"`
	Seen      string   `json:"seen,omitempty"`
	OK        bool     `json:"ok"`
	Reason    Reason   `json:"reason,omitempty"` // for a ledger that is not valid
}

// commitmentCase is a vector of [Commit].
type commitmentCase struct {
	Salt, Body, Commitment string // hex, text, hex
}

// TestSignedVectors runs the vectors in testdata/signed and checks that this package makes the same ones. With -update
// it writes them. docs/verify.py runs them as well (test/day).
func TestSignedVectors(t *testing.T) {
	files, cases := signedVectors(t)
	text, err := json.MarshalIndent(cases, "", " ")
	do(t, err)
	files["cases.json"] = append(text, '\n')
	text, err = json.MarshalIndent(commitments(), "", " ")
	do(t, err)
	files["commitments.json"] = append(text, '\n')
	const dir = "testdata/signed"
	if *update {
		do(t, os.RemoveAll(dir))
		do(t, os.Mkdir(dir, 0o755))
		for name, data := range files {
			do(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
	}
	list, err := os.ReadDir(dir)
	do(t, err)
	if len(list) != len(files) {
		t.Errorf("%d files, want %d: %v", len(list), len(files), slices.Sorted(maps.Keys(files)))
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		do(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what this package makes", name)
		}
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			if got, ok := c.run(t, files); got != c.Reason || ok != c.OK {
				t.Errorf("%v %q, want %v %q", ok, got, c.OK, c.Reason)
			}
		})
	}
}

func (c signedCase) run(t *testing.T, files map[string][]byte) (Reason, bool) {
	trust := Trust{Quorum: c.Quorum}
	for list, from := range map[*[]Key][]string{&trust.Keys: c.Keys, &trust.Witnesses: c.Witnesses} {
		for _, text := range from {
			k, err := ParseKey(text)
			do(t, err)
			*list = append(*list, k)
		}
	}
	if c.Receipt != "" {
		_, err := VerifyReceipt(files[c.Receipt], trust)
		var bad *Bad
		if errors.As(err, &bad) {
			return bad.Reason, false
		}
		return "", err == nil
	}
	var segments [][]byte
	for _, name := range c.Ledger {
		segments = append(segments, files[name])
	}
	check := Check{Trust: trust, Newest: files[c.Newest]}
	if c.Seen != "" {
		check.Seen = [][]byte{files[c.Seen]}
	}
	r, err := check.Verify(readers(segments...)...)
	do(t, err)
	if r.FirstBad != nil {
		return r.FirstBad.Reason, r.OK
	}
	return "", r.OK
}

func signedVectors(t *testing.T) (files map[string][]byte, cases []signedCase) {
	files = make(map[string][]byte)
	ledger := func(name string, b *book) (names []string) {
		for i, s := range b.segments {
			names = append(names, fmt.Sprintf("%s-%d.jsonl", name, i+1))
			files[names[i]] = s
		}
		return names
	}
	file := func(name string, data []byte) string { files[name] = data; return name }
	b := day(t, 1)
	b.change(1, 2) // entry 12
	b.rotate()
	b.call("r-3")
	size := len(b.roots) - 1
	whole := ledger("day", b)
	first, second := []string{b.key(1).String()}, []string{b.key(2).String()}
	witnesses := []string{b.witness(1).String(), b.witness(2).String()}
	old := file("old.note", b.cosign(b.sign(5, 1), 1))
	newest := file("newest.note", b.cosign(b.cosign(b.sign(size, 2), 1), 2))
	replaced := file("replaced-key.note", b.sign(size, 1))
	cut := slices.Clone(b.segments[2])
	cut = cut[:bytes.LastIndexByte(cut[:len(cut)-1], '\n')+1]
	file("cut.jsonl", cut)
	shorter := append(slices.Clone(whole[:2]), "cut.jsonl")
	fork := day(t, 1)
	fork.add("x", "{}")
	for range 6 {
		fork.add("y", "{}")
	}
	forked := ledger("fork", fork)
	other := day(t, 2)
	another := ledger("other", other)
	wrong, stolen := forgeries(t)
	receipt := file("r-2.receipt", b.portable("r-2", files[newest], size))
	flipped := file("flipped.receipt", bytes.Replace(files[receipt], []byte(`"outcome":"ok"`), []byte(`"outcome":"no"`), 1))
	moved := file("moved.receipt", []byte(strings.Replace(string(files[receipt]), string(files[newest]), string(files[old]), 1)))
	lastYear := file("year-9999.note", b.cosignedAt(b.sign(5, 1), 1, maxTime-1))
	tooLate := file("year-10000.note", b.cosignedAt(b.sign(5, 1), 1, maxTime))
	muchTooLate := file("2-to-the-63.note", b.cosignedAt(b.sign(5, 1), 1, 1<<63))
	strayPlan := file("stray-plan.receipt", b.strayPlan("r-open", "r-1", files[newest], size))
	loose := file("loose.note", bytes.Replace(files[old], []byte("==\n"), []byte("=\n"), 1))

	return files, []signedCase{
		{Name: "by itself", Ledger: whole, OK: true},
		{Name: "witnesses wanted of no checkpoint", Ledger: whole, Quorum: 1, Reason: Unwitnessed},
		{Name: "newest and old", Ledger: whole, Keys: first, Witnesses: witnesses, Quorum: 1, Newest: newest, Seen: old, OK: true},
		{Name: "two witnesses", Ledger: whole, Keys: first, Witnesses: witnesses, Quorum: 2, Newest: newest, OK: true},
		{Name: "the second key alone", Ledger: whole, Keys: second, Seen: newest, OK: true},
		{Name: "one witness of two", Ledger: whole, Keys: first, Witnesses: witnesses, Quorum: 2, Seen: old, Reason: Unwitnessed},
		{Name: "a key that was replaced", Ledger: whole, Keys: first, Seen: replaced, Reason: Unsigned},
		{Name: "no key", Ledger: whole, Seen: old, Reason: Unsigned},
		{Name: "loose base64", Ledger: whole, Keys: first, Seen: loose, Reason: Unsigned},
		{Name: "a cosignature of the year 9999", Ledger: whole, Keys: first, Witnesses: witnesses, Quorum: 1, Seen: lastYear, OK: true},
		{Name: "a cosignature of the year 10000", Ledger: whole, Keys: first, Witnesses: witnesses, Quorum: 1, Seen: tooLate, Reason: Unsigned},
		{Name: "a cosignature of 2^63", Ledger: whole, Keys: first, Witnesses: witnesses, Seen: muchTooLate, Reason: Unsigned},
		{Name: "a cosignature of the year 10000 by somebody unknown", Ledger: whole, Keys: first, Seen: tooLate, OK: true},
		{Name: "its end was cut", Ledger: shorter, Keys: []string{first[0], second[0]}, Newest: newest, Reason: Truncated},
		{Name: "its end was cut, alone", Ledger: shorter, OK: true},
		{Name: "it is gone", Keys: []string{first[0], second[0]}, Seen: newest, Reason: Truncated},
		{Name: "put back", Ledger: whole[:1], Keys: []string{first[0], second[0]}, Newest: old, Seen: newest, Reason: Rollback},
		{Name: "an old checkpoint replayed", Ledger: whole, Keys: first, Newest: old, Seen: newest, Reason: Rollback},
		{Name: "a fork", Ledger: forked, Keys: []string{first[0], second[0]}, Seen: newest, Reason: Forked},
		{Name: "a fork, before it", Ledger: forked, Keys: first, Seen: old, OK: true},
		{Name: "another log's key", Ledger: another, Keys: first, Reason: Replaced},
		{Name: "a key that it does not announce", Ledger: whole, Keys: []string{b.key(3).String()}, Reason: Rekeyed},
		{Name: "a later key that it does not announce", Ledger: whole, Keys: []string{first[0], b.key(3).String()}, Seen: old, Reason: Rekeyed},
		{Name: "a checkpoint of another log", Ledger: another, Keys: []string{other.key(1).String()}, Seen: old, Reason: Replaced},
		{Name: "another genesis", Ledger: another, Keys: first, Seen: old, Reason: Replaced},
		{Name: "a segment missing", Ledger: []string{whole[0], whole[2]}, Reason: Chain},
		{Name: "a segment with another tree", Ledger: ledger("wrong", wrong), Reason: Started},
		{Name: "a key that nobody signed", Ledger: ledger("stolen", stolen), Reason: Rekeyed},
		{Name: "receipt", Receipt: receipt, Keys: first, Witnesses: witnesses, Quorum: 2, OK: true},
		{Name: "receipt, the second key alone", Receipt: receipt, Keys: second, OK: true},
		{Name: "receipt, no key", Receipt: receipt, Reason: Unsigned},
		{Name: "receipt, three witnesses", Receipt: receipt, Keys: first, Witnesses: witnesses, Quorum: 3, Reason: Unwitnessed},
		{Name: "receipt, changed", Receipt: flipped, Keys: first},
		{Name: "receipt, with a plan that no outcome names", Receipt: strayPlan, Keys: first},
		{Name: "receipt, under another checkpoint", Receipt: moved, Keys: first},
	}
}

// forgeries returns a ledger whose second segment begins with another tree, and one with a key that no previous key
// signed.
func forgeries(t *testing.T) (wrong, stolen *book) {
	wrong = newBook(t, 1)
	wrong.call("r-1")
	start := newStart(wrong.head, wrong.tree, nil)
	start.Edge[0][0] ^= 1
	wrong.segments = append(wrong.segments, nil)
	wrong.add(KindSegment, start)
	stolen = newBook(t, 1)
	stolen.change(0, 1)
	c := change2(t, stolen)
	c.Key = stolen.key(3)
	stolen.add(KindKey, c)
	return wrong, stolen
}

func commitments() (list []commitmentCase) {
	for i, body := range []string{"", "a", "The body of a call.\n", strings.Repeat("x", 5000)} {
		salt := Salt{31: byte(i)}
		list = append(list, commitmentCase{hex.EncodeToString(salt[:]), body, Commit(salt, []byte(body)).Digest.String()})
	}
	return list
}
