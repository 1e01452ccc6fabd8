//go:build linux

package ledger

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/internal/receipts"
)

// Cases from docs/threat-model.md: the first line of each names the attack and the required result. TestThirtyCases
// parses it.

// kept returns a Check with a checkpoint of the ledger in dir as it is, signed by a test key, and with trust in that
// key.
func kept(t *testing.T, dir string) audit.Check {
	t.Helper()
	r := verified(t, dir)
	name := audit.Genesis{Origin: r.Origin, Host: r.Host}.Name()
	private := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	key, err := audit.LogKey(name, private.Public().(ed25519.PublicKey))
	do(t, err)
	text := audit.Checkpoint{Origin: name, Size: r.Entries, Root: r.Root}.Text()
	sig := append(binary.BigEndian.AppendUint32(nil, key.KeyHash()), ed25519.Sign(private, []byte(text))...)
	signed := fmt.Appendf(nil, "%s\n— %s %s\n", text, name, base64.StdEncoding.EncodeToString(sig))
	return audit.Check{Trust: audit.Trust{Keys: []audit.Key{key}}, Seen: [][]byte{signed}}
}

// held verifies the ledger in dir against a checkpoint. want is the expected reason; "": the ledger is valid.
func held(t *testing.T, dir string, c audit.Check, want audit.Reason) audit.Report {
	t.Helper()
	var files []io.Reader
	for _, name := range segmentsOf(t, dir) {
		files = append(files, strings.NewReader(content(name)))
	}
	r, err := c.Verify(files...)
	do(t, err)
	var got audit.Reason
	if r.FirstBad != nil {
		got = r.FirstBad.Reason
	}
	if got != want {
		t.Errorf("%v, want %q", r.FirstBad, want)
	}
	return r
}

// Case 3: a line is torn and more lines are appended after it; opening and verification must name it and drop nothing.
func TestTornThenAppended(t *testing.T) {
	for name, torn := range map[string]string{"half a line": `{"hash":"01234`, "a line without its end": "", "zeros": "\x00\x00\x00", "rubbish": "x"} {
		dir := place(t)
		l := open(t, Config{Dir: dir})
		call(t, l)
		call(t, l)
		do(t, l.Close())
		all := strings.SplitAfter(content(first(dir)), "\n")
		if torn == "" {
			torn = strings.TrimSuffix(all[2], "}\n")
		}
		all[2] = torn
		do(t, put(first(dir), strings.Join(all, "")))
		refused(t, dir, "damaged", "entry 3")
		if r, err := Verify(dir); err != nil || r.OK || r.FirstBad.Entry != 3 || r.FirstBad.Reason != audit.Frame {
			t.Errorf("%s: %v %v", name, r.FirstBad, err)
		}
	}
}

// Case 4: the tail is filled with zeros; opening must save them, cut them, record that, and lose no entry.
func TestZeroFilledTail(t *testing.T) {
	ktest.Long(t)
	for _, zeros := range []int{1, 4096, 65536, 1 << 20} {
		dir := place(t)
		l := open(t, Config{Dir: dir})
		call(t, l)
		do(t, l.Close())
		good := content(first(dir))
		do(t, put(first(dir), good+strings.Repeat("\x00", zeros)))
		if r, err := Verify(dir); err != nil || r.OK || r.FirstBad.Reason != audit.Torn || r.Entries != 3 {
			t.Errorf("%d zeros: %v %v", zeros, r.FirstBad, err)
		}
		do(t, open(t, Config{Dir: dir}).Close())
		repairs(t, dir, 1)
		if now := content(first(dir)); !strings.HasPrefix(now, good) || strings.Contains(now, "\x00") {
			t.Errorf("%d zeros: what was good is not what is left", zeros)
		}
		verified(t, dir)
	}
}

// Case 15: the tail is cut at a line end; the chain is valid, a kept checkpoint reports truncated, with the entry.
func TestTailCut(t *testing.T) {
	dir := place(t)
	rotated(t, dir, 5)
	c := kept(t, dir)
	names := segmentsOf(t, dir)
	last := names[len(names)-1]
	body := strings.TrimSuffix(content(last), "\n")
	do(t, put(last, body[:strings.LastIndexByte(body, '\n')+1]))
	r := verified(t, dir)
	if r = held(t, dir, c, audit.Truncated); r.FirstBad.Entry != r.Entries+1 {
		t.Errorf("%+v", r.FirstBad)
	}
	do(t, os.Remove(last)) // a whole segment
	verified(t, dir)
	held(t, dir, c, audit.Truncated)
}

// Case 16: the file is emptied or deleted; an empty one is refused, a checkpoint shows that a new ledger began.
func TestEmptiedOrDeleted(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	call(t, l)
	do(t, l.Close())
	c := kept(t, dir)
	do(t, put(first(dir), ""))
	refused(t, dir, "damaged", "entry 1")
	held(t, dir, c, audit.Truncated)
	do(t, os.Remove(first(dir)))
	held(t, dir, c, audit.Truncated)
	if r, err := Verify(dir); err != nil || r.OK || r.FirstBad.Reason != audit.Empty {
		t.Errorf("%v %v", r.FirstBad, err)
	}
	do(t, open(t, Config{Dir: dir}).Close())
	held(t, dir, c, audit.Replaced)
}

// Case 24: an entry has 5 MiB, or contains NUL, invalid UTF-8 or a newline; each must be refused or escaped.
func TestStrangeData(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	ctx := context.Background()
	if err := l.Note(ctx, "big", map[string]string{"x": strings.Repeat("x", 5<<20)}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("5 MiB: %v", err)
	}
	for name, raw := range map[string]string{"NUL": "{\"a\":\"\x00\"}", "newline": "{\"a\":\"\n\"}", "no UTF-8": "{\"a\":\"\xff\"}", "outside strings": "{\n\"a\":1}"} {
		in := intent()
		if _, err := newRequest(audit.KindIntent, []byte(raw)); err == nil {
			t.Errorf("%s is taken as it is", name)
		}
		in.Client = raw
		seal, err := l.Open(ctx, in)
		if err != nil {
			t.Fatalf("%s in a text: %v", name, err)
		}
		do(t, seal(outcomeOK()))
	}
	do(t, l.Close())
	if r := verified(t, dir); r.Intents != 4 || strings.Count(content(first(dir)), "\n") != int(r.Entries) || strings.Contains(content(first(dir)), "\x00") {
		t.Errorf("%+v", r)
	}
}

// Case 29: the disk is restored from a snapshot and then written again; a kept checkpoint reports truncated, then fork.
func TestDiskRestored(t *testing.T) {
	dir := place(t)
	rotated(t, dir, 3)
	snapshot := map[string]string{}
	for _, name := range segmentsOf(t, dir) {
		snapshot[name] = content(name)
	}
	rotated(t, dir, 4)
	c := kept(t, dir)
	for _, name := range segmentsOf(t, dir) {
		do(t, os.Remove(name))
	}
	for name, text := range snapshot {
		do(t, put(name, text))
	}
	held(t, dir, c, audit.Truncated)
	newest := kept(t, dir)
	held(t, dir, audit.Check{Trust: c.Trust, Newest: newest.Seen[0], Seen: c.Seen}, audit.Rollback)
	rotated(t, dir, 9)
	verified(t, dir)
	held(t, dir, c, audit.Forked)
}

// Case 30: the clock jumps ahead, a checkpoint is made, the clock jumps back; entries keep order, the step is counted.
func TestClockAcrossACheckpoint(t *testing.T) {
	dir := place(t)
	now := time.Date(2026, 11, 3, 9, 0, 0, 0, time.UTC)
	l := open(t, Config{Dir: dir, Segment: tiny, Now: func() time.Time { return now }})
	before := call(t, l)
	now = now.AddDate(5, 0, 0)
	call(t, l)
	c := kept(t, dir)
	now = now.AddDate(-5, 0, 0)
	after := call(t, l)
	list, err := l.Receipts(receipts.Filter{})
	if err != nil || len(list) != 3 || list[0].Intent.Receipt != after || list[2].Intent.Receipt != before {
		t.Errorf("%+v %v", list, err)
	}
	do(t, l.Close())
	if r := held(t, dir, c, ""); r.Backward != 1 || len(r.Held) != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, segmentFile(1))); err != nil {
		t.Error(err)
	}
}
