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

// outsider has a copy of the ledger and docs/verify.py, but neither Bailey nor the user's machine.
func (d *day) outsider() {
	d.u.kill(syscall.SIGTERM)
	ledger, err := os.ReadFile(filepath.Join(d.u.ledger(), "00000001.jsonl"))
	if err != nil {
		d.t.Fatal(err)
	}
	word, ok := verify(d.t, ledger)
	if own := d.u.must(d.u.home, "bailey", "audit", "verify", "--verbose"); !ok || !strings.Contains(word, " (0 open), head ") || !strings.HasPrefix(own, word) {
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

// keep gives the outsider the log's key and a checkpoint that the outsider's own witness cosigned, during the scenario.
func (d *day) keep() {
	d.log = strings.TrimSpace(d.u.must(d.u.home, "bailey", "audit", "key"))
	request := d.u.give("request", d.u.must(d.u.home, "bailey", "audit", "checkpoint", "--since", "0"))
	d.u.must(d.u.home, "mkdir", "-m", "700", "witness")
	witness := []string{"audit", "witness", "--name", "witness.example/day", "--key-file", "witness/key", "--seen", "witness/seen"}
	d.morning = d.u.must(d.u.home, "bailey", append(witness, "--key", d.log, request)...)
	d.witness = strings.TrimSpace(d.u.must(d.u.home, "bailey", append(witness, "--show")...))
}

// remembers verifies the final ledger against the early checkpoint. A ledger that was cut before the checkpoint, or
// replaced by the gateway, must be refused.
func (d *day) remembers(ledger []byte) {
	dir := d.t.TempDir()
	note, file := filepath.Join(dir, "morning"), filepath.Join(dir, "00000001.jsonl")
	lines := bytes.SplitAfter(ledger, []byte("\n"))
	for name, text := range map[string]string{note: d.morning, file: string(ledger)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	if word, ok := script(d.t, "--key", d.log, "--witness", d.witness, "--quorum", "1", "--seen", note, dir); !ok || !strings.Contains(word, "held: ") {
		d.t.Errorf("against the morning's checkpoint the outsider says %q", word)
	}
	receipt := filepath.Join(dir, "receipt")
	if err := os.WriteFile(receipt, []byte(d.u.must(d.u.home, "bailey", "audit", "prove", d.first)), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if word, ok := script(d.t, "--key", d.log, "--receipt", receipt); !ok || !strings.Contains(word, d.first) {
		d.t.Errorf("of the receipt %s by itself the outsider says %q", d.first, word)
	}
	if own := d.u.must(d.u.home, "bailey", "audit", "verify", "--verbose", "--key", d.log, "--against", d.u.give("morning", d.morning)); !strings.Contains(own, "that the key "+d.log+" signed") {
		d.t.Errorf("bailey says %q", own)
	}
	if err := os.WriteFile(file, bytes.Join(lines[:6], nil), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if word, ok := script(d.t, "--key", d.log, "--seen", note, dir); ok || !strings.HasPrefix(word, "no: truncated") {
		d.t.Errorf("the ledger was cut and the outsider says %q", word)
	}
}

// verify runs docs/verify.py on one segment.
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
	if code := cmd.ProcessState.ExitCode(); err != nil && code != 1 && code != 2 {
		t.Fatalf("verify.py: %v: %s", err, out)
	}
	return string(out), err == nil
}

// TestVerifyKnowsTheVectors checks the outsider's script on every test ledger of package audit, good and bad: two
// programs without shared code must agree.
func TestVerifyKnowsTheVectors(t *testing.T) {
	ktest.Long(t)
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

// TestVerifyKnowsTheSignedVectors checks the script on checkpoints, witnesses, key changes, segments and portable
// receipts, good and bad.
func TestVerifyKnowsTheSignedVectors(t *testing.T) {
	ktest.Long(t)
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
			copied(t, vectors+name, filepath.Join(dir, fmt.Sprintf("%08d.jsonl", i+1)))
		}
		if len(c.Ledger) == 0 { // emptied; without a ledger file the script reports nothing
			copied(t, os.DevNull, filepath.Join(dir, "00000001.jsonl"))
		}
		want := "no: " + c.Reason
		switch {
		case c.OK:
			want = "ok: "
		case c.Name == "no key": // the script then uses the key in the ledger, like bailey audit verify, and says so
			c.OK, want = true, "ok: "
		case c.Reason == "chain" || c.Reason == "segment" || c.Name == "a key that nobody signed":
			want = "no: entry " // the script describes the error in its own words
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

// TestVerifySeesEveryBit checks that the script refuses a receipt or a note with a flipped bit.
func TestVerifySeesEveryBit(t *testing.T) {
	ktest.Long(t)
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

func copied(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestVerifyAsks checks that if an argument is not a ledger, a note or a program, the script reports that at once and
// gives no verdict. If there are several notes, it must check the ledger against each.
func TestVerifyAsks(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "python3", "openssl")
	const vectors = "../../audit/testdata/signed/"
	var cases []struct {
		Name, Newest, Seen string
		Ledger, Keys       []string
		Witnesses          []string
	}
	read(t, vectors+"cases.json", &cases)
	dir, bad := t.TempDir(), t.TempDir()
	var first, other string
	var witnesses []string
	for _, c := range cases {
		switch c.Name {
		case "newest and old":
			for i, name := range c.Ledger {
				copied(t, vectors+name, filepath.Join(dir, fmt.Sprintf("%08d.jsonl", i+1)))
			}
			first, witnesses = c.Keys[0], c.Witnesses
		case "a checkpoint of another log":
			other = c.Keys[0]
		}
	}
	whole, err := os.ReadFile(filepath.Join(dir, "00000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	made := func(name, text string) string {
		if err := os.Mkdir(filepath.Join(bad, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bad, name, "00000001.jsonl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(bad, name)
	}
	if err := syscall.Mkfifo(filepath.Join(made("pipe", ""), "00000002.jsonl"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", filepath.Join(made("link", ""), "00000002.jsonl")); err != nil {
		t.Fatal(err)
	}
	zero := made("zero", string(whole))
	if err := os.WriteFile(filepath.Join(zero, "00000000.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	old, newest, forked := vectors+"old.note", vectors+"newest.note", vectors+"replaced-key.note"
	for i, c := range []struct {
		args []string
		ok   bool
		word string
	}{
		{[]string{"--key", first, "--seen", old, "--seen", newest, dir}, true, "old.note)\nheld: "},
		{[]string{"--key", first, "--seen", old, "--seen", forked, dir}, false, "no: signature: " + forked},
		{[]string{"--key", first, "--seen", forked, "--seen", old, dir}, false, "no: signature: " + forked},
		{[]string{"--seen", old, dir}, true, "not proved: no other source confirmed the log's key"},
		{[]string{"--key", first, dir}, true, "ok: "},
		{[]string{"--key", first, "--witness", witnesses[0], "--witness", witnesses[1], "--seen", newest, dir}, true, "2 witnesses"},
		{[]string{"--key", first, "--witness", witnesses[0], "--witness", witnesses[1], "--seen", old, dir}, false, "unwitnessed: " + old + ": 1 of the 2 witnesses that were named cosigned it, and 2 are wanted"},
		{[]string{"--key", first, "--witness", witnesses[0], "--witness", witnesses[1], "--quorum", "1", "--seen", old, dir}, true, "1 witnesses"},
		{[]string{zero}, false, "segment 1 is missing"},
		{[]string{"--key", other, dir}, false, "no: replaced: this ledger is bailey/castle/"},
		{[]string{"--key", first, "--seen", "/dev/zero", dir}, false, "/dev/zero cannot be read: it is no regular file"},
		{[]string{"--key", first, "--seen", "/dev/null", dir}, false, "signature: /dev/null: it is no checkpoint: it is empty"},
		{[]string{"--receipt", "/dev/zero"}, false, "it is no regular file"},
		{[]string{"--key", first, "--seen", old, dir + "x"}, false, "verify.py: there is no directory "},
		{[]string{"--key", first, "--seen", old, bad}, false, "it does not contain 00000001.jsonl"},
		{[]string{old}, false, "old.note is no directory"},
		{[]string{filepath.Join(bad, "pipe")}, false, "it is no regular file"},
		{[]string{filepath.Join(bad, "link")}, false, "cannot be read"},
		{[]string{made("crlf", strings.ReplaceAll(string(whole), "\n", "\r\n"))}, false, "no: entry 1 in 00000001.jsonl: the line ends in CR LF"},
		{[]string{made("blank", string(whole)+"\n")}, false, "the line is empty"},
		{[]string{made("zeros", string(whole)+strings.Repeat("\x00", 99999))}, false, "zero bytes stand behind the last entry"},
		{[]string{made("half", string(whole[:len(whole)-7]))}, false, "the last line has no newline"},
		{[]string{"--key", first, "--seen", old, made("emptied", "")}, false, "no: truncated: " + old + ": 5 entries were signed and none is left"},
	} {
		if word, ok := script(t, c.args...); ok != c.ok || !strings.Contains(word, c.word) {
			t.Errorf("%d %q: %q, want %q", i, c.args, word, c.word)
		}
	}
	cmd := exec.Command("python3", "-I", "../../docs/verify.py", "--key", first, "--seen", old, dir)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(python, "-c", "import sys; print(sys.executable)").Output(); err == nil {
		cmd.Path = strings.TrimSpace(string(out))
	}
	cmd.Env = []string{"PATH=" + bad}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "without the program openssl") || strings.Contains(string(out), "Traceback") {
		t.Errorf("without openssl: %s", out)
	}
}

// TestLedgerDocument runs the script on the ledger in docs/ledger.md, and follows the manual steps of that document.
func TestLedgerDocument(t *testing.T) {
	ktest.Long(t)
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
	run := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("by hand: %v", err)
		}
		return string(out)
	}
	if out := run("bash", "-e", "-c", block("bash")); out != block("text") {
		t.Errorf("by hand: %s", out)
	}
	receipt := filepath.Join(dir, "receipt")
	if err := os.WriteFile(receipt, []byte(block("receipt")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run("bash", "-e", "-c", block("sh")) + run("python3", "-I", "-c", block("python")); out != block("out") {
		t.Errorf("the receipt, by hand: %s", out)
	}
	if note, err := os.ReadFile(filepath.Join(dir, "checkpoint.of.receipt")); err != nil || string(note) != block("note") {
		t.Errorf("the receipt's checkpoint: %s %v", note, err)
	}
	log, _, _ := strings.Cut(strings.SplitAfter(block("bash"), "log=")[1], "\n")
	if word, good := script(t, "--key", log, "--receipt", receipt); !good || !strings.HasPrefix(word, "ok: receipt r-1 of bailey/castle/") {
		t.Errorf("of the document's own receipt the outsider says %q", word)
	}
	for _, change := range [][2]string{{`"outcome":"ok"`, `"outcome":"no"`}, {"\n3\nwbkk", "\n4\nwbkk"}, {"\nb7f0", "\nb7f1"}, {"entry 2\n", "entry 1\n"}} {
		if err := os.WriteFile(receipt, []byte(strings.Replace(block("receipt"), change[0], change[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("python3", "-I", "-c", block("python"))
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err == nil {
			t.Errorf("%q: the page says %s", change, out)
		}
	}
}
