//go:build linux

package day

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"bailey/internal/ktest"
)

// outsider has a copy of the ledger and docs/verify.py, and neither Bailey nor the user's machine.
func (d *day) outsider() {
	d.u.kill(syscall.SIGTERM)
	ledger, err := os.ReadFile(filepath.Join(d.u.ledger(), "00000001.jsonl"))
	if err != nil {
		d.t.Fatal(err)
	}
	word, ok := verify(d.t, ledger)
	if own := d.u.must(d.u.home, "bailey", "audit", "verify"); !ok || !strings.Contains(word, " (0 open), head ") || word != own {
		d.t.Errorf("the outsider says %q, bailey says %q", word, own)
	}
	for _, at := range []int{0, 40, len(ledger) / 3, len(ledger) / 2, len(ledger) - 3} {
		flipped := bytes.Clone(ledger)
		flipped[at] ^= 1
		if word, ok := verify(d.t, flipped); ok || !strings.HasPrefix(word, "no: entry ") {
			d.t.Errorf("byte %d was flipped and the outsider says %q", at, word)
		}
	}
	lines := bytes.SplitAfter(ledger, []byte("\n"))
	gap := bytes.Join(append(append([][]byte(nil), lines[:4]...), lines[5:]...), nil)
	if word, ok := verify(d.t, gap); ok || !strings.HasPrefix(word, "no: entry 5 ") {
		d.t.Errorf("entry 5 was taken out and the outsider says %q", word)
	}
	if bytes.Contains(ledger, []byte(keyBody)) {
		d.t.Error("the ledger holds the key")
	}
	d.t.Logf("%s%d attempts at the history, %d results lost with a gateway", word, d.attempt, len(d.lost))
}

// verify runs docs/verify.py over one segment, isolated from Python's environment.
func verify(t *testing.T, ledger []byte) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), ledger, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "-I", "../../docs/verify.py", dir)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("verify.py: %v: %s", err, out)
	}
	return string(out), err == nil
}

// TestVerifyKnowsTheVectors holds the outsider's script against every ledger, good and bad, that the
// format's own package knows: two programs that share no code and one judgement.
func TestVerifyKnowsTheVectors(t *testing.T) {
	ktest.Require(t, "python3")
	const vectors = "../../audit/testdata"
	text, err := os.ReadFile(filepath.Join(vectors, "vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		File    string
		OK      bool
		Entries int
		Entry   int
		Reason  string

		Recomputed, Redacted int
	}
	if err := json.Unmarshal(text, &list); err != nil || len(list) < 50 {
		t.Fatalf("%d vectors: %v", len(list), err)
	}
	for _, v := range list {
		ledger, err := os.ReadFile(filepath.Join(vectors, v.File))
		if err != nil {
			t.Fatal(err)
		}
		word, ok := verify(t, ledger)
		want := fmt.Sprintf("no: entry %d ", v.Entry)
		if v.OK {
			want = fmt.Sprintf("ok: %d entries", v.Entries)
		}
		if plans := fmt.Sprintf("\nplans: %d recomputed, %d redacted\n", v.Recomputed, v.Redacted); v.OK && !strings.HasSuffix(word, plans) {
			t.Errorf("%s: it says %q, want %q", v.File, word, plans)
		}
		if ok != v.OK || !strings.HasPrefix(word, want) {
			t.Errorf("%s (%s): it says %q, want %q", v.File, v.Reason, word, want)
		}
	}
}

// TestLedgerDocument gives the outsider the ledger that docs/ledger.md shows.
func TestLedgerDocument(t *testing.T) {
	ktest.Require(t, "python3")
	text, err := os.ReadFile("../../docs/ledger.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```jsonl\n")
	shown, _, ok := strings.Cut(after, "```\n")
	if word, good := verify(t, []byte(shown)); !ok || !good || !strings.HasPrefix(word, "ok: 3 entries, 1 calls (0 open), head ") {
		t.Errorf("of the document's own example the outsider says %q", word)
	}
}
