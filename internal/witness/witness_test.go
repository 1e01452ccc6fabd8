package witness

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"bailey/audit"
	"bailey/internal/localapi"
)

// grove is a log of numbered entries that can be signed at any size, and forked.
type grove struct {
	t       *testing.T
	name    string
	private ed25519.PrivateKey
	key     audit.Key
	leaves  []audit.Hash
}

func newGrove(t *testing.T, name string, seed byte) *grove {
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	key, err := audit.LogKey(name, private.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	return &grove{t: t, name: name, private: private, key: key}
}

func (g *grove) grow(mark string, n int) {
	for range n {
		g.leaves = append(g.leaves, audit.Leaf(fmt.Appendf(nil, "%s %d\n", mark, len(g.leaves))))
	}
}

// ask returns the request for a checkpoint of size entries, for a witness that saw old entries.
func (g *grove) ask(old, size int) []byte {
	g.t.Helper()
	var stored []tlog.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) (list []tlog.Hash, err error) {
		for _, i := range indexes {
			list = append(list, stored[i])
		}
		return list, nil
	})
	var tree audit.Tree
	for n, l := range g.leaves[:size] {
		more, err := tlog.StoredHashesForRecordHash(int64(n), tlog.Hash(l), read)
		if err != nil {
			g.t.Fatal(err)
		}
		stored = append(stored, more...)
		tree.Add(l)
	}
	var proof []audit.Hash
	if 0 < old && old < size {
		list, err := tlog.ProveTree(int64(size), int64(old), read)
		if err != nil {
			g.t.Fatal(err)
		}
		for _, h := range list {
			proof = append(proof, audit.Hash(h))
		}
	}
	text := audit.Checkpoint{Origin: g.name, Size: uint64(size), Root: tree.Root()}.Text()
	sig := append(binary.BigEndian.AppendUint32(nil, g.key.KeyHash()), ed25519.Sign(g.private, []byte(text))...)
	signed := fmt.Appendf(nil, "%s\n— %s %s\n", text, g.name, base64.StdEncoding.EncodeToString(sig))
	return audit.Request{Old: uint64(old), Proof: proof, Checkpoint: signed}.Text()
}

func newWitness(t *testing.T, file string, keys ...audit.Key) (*Witness, audit.Key) {
	t.Helper()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{200}, ed25519.SeedSize))
	key, err := audit.WitnessKey("witness.example/w", private.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	store, err := OpenFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return New(store, keys, NewCosigner(key, private, time.Now)), key
}

// seen returns the size of the log's checkpoint that the witness's store holds.
func seen(w *Witness, log string) uint64 { return w.store.(*File).seen[log].Size }

// TestWitness checks over HTTP that a sequence of requests gets the responses of c2sp.org/tlog-witness. A fork, a
// rollback and an unknown log must get no signature. The new state must be on disk before the response is sent.
func TestWitness(t *testing.T) {
	g, fork, stranger := newGrove(t, "bailey/a/1", 1), newGrove(t, "bailey/a/1", 1), newGrove(t, "bailey/a/1", 2)
	g.grow("x", 12)
	fork.grow("x", 3)
	fork.grow("y", 9)
	stranger.grow("x", 12)
	other := newGrove(t, "bailey/b/1", 3)
	other.grow("z", 5)
	file := filepath.Join(t.TempDir(), "seen")
	w, key := newWitness(t, file, g.key)
	forged := bytes.Replace(g.ask(5, 9), []byte("old 5\n"), []byte("old 5\nAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"), 1)
	for i, c := range []struct {
		what    string
		request []byte
		code    int
		body    string
		seen    uint64
	}{
		{"rubbish", []byte("rubbish"), 400, "", 0},
		{"too long", bytes.Repeat([]byte("x"), audit.MaxRequest+1), 413, "", 0},
		{"a log without a key here", other.ask(0, 5), 404, "", 0},
		{"another's signature", stranger.ask(0, 5), 403, "", 0},
		{"another's signature, at a wrong size", stranger.ask(3, 5), 403, "", 0},
		{"first", g.ask(0, 5), 200, "— witness.example/w ", 5},
		{"again from nothing", g.ask(0, 5), 409, "5\n", 5},
		{"the same again", g.ask(5, 5), 200, "— witness.example/w ", 5},
		{"behind itself", g.ask(7, 5), 400, "", 5},
		{"a rollback", g.ask(3, 4), 409, "5\n", 5},
		{"a fork of as many", fork.ask(5, 5), 422, "", 5},
		{"a fork of more", fork.ask(5, 9), 422, "", 5},
		{"a wrong proof", forged, 422, "", 5},
		{"more", g.ask(5, 12), 200, "— witness.example/w ", 12},
		{"less", g.ask(5, 9), 409, "12\n", 12},
	} {
		out := httptest.NewRecorder()
		w.Handler().ServeHTTP(out, httptest.NewRequest("POST", addPath, bytes.NewReader(c.request)))
		if out.Code != c.code || !strings.HasPrefix(out.Body.String(), c.body) {
			t.Errorf("%d, %s: %d %q, want %d %q", i, c.what, out.Code, out.Body, c.code, c.body)
		}
		if c.code == 409 && out.Header().Get("Content-Type") != sizeType {
			t.Errorf("%s: type %s", c.what, out.Header().Get("Content-Type"))
		}
		if c.code != 200 && strings.Contains(out.Body.String(), "— ") {
			t.Errorf("%s: a signature in %q", c.what, out.Body)
		}
		if w, _ = newWitness(t, file, g.key); seen(w, g.name) != c.seen { // a crash at this point loses no state
			t.Errorf("%s: it saw %d, want %d", c.what, seen(w, g.name), c.seen)
		}
	}
	lines, err := w.Cosign(t.Context(), g.ask(12, 12))
	if err != nil {
		t.Fatal(err)
	}
	r, err := audit.ParseRequest(g.ask(12, 12))
	if err != nil {
		t.Fatal(err)
	}
	s, err := audit.Trust{Keys: []audit.Key{g.key}, Witnesses: []audit.Key{key}, Quorum: 1}.Open(append(r.Checkpoint, lines...))
	if err != nil || s.Size != 12 {
		t.Errorf("%+v %v", s, err)
	}
}

// TestTwoOfOneWitness checks that two processes of one witness share their state, so neither cosigns a fork.
func TestTwoOfOneWitness(t *testing.T) {
	g, fork := newGrove(t, "bailey/a/1", 1), newGrove(t, "bailey/a/1", 1)
	g.grow("x", 9)
	fork.grow("x", 3)
	fork.grow("y", 6)
	file := filepath.Join(t.TempDir(), "seen")
	one, _ := newWitness(t, file, g.key)
	two, _ := newWitness(t, file, g.key)
	for _, c := range []struct {
		by   *Witness
		ask  []byte
		sign bool
	}{{one, g.ask(0, 3), true}, {two, g.ask(3, 9), true}, {one, fork.ask(3, 9), false}, {one, g.ask(9, 9), true}} {
		if lines, err := c.by.Cosign(t.Context(), c.ask); (err == nil) != c.sign {
			t.Errorf("%s %v, want a signature: %v", lines, err, c.sign)
		}
	}
}

// TestWitnessRemembers checks that the witness signs nothing if its state file is removed or reset while it runs.
func TestWitnessRemembers(t *testing.T) {
	g, fork := newGrove(t, "bailey/a/1", 1), newGrove(t, "bailey/a/1", 1)
	g.grow("x", 9)
	fork.grow("y", 9)
	file := filepath.Join(t.TempDir(), "seen")
	w, _ := newWitness(t, file, g.key)
	if _, err := w.Cosign(t.Context(), g.ask(0, 3)); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Cosign(t.Context(), g.ask(3, 9)); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func() error{
		"restored or removed": func() error { return os.Remove(file) },
		"put back":            func() error { return os.WriteFile(file, old, 0o600) },
		"emptied":             func() error { return os.WriteFile(file, []byte("{}"), 0o600) },
		"zero":                func() error { return os.WriteFile(file, []byte(`{"bailey/a/1":{}}`), 0o600) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if lines, err := w.Cosign(t.Context(), fork.ask(0, 9)); err == nil {
			t.Errorf("%s: %s", name, lines)
		}
	}
}

// TestWitnessIsBusy checks that a request that waits for another process of the witness can be cancelled.
func TestWitnessIsBusy(t *testing.T) {
	g := newGrove(t, "bailey/a/1", 1)
	g.grow("x", 3)
	w, _ := newWitness(t, filepath.Join(t.TempDir(), "seen"), g.key)
	unlock, err := localapi.LockFile(w.store.(*File).name + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if lines, err := w.Cosign(ctx, g.ask(0, 3)); !errors.Is(err, context.Canceled) {
		t.Errorf("%s %v", lines, err)
	}
}

// TestUnknownLines checks that only the signature lines of named witnesses are kept from a response.
func TestUnknownLines(t *testing.T) {
	g := newGrove(t, "bailey/a/1", 1)
	g.grow("x", 5)
	w, key := newWitness(t, filepath.Join(t.TempDir(), "seen"), g.key)
	request := g.ask(0, 5)
	r, err := audit.ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	good, err := w.Cosign(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	evil := []byte("— \u009b2Jevil AAAAAAAAAAAA\n")
	both, err := AddLines(r.Checkpoint, slices.Concat(evil, good, evil), g.key, []audit.Key{key})
	if err != nil || !bytes.Equal(both, slices.Concat(r.Checkpoint, good)) {
		t.Errorf("%q %v", both, err)
	}
	if _, err := audit.Join(r.Checkpoint, slices.Concat(r.Checkpoint, evil)); err == nil {
		t.Error("a name that would not show is kept")
	}
}

// TestWitnessThatCannotRemember checks that a witness that cannot store its state signs nothing.
func TestWitnessThatCannotRemember(t *testing.T) {
	g := newGrove(t, "bailey/a/1", 1)
	g.grow("x", 5)
	w, _ := newWitness(t, filepath.Join(t.TempDir(), "gone", "seen"), g.key)
	if lines, err := w.Cosign(t.Context(), g.ask(0, 5)); err == nil || lines != nil {
		t.Errorf("%s %v", lines, err)
	}
	for _, text := range []string{"", "null", "[]", "{"} {
		file := filepath.Join(t.TempDir(), "seen")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenFile(file); err == nil {
			t.Errorf("%q is taken for what was seen", text)
		}
	}
}

// TestHostileWitness checks that only a cosignature by a named key is added, whatever the witness responds.
func TestHostileWitness(t *testing.T) {
	g := newGrove(t, "bailey/a/1", 1)
	g.grow("x", 5)
	w, key := newWitness(t, filepath.Join(t.TempDir(), "seen"), g.key)
	request := g.ask(0, 5)
	r, err := audit.ParseRequest(request)
	if err != nil {
		t.Fatal(err)
	}
	good, err := w.Cosign(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if both, err := AddLines(r.Checkpoint, good, g.key, []audit.Key{key}); err != nil || !bytes.HasPrefix(both, r.Checkpoint) {
		t.Errorf("%s %v", both, err)
	}
	if twice, err := AddLines(append(bytes.Clone(r.Checkpoint), good...), good, g.key, []audit.Key{key}); err != nil || bytes.Count(twice, []byte("witness.example")) != 1 {
		t.Errorf("%s %v", twice, err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-6] ^= 1
	for what, lines := range map[string][]byte{
		"nothing": nil, "rubbish": []byte("rubbish\n"), "one bit": flipped, "another text": append([]byte("bailey/a/1\n9\n"), good...),
		"the log's own": r.Checkpoint[bytes.Index(r.Checkpoint, []byte("— ")):], "no newline": good[:len(good)-1], "long": bytes.Repeat(good, 400),
	} {
		if both, err := AddLines(r.Checkpoint, lines, g.key, []audit.Key{key}); err == nil {
			t.Errorf("%s: %s", what, both)
		}
	}
	if _, err := AddLines(r.Checkpoint, good, g.key, nil); err == nil {
		t.Error("a witness that nobody named")
	}
	for what, answer := range map[string]http.HandlerFunc{
		"an error": func(out http.ResponseWriter, _ *http.Request) { http.Error(out, "no\x1b[2J", 500) },
		"no size":  func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(409); io.WriteString(out, "-1\n") },
		"a redirect": func(out http.ResponseWriter, r *http.Request) {
			http.Redirect(out, r, "http://127.0.0.1:1/", http.StatusFound)
		},
		"a broken end": func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Length", "100")
			io.WriteString(out, "x")
		},
	} {
		server := httptest.NewServer(answer)
		lines, _, err := Ask(context.Background(), server.URL+addPath, request)
		if err == nil || lines != nil || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %q %v", what, lines, err)
		}
		server.Close()
	}
	server := httptest.NewServer(w.Handler())
	defer server.Close()
	if _, size, err := Ask(context.Background(), server.URL+addPath, request); err != nil || size != 5 {
		t.Errorf("%d %v", size, err)
	}
}

// TestWitnessAddresses checks that without TLS the client accepts only this machine.
func TestWitnessAddresses(t *testing.T) {
	for at, ok := range map[string]bool{"http://127.0.0.1:7070": true, "http://[::1]:7": true, "https://w.example/a/": true,
		"http://w.example": false, "http://127.0.0.1.example": false, "ftp://127.0.0.1": false, "https://a:b@w.example": false, "w": false, "": false, "%": false} {
		if _, err := ParseURL(at); (err == nil) != ok {
			t.Errorf("%q: %v", at, err)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("enough")
	cancel(why)
	w, _ := newWitness(t, filepath.Join(t.TempDir(), "seen"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Serve(ctx, l, "", ""); !errors.Is(err, why) {
		t.Error(err)
	}
}

// TestCosignatureIsTheVector checks that a witness makes the bytes of the vectors of package audit, and none at a time
// that has no form.
func TestCosignatureIsTheVector(t *testing.T) {
	signed, err := os.ReadFile("../../audit/testdata/signed/old.note")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(signed), "\n\n")
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{101}, ed25519.SeedSize))
	key, err := audit.WitnessKey("witness.example/w1", private.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	by := NewCosigner(key, private, func() time.Time { return time.Unix(1001, 0) })
	made, err := note.Sign(&note.Note{Text: text + "\n"}, by)
	if err != nil || !bytes.HasSuffix(signed, made[len(text)+2:]) {
		t.Errorf("%s %v", made, err)
	}
	for _, when := range []int64{-1, 253402300800} {
		by := NewCosigner(key, private, func() time.Time { return time.Unix(when, 0) })
		if _, err := by.Sign([]byte("x\n")); err == nil {
			t.Errorf("a cosignature at %d", when)
		}
	}
}
