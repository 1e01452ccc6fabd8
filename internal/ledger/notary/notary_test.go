package notary

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"bailey"
	"bailey/audit"
	"bailey/internal/ledger"
	"bailey/internal/witness"
)

// office is a log with its notary, its keys and the kept checkpoint, as on the disk.
type office struct {
	*Notary
	t    *testing.T
	dir  string
	keys KeyFiles
	log  *ledger.Log
	kept []byte
	deny error // error when a checkpoint is kept

	cosigned []byte
}

func newOffice(t *testing.T) *office {
	base := t.TempDir()
	o := &office{t: t, dir: filepath.Join(base, "ledger"), keys: KeyFiles{Dir: filepath.Join(base, "keys")}}
	o.open(0)
	return o
}

func (o *office) open(segment int64) {
	o.t.Helper()
	o.log = open(o.t, ledger.Config{Dir: o.dir, Host: "castle", Newest: o.kept, Segment: segment})
	o.Notary = New(Config{Log: o.log, Keys: o.keys, Newest: o.kept, Cosigned: o.cosigned, Keep: func(b []byte) error {
		if o.deny == nil {
			o.kept = b
		}
		return o.deny
	}, KeepCosigned: func(b []byte) error {
		if o.deny == nil {
			o.cosigned = b
		}
		return o.deny
	}})
}

func (o *office) sign() []byte {
	o.t.Helper()
	signed, err := o.Sign(context.Background())
	do(o.t, err)
	return signed
}

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open opens a ledger and closes it when the test ends.
func open(t testing.TB, c ledger.Config) *ledger.Log {
	t.Helper()
	l, err := ledger.New(c)
	if err != nil {
		t.Fatalf("%v (%s)", err, bailey.HintOf(err))
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func first(dir string) string { return filepath.Join(dir, "00000001.jsonl") }

// call makes one call with a receipt.
func call(t testing.TB, l *ledger.Log) bailey.ReceiptID {
	t.Helper()
	in := bailey.Intent{Receipt: bailey.NewReceiptID(), Capability: "system.echo", Agent: "local", Session: "s-1", Host: "castle", StartedAt: time.Now()}
	seal, err := l.Open(context.Background(), in)
	do(t, err)
	do(t, seal(bailey.Outcome{Status: bailey.OK, Decision: "allow", Executed: new(true)}))
	return in.Receipt
}

// cosign adds the cosignature of a witness to a checkpoint.
func cosign(t *testing.T, signed []byte, name string, private ed25519.PrivateKey) ([]byte, audit.Key) {
	t.Helper()
	key, err := audit.WitnessKey(name, PublicOf(private))
	do(t, err)
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	line, err := note.Sign(&note.Note{Text: string(text) + "\n"}, witness.NewCosigner(key, private, time.Now))
	do(t, err)
	both, err := audit.Join(signed, line)
	do(t, err)
	return both, key
}

// TestNotaryMakesItsKeyAtFirstUse checks that the key is made at its first use, is private, is announced once and is
// found again. Its signature must verify with the ledger.
func TestNotaryMakesItsKeyAtFirstUse(t *testing.T) {
	o := newOffice(t)
	call(t, o.log)
	if _, err := os.Stat(o.keys.Dir); err == nil {
		t.Fatal("there are keys before their first use")
	}
	signed := o.sign()
	key, err := o.Key(context.Background())
	do(t, err)
	st, err := os.Stat(o.keys.Dir)
	do(t, err)
	files, err := os.ReadDir(o.keys.Dir)
	do(t, err)
	info, err := files[0].Info()
	do(t, err)
	if len(files) != 1 || st.Mode().Perm() != 0o700 || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v %v", files, st.Mode(), info.Mode())
	}
	if again := o.sign(); !bytes.Equal(again, signed) {
		t.Error("nothing came, and it signed another checkpoint")
	}
	o.log.Close()
	o.open(0)
	if again, err := o.Key(context.Background()); err != nil || again != key {
		t.Errorf("after a new start: %v %v, want %v", again, err, key)
	}
	call(t, o.log)
	o.sign()
	for name, c := range map[string]audit.Check{
		"both": {Trust: audit.Trust{Keys: []audit.Key{key}}, Newest: o.kept, Seen: [][]byte{signed, o.kept}},
	} {
		r, err := ledger.VerifyAgainst(t.Context(), o.dir, c)
		if err != nil || !r.OK || len(r.Held) != 3 {
			t.Errorf("%s: %+v %v", name, r, err)
		}
	}
}

// TestKeyIsReplaced checks that the old key signs the new one and that its private half is deleted. A party that trusts
// the first key must be able to trust the second.
func TestKeyIsReplaced(t *testing.T) {
	o := newOffice(t)
	first, err := o.Key(context.Background())
	do(t, err)
	before := o.sign()
	change, err := o.Rotate(context.Background())
	do(t, err)
	if change.Old == nil || *change.Old != first || change.Key == first {
		t.Errorf("%+v", change)
	}
	after := o.sign()
	r, err := ledger.VerifyAgainst(t.Context(), o.dir, audit.Check{Trust: audit.Trust{Keys: []audit.Key{first}}, Newest: after, Seen: [][]byte{before}})
	if err != nil || !r.OK {
		t.Errorf("%+v %v", r.FirstBad, err)
	}
	if _, err := o.keys.Find(first.Public()); !errors.Is(err, bailey.NotFound) || !strings.Contains(bailey.HintOf(err), "restore") {
		t.Errorf("the private half that was replaced: %v", err)
	}
	if _, err := o.keys.Find(change.Key.Public()); err != nil {
		t.Error(err)
	}
}

// TestNeverSignsLess checks each kind of disagreement between the kept checkpoint and the ledger, at the start and at
// the next signature. Each must be refused by its name and with a hint.
func TestNeverSignsLess(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, o *office, early []byte)
		want  audit.Reason
		words string
	}{
		"untouched": {func(*testing.T, *office, []byte) {}, "", ""},
		"put back":  {func(t *testing.T, o *office, early []byte) { do(t, os.WriteFile(first(o.dir), early, 0o600)) }, audit.Truncated, "does not agree with its newest checkpoint: truncated: "},
		"cut": {func(t *testing.T, o *office, _ []byte) {
			b, err := os.ReadFile(first(o.dir))
			do(t, err)
			do(t, os.WriteFile(first(o.dir), b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1], 0o600))
		}, audit.Truncated, "does not agree with its newest checkpoint: truncated: "},
		"torn": {func(t *testing.T, o *office, _ []byte) {
			b, err := os.ReadFile(first(o.dir))
			do(t, err)
			do(t, os.WriteFile(first(o.dir), b[:len(b)-2], 0o600))
		}, audit.Truncated, "does not agree with its newest checkpoint: truncated: "},
		"written anew": {func(t *testing.T, o *office, early []byte) {
			do(t, os.WriteFile(first(o.dir), early, 0o600))
			kept := o.kept
			o.kept = nil
			o.open(0)
			for range 10 {
				call(t, o.log)
			}
			do(t, o.log.Close())
			o.kept = kept
		}, audit.Forked, "does not agree with its newest checkpoint: fork: "},
		"replaced": {func(t *testing.T, o *office, _ []byte) {
			do(t, os.RemoveAll(o.dir))
			kept := o.kept
			o.kept = nil
			o.open(0)
			for range 20 {
				call(t, o.log)
			}
			do(t, o.log.Close())
			o.kept = kept
		}, audit.Replaced, "does not agree with its newest checkpoint: replaced: "},
		"gone":    {func(t *testing.T, o *office, _ []byte) { do(t, os.RemoveAll(o.dir)) }, audit.Replaced, "does not agree with its newest checkpoint: replaced: "},
		"rubbish": {func(_ *testing.T, o *office, _ []byte) { o.kept = []byte("rubbish\n") }, "", "newest checkpoint"},
		"empty":   {func(_ *testing.T, o *office, _ []byte) { o.kept = []byte{} }, "", "newest checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			call(t, o.log)
			_, err := o.Key(context.Background())
			do(t, err)
			early, err := os.ReadFile(first(o.dir))
			do(t, err)
			early = early[:bytes.LastIndexByte(early, '\n')+1]
			call(t, o.log)
			o.sign()
			do(t, o.log.Close())
			c.spoil(t, o, early)
			found, _ := os.ReadFile(first(o.dir))
			l, err := ledger.New(ledger.Config{Dir: o.dir, Newest: o.kept})
			if c.words == "" {
				do(t, err)
				l.Close()
				return
			}
			var bad *audit.Bad
			if err == nil || !strings.Contains(err.Error(), c.words) || !errors.Is(err, bailey.Conflict) || bailey.HintOf(err) == "" {
				t.Fatalf("%v (%s), want %q", err, bailey.HintOf(err), c.words)
			}
			if errors.As(err, &bad); c.want != "" && (bad == nil || bad.Reason != c.want) {
				t.Errorf("%v, want %s", bad, c.want)
			}
			if now, _ := os.ReadFile(first(o.dir)); name != "gone" && !bytes.Equal(now, found) {
				t.Error("it was refused, and changed before")
			}
		})
	}
}

// TestHeldAcrossSegments checks that the newest checkpoint is found in any segment.
func TestHeldAcrossSegments(t *testing.T) {
	o := newOffice(t)
	do(t, o.log.Close())
	o.open(2 << 10)
	var notes [][]byte
	for range 12 {
		call(t, o.log)
		notes = append(notes, o.sign())
	}
	do(t, o.log.Close())
	if names, err := filepath.Glob(filepath.Join(o.dir, "*.jsonl")); err != nil || len(names) < 4 {
		t.Fatalf("%v %v", names, err)
	}
	for i, signed := range notes {
		o.kept = signed
		o.open(0)
		do(t, o.log.Close())
		c, err := audit.ReadCheckpoint(signed)
		do(t, err)
		c.Root[5] ^= 1
		if _, err := ledger.New(ledger.Config{Dir: o.dir, Newest: []byte(c.Text() + "\n— x y\n")}); err == nil || !strings.Contains(err.Error(), "fork") {
			t.Errorf("checkpoint %d with another root: %v", i, err)
		}
	}
}

// TestNotaryLooksAtTheDisk checks that the notary does not sign if a file was changed from outside, or if the kept
// checkpoint was not signed by this log.
func TestNotaryLooksAtTheDisk(t *testing.T) {
	o := newOffice(t)
	call(t, o.log)
	o.sign()
	call(t, o.log)
	b, err := os.ReadFile(first(o.dir))
	do(t, err)
	f, err := os.OpenFile(first(o.dir), os.O_RDWR, 0)
	do(t, err)
	_, err = f.WriteAt([]byte("X"), int64(bytes.Index(b, []byte("system.echo"))))
	do(t, err)
	do(t, f.Close())
	if signed, err := o.Sign(context.Background()); err == nil || signed != nil {
		t.Errorf("it signed %s", signed)
	}

	o = newOffice(t)
	call(t, o.log)
	kept := o.sign()
	for name, bad := range map[string][]byte{
		"no signature": kept[:bytes.Index(kept, []byte("\n\n"))+2],
		"one bit":      bytes.Replace(kept, []byte("="), []byte("A"), 1),
	} {
		n := New(Config{Log: o.log, Keys: o.keys, Newest: bad, Keep: func([]byte) error { t.Error("kept"); return nil }})
		if signed, err := n.Sign(context.Background()); !errors.Is(err, bailey.Conflict) || signed != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNotaryShowsNothingThatIsNotKept checks that a checkpoint is not returned if it cannot be kept. Otherwise the log
// could sign less after a crash than a reader already holds.
func TestNotaryShowsNothingThatIsNotKept(t *testing.T) {
	o := newOffice(t)
	call(t, o.log)
	o.deny = errors.New("the disk is full")
	if signed, err := o.Sign(context.Background()); err == nil || signed != nil {
		t.Errorf("%s %v", signed, err)
	}
}

// TestNotaryProves checks that a portable receipt verifies with only the log's first key, also after a change of key,
// and that consistency proofs connect two checkpoints.
func TestNotaryProves(t *testing.T) {
	o := newOffice(t)
	key, err := o.Key(context.Background())
	do(t, err)
	id := call(t, o.log)
	old := o.sign()
	_, err = o.Rotate(context.Background())
	do(t, err)
	call(t, o.log)
	text, err := o.Prove(context.Background(), id)
	do(t, err)
	v, err := audit.VerifyReceipt(text, audit.Trust{Keys: []audit.Key{key}})
	if err != nil || v.Intent.Receipt != id || v.Outcome.Receipt != id {
		t.Errorf("%+v %v", v, err)
	}
	if _, err := o.Prove(context.Background(), "r-none"); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	o.sign()
	was, err := audit.ReadCheckpoint(old)
	do(t, err)
	now, err := audit.ReadCheckpoint(o.Newest())
	do(t, err)
	proof, err := o.Consistency(t.Context(), was.Size, o.Newest())
	do(t, err)
	do(t, now.Extends(was, proof))
	if _, err := o.Consistency(t.Context(), now.Size+1, o.Newest()); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
}

// TestProvesUnderWhatIsKept checks that a receipt is proved under a kept checkpoint that includes it, first under one
// with cosignatures. Only if none includes it, a new one is signed, and the cosignatures of the one before must not be
// lost.
func TestProvesUnderWhatIsKept(t *testing.T) {
	o := newOffice(t)
	ctx := context.Background()
	early := call(t, o.log)
	key, err := o.Key(ctx)
	do(t, err)
	_, private, err := ed25519.GenerateKey(nil)
	do(t, err)
	cosigned, witness := cosign(t, o.sign(), "witness.example/w", private)
	do(t, o.Cosigned(ctx, cosigned))
	late := call(t, o.log)
	under := func(id bailey.ReceiptID, quorum int) {
		t.Helper()
		text, err := o.Prove(ctx, id)
		do(t, err)
		v, err := audit.VerifyReceipt(text, audit.Trust{Keys: []audit.Key{key}, Witnesses: []audit.Key{witness}, Quorum: quorum})
		if err != nil || v.Outcome.Receipt != id {
			t.Errorf("%+v %v", v, err)
		}
	}
	under(early, 1)
	if !bytes.Equal(o.kept, cosigned) {
		t.Error("it signed, and did not have to")
	}
	if _, err := o.Prove(ctx, "garbage"); !errors.Is(err, bailey.NotFound) || !strings.Contains(err.Error(), "no receipt garbage") || !bytes.Equal(o.kept, cosigned) {
		t.Error(err)
	}
	under(late, 0)
	if bytes.Equal(o.kept, cosigned) || !bytes.Equal(o.cosigned, cosigned) {
		t.Error("it had to sign another, and to keep what was cosigned")
	}
	newest := o.kept
	under(early, 1)
	do(t, o.log.Close())
	o.open(0)
	under(early, 1) // after a restart too
	under(late, 0)
	if !bytes.Equal(o.kept, newest) {
		t.Error("it signed again")
	}
	o.cosigned = newest[:len(newest)-7]
	do(t, o.log.Close())
	o.open(0)
	if _, err := o.Prove(ctx, early); !errors.Is(err, bailey.Conflict) || bailey.HintOf(err) == "" {
		t.Errorf("a checkpoint that was changed: %v", err)
	}
	o.cosigned = bytes.ReplaceAll(cosigned, []byte("bailey/castle/"), []byte("bailey/palace/"))
	do(t, o.log.Close())
	o.open(0)
	under(late, 0) // a checkpoint of a ledger that was moved aside has no effect
	o.cosigned = nil
	call(t, o.log)
	do(t, o.Notary.keepCheckpoint(cosigned))
	o.Notary.c.KeepCosigned = func([]byte) error { return bailey.Unavailable }
	if _, err := o.Sign(ctx); err == nil || !bytes.Equal(o.kept, cosigned) {
		t.Errorf("what could not be kept was dropped: %v", err)
	}
}

// TestCosignedIsKept checks that only the newest checkpoint is kept with cosignatures, and only as the log signed it.
func TestCosignedIsKept(t *testing.T) {
	o := newOffice(t)
	call(t, o.log)
	old := o.sign()
	call(t, o.log)
	signed := o.sign()
	_, private, err := ed25519.GenerateKey(nil)
	do(t, err)
	cosigned, _ := cosign(t, signed, "witness.example/w", private)
	if err := o.Cosigned(context.Background(), old); !errors.Is(err, bailey.Conflict) {
		t.Error(err)
	}
	if err := o.Cosigned(context.Background(), signed[:len(signed)-5]); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
	do(t, o.Cosigned(context.Background(), cosigned))
	if !bytes.Equal(o.kept, cosigned) || !bytes.Equal(o.sign(), cosigned) {
		t.Error("it was not kept")
	}
	_, private, err = ed25519.GenerateKey(nil)
	do(t, err)
	other, _ := cosign(t, signed, "witness.example/v", private)
	do(t, o.Cosigned(context.Background(), other)) // without the first cosignature
	do(t, o.Cosigned(context.Background(), signed))
	if n := bytes.Count(o.kept, []byte("witness.example/")); n != 2 {
		t.Errorf("%d cosignatures are kept, want both:\n%s", n, o.kept)
	}
}

// TestKeyFilesAreRefused checks that the log does not sign with a key that other users can read, with a link, or with
// another log's key.
func TestKeyFilesAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, file string){
		"mode":    func(t *testing.T, file string) { do(t, os.Chmod(file, 0o640)) },
		"dir":     func(t *testing.T, file string) { do(t, os.Chmod(filepath.Dir(file), 0o755)) },
		"link":    func(t *testing.T, file string) { do(t, os.Rename(file, file+"x")); do(t, os.Symlink(file+"x", file)) },
		"rubbish": func(t *testing.T, file string) { do(t, os.WriteFile(file, []byte("x"), 0o600)) },
		"long":    func(t *testing.T, file string) { do(t, os.WriteFile(file, make([]byte, 1<<20), 0o600)) },
		"another": func(t *testing.T, file string) {
			k := KeyFiles{Dir: filepath.Join(t.TempDir(), "k")}
			s, err := k.Make()
			do(t, err)
			b, err := os.ReadFile(filepath.Join(k.Dir, keyName(s.Public().(ed25519.PublicKey))))
			do(t, err)
			do(t, os.WriteFile(file, b, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			key, err := o.Key(context.Background())
			do(t, err)
			spoil(t, filepath.Join(o.keys.Dir, keyName(key.Public())))
			if signed, err := o.Sign(context.Background()); err == nil || signed != nil || bailey.HintOf(err) == "" {
				t.Errorf("%s: %v (%s)", signed, err, bailey.HintOf(err))
			}
		})
	}
}

// FuzzParseKey checks that no file causes a panic, and that a key that is accepted can sign.
func FuzzParseKey(f *testing.F) {
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB\n-----END PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		private, err := parseKey("key", text)
		if err == nil && !ed25519.Verify(private.Public().(ed25519.PublicKey), []byte("m"), ed25519.Sign(private, []byte("m"))) {
			t.Error("it signs nothing")
		}
	})
}

// TestSignedWhileItGrows checks that checkpoints can be signed and verified against the ledger while callers append,
// and that the checkpoints of two concurrent callers extend each other.
func TestSignedWhileItGrows(t *testing.T) {
	o := newOffice(t)
	key, err := o.Key(context.Background())
	do(t, err)
	stop := make(chan struct{})
	var callers, auditors sync.WaitGroup
	callers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				call(t, o.log)
			}
		}
	})
	for range 2 {
		auditors.Go(func() {
			var seen [][]byte
			for range 5 {
				signed, err := o.Sign(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				seen = append(seen, signed)
				r, err := ledger.VerifyAgainst(t.Context(), o.dir, audit.Check{Trust: audit.Trust{Keys: []audit.Key{key}}, Seen: seen})
				if err != nil || !r.OK || len(r.Held) != len(seen) {
					t.Errorf("%+v %v", r.FirstBad, err)
				}
			}
		})
	}
	auditors.Wait()
	close(stop)
	callers.Wait()
}

// brokenDisk fails each sync and truncation while it is broken.
type brokenDisk struct {
	ledger.Disk
	broken atomic.Bool
}

func (d *brokenDisk) Sync() error {
	if err := d.failure(); err != nil {
		return err
	}
	return d.Disk.Sync()
}

func (d *brokenDisk) Truncate(size int64) error {
	if err := d.failure(); err != nil {
		return err
	}
	return d.Disk.Truncate(size)
}

func (d *brokenDisk) failure() error {
	if d.broken.Load() {
		return syscall.EIO
	}
	return nil
}

// TestKeyStaysWhileNobodyKnows checks that if a change of key fails, its private half is kept and the log can still
// sign, because the change may be in the log all the same.
func TestKeyStaysWhileNobodyKnows(t *testing.T) {
	o := newOffice(t)
	o.sign()
	do(t, o.log.Close())
	disk := &brokenDisk{}
	o.log = open(t, ledger.Config{Dir: o.dir, Newest: o.kept, Wrap: func(d ledger.Disk) ledger.Disk { disk.Disk = d; return disk }})
	o.Notary = New(Config{Log: o.log, Keys: o.keys, Newest: o.kept, Keep: func(b []byte) error { o.kept = b; return nil }})
	disk.broken.Store(true)
	if _, err := o.Rotate(context.Background()); !errors.Is(err, bailey.Unavailable) {
		t.Fatal(err)
	}
	disk.broken.Store(false)
	do(t, o.log.Close())
	text, err := os.ReadFile(first(o.dir))
	do(t, err)
	if n := strings.Count(string(text), `"kind":"key"`); n != 2 {
		t.Fatalf("%d keys stand in the log; the case is none", n)
	}
	o.open(0)
	o.sign()
}
