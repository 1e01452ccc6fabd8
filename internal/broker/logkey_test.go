//go:build linux || darwin

package broker

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
)

func rootOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func checkpoint(origin string, size int, tree string) string {
	return fmt.Sprintf("%s\n%d\n%s\n", origin, size, rootOf(tree))
}

func (h *house) key() ed25519.PublicKey {
	h.t.Helper()
	public, err := h.client.MakeKey(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	return public
}

// signs checks that the broker gives a valid signature.
func (h *house) signs(public ed25519.PublicKey, text string) {
	h.t.Helper()
	if sig, err := h.client.SignLog(h.t.Context(), public, []byte(text)); err != nil || !ed25519.Verify(public, []byte(text), sig) {
		h.t.Errorf("%q: %v (%s)", text, err, bailey.HintOf(err))
	}
}

// unsigned checks that the broker gives no signature, an error with a reason and no line in the journal.
func (h *house) unsigned(what string, public ed25519.PublicKey, text string, kind bailey.Kind, says string) {
	h.t.Helper()
	before := strings.Count(h.journal(), `"event":"sign"`)
	sig, err := h.client.SignLog(h.t.Context(), public, []byte(text))
	if sig != nil || err == nil || bailey.KindOf(err) != kind || !strings.Contains(err.Error(), says) || bailey.HintOf(err) == "" {
		h.t.Errorf("%s: %x %v (%s)", what, sig, err, bailey.HintOf(err))
	}
	if strings.Count(h.journal(), `"event":"sign"`) != before {
		h.t.Errorf("%s: the journal says that it was signed", what)
	}
}

// TestLogKey checks that a key of the broker signs checkpoints of one log only, each at least as large as the one
// before, also after a restart. Only the broker may read its file.
func TestLogKey(t *testing.T) {
	h := newHouse(t, table())
	public := h.key()
	other := h.key()
	if list, err := h.client.Keys(t.Context()); err != nil || len(list) != 2 || public.Equal(other) {
		t.Errorf("%v %v", list, err)
	}
	if err := h.client.HasKey(t.Context(), public); err != nil {
		t.Error(err)
	}
	if err := h.client.HasKey(t.Context(), ada.key.Public().(ed25519.PublicKey)); !errors.Is(err, bailey.NotFound) || bailey.HintOf(err) == "" {
		t.Error(err)
	}
	h.signs(public, firstKeyText("log", public))
	h.signs(public, checkpoint("log", 3, "a"))
	refuse := func() {
		h.unsigned("a smaller size", public, checkpoint("log", 2, "a"), bailey.Conflict, "larger checkpoint")
		h.unsigned("a fork", public, checkpoint("log", 3, "b"), bailey.Conflict, "another tree of this size")
		h.unsigned("another origin", public, checkpoint("gol", 4, "a"), bailey.Conflict, "another log")
		h.unsigned("a first key again", public, firstKeyText("log", public), bailey.Conflict, "announced")
		h.signs(public, checkpoint("log", 3, "a")) // the same text again is permitted
	}
	refuse()
	h.end()
	h.start(false)
	refuse()
	h.signs(public, checkpoint("log", 4, "c"))
	h.signs(other, checkpoint("other", 1, "a")) // each key has its own state
	h.unsigned("a key of nobody", ada.key.Public().(ed25519.PublicKey), checkpoint("log", 9, "a"), bailey.NotFound, "has no key")
	h.unsigned("no key", nil, checkpoint("log", 9, "a"), bailey.NotFound, "has no key")
	for name, mode := range map[string]fs.FileMode{KeysName: 0o700, KeysName + "/" + hex.EncodeToString(public) + ".pem": 0o600} {
		if info, err := os.Lstat(filepath.Join(h.dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if strings.Contains(h.journal(), "PRIVATE") {
		t.Error("the journal has a key")
	}
}

// TestLogTexts checks that the broker signs only a checkpoint in its one encoding, or the text that announces this key
// as the first of a log.
func TestLogTexts(t *testing.T) {
	h := newHouse(t, table())
	public, root := h.key(), rootOf("a")
	next, err := audit.LogKey("log", h.key())
	if err != nil {
		t.Fatal(err)
	}
	mine, _ := audit.LogKey("log", public)
	witness, _ := audit.WitnessKey("log", public)
	for name, text := range map[string]string{
		"nothing": "", "a word": "x", "two lines": "log\n1\n", "four": "log\n1\n" + root + "\nmore\n", "no end": "log\n1\n" + root, "a note": "log\n1\n" + root + "\n\n— log AAAA\n",
		"no origin": "\n1\n" + root + "\n", "a space": "a log\n1\n" + root + "\n", "a plus": "a+b\n1\n" + root + "\n", "a long origin": strings.Repeat("l", maxOrigin+1) + "\n1\n" + root + "\n",
		"a size with a nought": "log\n01\n" + root + "\n", "a signed size": "log\n+1\n" + root + "\n", "below nothing": "log\n-1\n" + root + "\n", "a huge size": "log\n2305843009213693953\n" + root + "\n",
		"a short root": "log\n1\nAAAA\n", "another encoding of a root": "log\n1\n" + strings.TrimSuffix(root, "=") + "\n", "bits that count for nothing": "log\n1\n" + strings.Repeat("A", 42) + "B=\n",
		"carriage returns": "log\r\n1\r\n" + root + "\r\n", "a cosignature": "cosignature/v1\ntime 1\nlog\n1\n" + root + "\n",
		"the word of another key":   firstKey + next.String() + "\n",
		"the word of a witness":     firstKey + witness.String() + "\n",
		"the word without its end":  strings.TrimSuffix(firstKeyText("log", public), "\n"),
		"the word and more":         firstKeyText("log", public) + "x\n",
		"a key after this one":      "bailey.audit/key/v1\n" + mine.String() + "\n" + next.String() + "\n",
		"the beginning of the word": firstKey,
	} {
		h.unsigned(name, public, text, bailey.Denied, "neither")
	}
	if want := firstKey + mine.String() + "\n"; firstKeyText("log", public) != want {
		t.Errorf("%q, audit has %q", firstKeyText("log", public), want)
	}
	h.signs(public, checkpoint("log", 0, ""))
}

// FuzzLogText checks that the broker accepts exactly the texts that package audit accepts.
func FuzzLogText(f *testing.F) {
	public := ada.key.Public().(ed25519.PublicKey)
	f.Add(checkpoint("log", 7, "a"))
	f.Add(checkpoint("bailey/host/0123", 0, ""))
	f.Add(firstKeyText("log", public))
	f.Add("log\n1\n" + strings.Repeat("A", 42) + "B=\n")
	f.Add("log\n2305843009213693952\n" + rootOf("a") + "\n")
	f.Add("bailey.audit/key/v1\n1\n" + rootOf("a") + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := readLogText(text, public)
		c, err := audit.ParseCheckpoint(text)
		if word, is := strings.CutPrefix(text, firstKey); is {
			k, kerr := audit.ParseKey(strings.TrimSuffix(word, "\n"))
			if want := kerr == nil && strings.HasSuffix(word, "\n") && !k.Witness() && k.Public().Equal(public); ok != want || ok && (k.Name() != got.origin || got.root != "") || err == nil {
				t.Errorf("%q: %v %v, audit has %v %v", text, got, ok, k, kerr)
			}
			return
		}
		if ok != (err == nil) || ok && (got.origin != c.Origin || got.size != c.Size || got.root != base64.StdEncoding.EncodeToString(c.Root[:])) {
			t.Errorf("%q: %v %v, audit has %v %v", text, got, ok, c, err)
		}
	})
}

// TestLogKeyIsOfItsUID checks that a uid that is not admitted gets no key and no signature. The same must hold for a
// uid that did not create the key, or is not admitted any more.
func TestLogKeyIsOfItsUID(t *testing.T) {
	h := newHouse(t, table())
	public := h.key()
	h.signs(public, checkpoint("log", 3, "a"))
	none := strings.Replace(table(), fmt.Sprintf("admitted: [%d]", os.Geteuid()), "admitted: []", 1)
	h.reapply(none)
	if _, err := h.client.MakeKey(t.Context()); !errors.Is(err, bailey.Denied) {
		t.Error(err)
	}
	if _, err := h.client.Keys(t.Context()); !errors.Is(err, bailey.Denied) {
		t.Error(err)
	}
	h.unsigned("not admitted", public, checkpoint("log", 4, "a"), bailey.Denied, "is not admitted")
	h.reapply(table())
	h.end()
	journal := filepath.Join(h.dir, journalName)
	// another uid created it
	text := strings.ReplaceAll(h.journal(), fmt.Sprintf(`"uid":%d`, os.Geteuid()), `"uid":61236`)
	if err := os.WriteFile(journal, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h.start(false)
	h.unsigned("another's", public, checkpoint("log", 4, "a"), bailey.NotFound, "has no key")
	if list, err := h.client.Keys(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

// TestLogKeyAcrossKills checks that a signature that may have been sent is remembered, at whatever step the broker is
// killed. Afterwards a fork of that size must get no signature, and the same text must get one.
func TestLogKeyAcrossKills(t *testing.T) {
	for step, want := range map[string]struct{ left, fork bool }{
		"write": {false, true}, // nothing is on the disk, and nothing was sent
		"sync":  {false, false}, "send": {false, false}, "sent": {true, false},
	} {
		t.Run(step, func(t *testing.T) {
			h := newHouse(t, table())
			public := h.key()
			h.signs(public, checkpoint("log", 2, "a"))
			h.end()
			cmd := child(t, h.dir, step, nil)
			sig, err := h.client.SignLog(t.Context(), public, []byte(checkpoint("log", 3, "a")))
			giveUp := time.AfterFunc(20*time.Second, func() { cmd.Process.Signal(syscall.SIGTERM) })
			defer giveUp.Stop()
			if werr := cmd.Wait(); werr == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("it was to be killed: %v", werr)
			}
			if (err == nil) != want.left {
				t.Errorf("killed at %s: %x %v", step, sig, err)
			}
			child(t, h.dir, "", nil)
			h.unsigned("a smaller size", public, checkpoint("log", 1, "a"), bailey.Conflict, "larger")
			if want.fork {
				h.signs(public, checkpoint("log", 3, "b"))
				return
			}
			h.unsigned("a fork", public, checkpoint("log", 3, "b"), bailey.Conflict, "another tree")
			h.signs(public, checkpoint("log", 3, "a"))
		})
	}
}

// TestLogKeyJournal checks that a journal with inconsistent lines about keys is refused completely, and that if the
// journal cannot be written, nothing is signed.
func TestLogKeyJournal(t *testing.T) {
	h := newHouse(t, table())
	public := h.key()
	h.signs(public, checkpoint("log", 3, "a"))
	name, uid := hex.EncodeToString(public), os.Geteuid()
	h.end()
	whole := h.journal()
	line := func(kind, key, origin string, size int, root string) string {
		return fmt.Sprintf(`{"at":"2026-01-01T00:00:00Z","event":"%s","key":"%s","origin":"%s","size":%d,"root":"%s","uid":%d}`+"\n", kind, key, origin, size, root, uid)
	}
	for what, bad := range map[string]string{
		"a smaller size": line("sign", name, "log", 2, rootOf("a")), "a fork": line("sign", name, "log", 3, rootOf("b")), "another log": line("sign", name, "gol", 4, rootOf("a")),
		"a key twice": line("key", name, "", 0, ""), "an unknown key": line("sign", strings.Repeat("0", 64), "log", 4, rootOf("a")), "no root": line("sign", name, "log", 4, ""),
		"an odd root": line("sign", name, "log", 4, "AAAA"), "a key of no form": line("key", "x", "", 0, ""), "a size elsewhere": `{"event":"end","size":1}` + "\n",
		"nobody's": `{"event":"key","key":"` + strings.Repeat("0", 64) + `"}` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(h.dir, journalName), []byte(whole+bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := New(h.config); !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
			if err == nil {
				s.Close()
			}
		}
	}
	if err := os.WriteFile(filepath.Join(h.dir, journalName), []byte(whole), 0o600); err != nil {
		t.Fatal(err)
	}
	h.start(false)
	h.s.journal.f.Close()
	if sig, err := h.client.SignLog(t.Context(), public, []byte(checkpoint("log", 4, "a"))); sig != nil || !errors.Is(err, bailey.Unavailable) {
		t.Errorf("%x %v", sig, err)
	}
}

// TestHostileKeys checks that nothing is signed if other users could have created, accessed or replaced the file or
// directory of a key. The error must not contain the key.
func TestHostileKeys(t *testing.T) {
	for what, spoil := range map[string]func(dir, file, other string) error{
		"wide directory":      func(dir, _, _ string) error { return os.Chmod(dir, 0o750) },
		"wide file":           func(_, file, _ string) error { return os.Chmod(file, 0o640) },
		"a link":              func(_, file, _ string) error { return relink(file) },
		"the directory's too": func(dir, _, _ string) error { return relink(dir) },
		"a pipe":              func(_, file, _ string) error { os.Remove(file); return syscall.Mkfifo(file, 0o600) },
		"gone":                func(_, file, _ string) error { return os.Remove(file) },
		"exchanged":           func(_, file, other string) error { return os.Rename(other, file) },
		"no key":              func(_, file, _ string) error { return os.WriteFile(file, []byte("secret\n"), 0o600) },
		"long":                func(_, file, _ string) error { return os.Truncate(file, maxPEM+1) },
	} {
		h := newHouse(t, table())
		public, other := h.key(), h.key()
		dir := filepath.Join(h.dir, KeysName)
		file := func(k ed25519.PublicKey) string { return filepath.Join(dir, hex.EncodeToString(k)+".pem") }
		if err := spoil(dir, file(public), file(other)); err != nil {
			t.Fatal(err)
		}
		sig, err := h.client.SignLog(t.Context(), public, []byte(checkpoint("log", 1, "a")))
		if sig != nil || err == nil || bailey.HintOf(err) == "" || strings.Contains(err.Error(), "secret") || bailey.KindOf(err) == bailey.Internal {
			t.Errorf("%s: %x %v (%s)", what, sig, err, bailey.HintOf(err))
		}
		h.end()
	}
}

// TestManyKeys checks that a uid can have at most maxKeys keys.
func TestManyKeys(t *testing.T) {
	ktest.Long(t)
	h := newHouse(t, table())
	for range maxKeys {
		h.key()
	}
	if _, err := h.client.MakeKey(t.Context()); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" {
		t.Error(err)
	}
}
