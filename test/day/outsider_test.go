//go:build linux

package day

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
	if own := d.u.must(d.u.home, "bailey", "audit", "verify"); !ok || !strings.Contains(word, " (0 open), head ") || !strings.HasPrefix(own, word) {
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
	d.remembers(ledger)
	if bytes.Contains(ledger, []byte(keyBody)) {
		d.t.Error("the ledger holds the key")
	}
	d.t.Logf("%s%d attempts at the history, %d results lost with a gateway", word, d.attempt, len(d.lost))
}

// keep has the outsider given the log's key and a checkpoint, while the day goes on.
func (d *day) keep() {
	d.log = strings.TrimSpace(d.u.must(d.u.home, "bailey", "audit", "key"))
	d.morning = d.u.must(d.u.home, "bailey", "audit", "checkpoint")
}

// remembers holds the evening's ledger against the morning's checkpoint, and a ledger that was cut before it, or whose gateway
// put another in its place.
func (d *day) remembers(ledger []byte) {
	dir := d.t.TempDir()
	note, file := filepath.Join(dir, "morning"), filepath.Join(dir, "00000001.jsonl")
	lines := bytes.SplitAfter(ledger, []byte("\n"))
	for name, text := range map[string]string{note: d.morning, file: string(ledger)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	if word, ok := script(d.t, "--key", d.log, "--seen", note, dir); !ok || !strings.Contains(word, "held: ") {
		d.t.Errorf("against the morning's checkpoint the outsider says %q", word)
	}
	if own := d.u.must(d.u.home, "bailey", "audit", "verify", "--key", d.log, "--against", d.u.give("morning", d.morning)); !strings.Contains(own, "that the key "+d.log+" signed") {
		d.t.Errorf("bailey says %q", own)
	}
	if err := os.WriteFile(file, bytes.Join(lines[:6], nil), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if word, ok := script(d.t, "--key", d.log, "--seen", note, dir); ok || !strings.HasPrefix(word, "no: truncated") {
		d.t.Errorf("the ledger was cut and the outsider says %q", word)
	}
}

// verify runs docs/verify.py over one segment.
func verify(t *testing.T, ledger []byte) (string, bool) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "00000001.jsonl"), ledger, 0o600); err != nil {
		t.Fatal(err)
	}
	return script(t, dir)
}

// script runs docs/verify.py, isolated from Python's environment.
func script(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.Command("python3", append([]string{"-I", "../../docs/verify.py"}, args...)...)
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

// TestVerifyKnowsTheSignedVectors holds the script against checkpoints, witnesses, changes of key, segments and
// portable receipts, good and bad.
func TestVerifyKnowsTheSignedVectors(t *testing.T) {
	ktest.Require(t, "python3", "openssl")
	const vectors = "../../audit/testdata/signed/"
	var cases []struct {
		Name, Receipt, Newest, Seen string
		Ledger, Keys, Witnesses     []string
		Quorum                      int
		OK                          bool
		Reason                      string
	}
	read(t, vectors+"cases.json", &cases)
	for _, c := range cases {
		args := []string{"--quorum", strconv.Itoa(c.Quorum)}
		for flag, list := range map[string][]string{"--key": c.Keys, "--witness": c.Witnesses} {
			for _, text := range list {
				args = append(args, flag, text)
			}
		}
		for flag, name := range map[string]string{"--newest": c.Newest, "--seen": c.Seen, "--receipt": c.Receipt} {
			if name != "" {
				args = append(args, flag, vectors+name)
			}
		}
		dir := t.TempDir()
		for i, name := range c.Ledger {
			if err := os.Symlink(filepath.Join(cwd(t), vectors, name), filepath.Join(dir, fmt.Sprintf("%08d.jsonl", i+1))); err != nil {
				t.Fatal(err)
			}
		}
		want := "no: " + c.Reason
		switch {
		case c.OK:
			want = "ok: "
		case c.Reason == "chain" || c.Reason == "segment" || c.Reason == "key":
			want = "no: entry " // what is wrong with it the script says in its own words
		}
		if word, ok := script(t, append(args, dir)...); ok != c.OK || !strings.HasPrefix(word, want) {
			t.Errorf("%s: it says %q, want %q", c.Name, word, want)
		}
	}
	if len(cases) < 20 {
		t.Errorf("%d cases", len(cases))
	}
	var commitments []struct{ Salt, Body, Commitment string }
	read(t, vectors+"commitments.json", &commitments)
	for _, c := range commitments {
		body := filepath.Join(t.TempDir(), "body")
		if err := os.WriteFile(body, []byte(c.Body), 0o600); err != nil {
			t.Fatal(err)
		}
		if word, ok := script(t, "--salt", c.Salt, "--body", body); !ok || word != c.Commitment+"\n" {
			t.Errorf("of %q it says %q", c.Body, word)
		}
	}
}

// TestVerifySeesEveryBit flips bits of a receipt and of the notes, and the script wants none of them.
func TestVerifySeesEveryBit(t *testing.T) {
	ktest.Require(t, "python3", "openssl")
	const vectors = "../../audit/testdata/signed/"
	receipt, err := os.ReadFile(vectors + "r-2.receipt")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name            string
		Keys, Witnesses []string
	}
	read(t, vectors+"cases.json", &cases)
	var args []string
	for _, c := range cases {
		if c.Name == "receipt" {
			args = []string{"--key", c.Keys[0], "--witness", c.Witnesses[0], "--witness", c.Witnesses[1], "--quorum", "2", "--receipt"}
		}
	}
	flipped := filepath.Join(t.TempDir(), "receipt")
	for at := 0; at <= len(receipt); at += 197 {
		bad := bytes.Clone(receipt)
		if at > 0 {
			bad[at] ^= 1
		}
		if err := os.WriteFile(flipped, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if word, ok := script(t, append(args, flipped)...); ok != (at == 0) {
			t.Errorf("byte %d: %s", at, word)
		}
	}
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func cwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestLedgerDocument gives the outsider the ledger that docs/ledger.md shows, and goes through its steps by hand.
func TestLedgerDocument(t *testing.T) {
	ktest.Require(t, "python3", "openssl")
	text, err := os.ReadFile("../../docs/ledger.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string) string {
		_, after, _ := strings.Cut(string(text), "```"+kind+"\n")
		shown, _, ok := strings.Cut(after, "```\n")
		if !ok {
			t.Fatalf("the document shows no %s", kind)
		}
		return shown
	}
	if word, good := verify(t, []byte(block("jsonl"))); !good || !strings.HasPrefix(word, "ok: 3 entries, 1 calls (0 open), head ") {
		t.Errorf("of the document's own example the outsider says %q", word)
	}
	dir := t.TempDir()
	for name, data := range map[string]string{"00000001.jsonl": block("jsonl"), "checkpoint": block("note")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "-e", "-c", block("bash"))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != block("text") {
		t.Errorf("by hand: %v\n%s", err, out)
	}
}
