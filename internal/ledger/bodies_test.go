//go:build linux

package ledger

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/receipts"
)

// bodied makes a call with this input and output, and returns its receipt from the ledger.
func bodied(t *testing.T, l *Log, input, output string) bailey.Receipt {
	t.Helper()
	in := intent()
	in.InputBytes, in.InputBody = len(input), &bailey.Body{Bytes: []byte(input)}
	seal, err := l.Open(context.Background(), in)
	do(t, err)
	do(t, seal(bailey.Outcome{Status: bailey.OK, StdoutBody: &bailey.Body{Bytes: []byte(output)}}))
	list, err := l.Receipts(receipts.Filter{ID: in.Receipt})
	if err != nil || len(list) != 1 || list[0].Outcome == nil {
		t.Fatalf("%v %v", list, err)
	}
	return list[0].Receipt
}

func blob(dir string, r bailey.Receipt, part string) string {
	return filepath.Join(dir, "blobs", string(r.Intent.Receipt)+"."+part)
}

func TestBodies(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	r := bodied(t, l, "the long input", "what the tool wrote")
	for part, want := range map[string]string{receipts.InputPart: "the long input", receipts.StdoutPart: "what the tool wrote"} {
		said := r.Intent.InputBody
		if part == receipts.StdoutPart {
			said = r.Outcome.StdoutBody
		}
		if said == nil || said.Length != len(want) || len(said.Commitment) != 64 || said.State != "" {
			t.Fatalf("%s: %+v", part, said)
		}
		if body, err := l.Body(r.Intent.Receipt, part, *said); err != nil || string(body) != want {
			t.Errorf("%s: %q %v", part, body, err)
		}
		if st, err := os.Lstat(blob(dir, r, part)); err != nil || st.Mode() != 0o600 || st.Size() != int64(32+len(want)) {
			t.Errorf("%s: %v %v", part, st, err)
		}
	}
	if st, err := os.Stat(dir + "/blobs"); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if text := content(first(dir)); strings.Contains(text, "the long input") || strings.Contains(text, "tool wrote") {
		t.Error("a body stands in the ledger")
	}
	other := bodied(t, l, "the long input", "what the tool wrote")
	if other.Intent.InputBody.Commitment == r.Intent.InputBody.Commitment {
		t.Error("equal bodies are seen to be equal")
	}
	verified(t, dir)
}

// TestBodiesAreHeldAgainstTheLedger checks that a body is shown only if it matches its commitment and is a private file
// of the ledger.
func TestBodiesAreHeldAgainstTheLedger(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	for name, c := range map[string]struct {
		spoil func(t *testing.T, file string)
		says  string
	}{
		"changed":   {func(t *testing.T, f string) { do(t, put(f, content(f)+"x")) }, "changed"},
		"other":     {func(t *testing.T, f string) { do(t, put(f, "y"+content(f)[1:])) }, "changed"},
		"truncated": {func(t *testing.T, f string) { do(t, put(f, content(f)[:9])) }, "truncated"},
		"gone":      {func(t *testing.T, f string) { do(t, os.Remove(f)) }, "30 days"},
		"symlink":   {func(t *testing.T, f string) { do(t, os.Rename(f, f+"2")); do(t, os.Symlink(f+"2", f)) }, "refused"},
		"hard link": {func(t *testing.T, f string) { do(t, os.Link(f, f+"2")) }, "refused"},
		"wider":     {func(t *testing.T, f string) { do(t, os.Chmod(f, 0o644)) }, "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			r := bodied(t, l, "input", "output")
			c.spoil(t, blob(dir, r, receipts.StdoutPart))
			body, err := l.Body(r.Intent.Receipt, receipts.StdoutPart, *r.Outcome.StdoutBody)
			if !errors.Is(err, bailey.NotFound) || body != nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q %v", body, err)
			}
		})
	}
	for _, id := range []bailey.ReceiptID{"", "../x", "a/b", "x\x00"} {
		if _, err := l.Body(id, receipts.StdoutPart, bailey.Body{}); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%q: %v", id, err)
		}
		if _, err := l.Forget(context.Background(), receipts.Forgotten{Receipt: id}); !errors.Is(err, bailey.Invalid) {
			t.Errorf("forget %q: %v", id, err)
		}
	}
}

// TestBodyNotStored checks that if a body cannot be stored, the outcome says so and the call still gets its receipt.
func TestBodyNotStored(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	l.bodies.spare = 1 << 62 // more than the disk has
	r := bodied(t, l, "input", "output")
	if b := r.Outcome.StdoutBody; b == nil || b.State != bailey.NotStored || b.Length != 6 || b.Commitment != "" {
		t.Errorf("%+v", b)
	}
	if b := r.Outcome.InputBody; b == nil || b.State != bailey.NotStored {
		t.Errorf("%+v", b)
	}
	if _, err := l.Body(r.Intent.Receipt, receipts.StdoutPart, *r.Outcome.StdoutBody); !errors.Is(err, bailey.NotFound) || !strings.Contains(err.Error(), "not stored") {
		t.Error(err)
	}
	if names, err := l.bodies.dir.List(); err != nil || len(names) != 0 {
		t.Errorf("%v %v", names, err)
	}
	l.bodies.spare = 1
	big := bodied(t, l, strings.Repeat("x", 2*bailey.OutputCap+1), "y")
	if b := big.Outcome.InputBody; b == nil || b.State != bailey.NotStored {
		t.Errorf("%+v", b)
	}
	verified(t, dir)
}

// TestBodiesOfNobody checks that a refused intent leaves no body.
func TestBodiesOfNobody(t *testing.T) {
	dir, disk := place(t), &faulty{}
	l := open(t, Config{Dir: dir, Wrap: func(d Disk) Disk { disk.Disk = d; return disk }})
	disk.set(func() { disk.free = func() (uint64, error) { return 0, nil } })
	in := intent()
	in.InputBody = &bailey.Body{Bytes: []byte("input")}
	if _, err := l.Open(context.Background(), in); err == nil {
		t.Fatal("it is taken")
	}
	if parts := l.bodies.existingParts(in.Receipt); len(parts) != 0 {
		t.Errorf("%v is left", parts)
	}
}

func TestForgetBodies(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	r, stays := bodied(t, l, "input", "output"), bodied(t, l, "input", "output")
	f, err := l.Forget(context.Background(), receipts.Forgotten{Receipt: r.Intent.Receipt, Operator: "terminal"})
	if err != nil || strings.Join(f.Parts, " ") != "input stdout" {
		t.Fatalf("%+v %v", f, err)
	}
	if !strings.Contains(content(first(dir)), `"kind":"forget","data":{"receipt":"`+string(r.Intent.Receipt)+`","parts":["input","stdout"],"operator":"terminal"}`) {
		t.Error("the ledger does not say so")
	}
	if content(blob(dir, r, receipts.InputPart)) != "" || content(blob(dir, r, receipts.StdoutPart)) != "" {
		t.Error("they are there")
	}
	if _, err := l.Body(r.Intent.Receipt, receipts.InputPart, *r.Intent.InputBody); err == nil || !strings.Contains(err.Error(), "it was deleted") {
		t.Error(err)
	}
	if _, err := l.Forget(context.Background(), receipts.Forgotten{Receipt: r.Intent.Receipt}); !errors.Is(err, bailey.NotFound) {
		t.Errorf("twice: %v", err)
	}
	if _, err := l.Body(stays.Intent.Receipt, receipts.InputPart, *stays.Intent.InputBody); err != nil {
		t.Error(err)
	}
	do(t, l.Close())
	// A crash came between the mark and the removal.
	do(t, put(blob(dir, r, receipts.InputPart), strings.Repeat("x", 40)))
	l = open(t, Config{Dir: dir})
	do(t, l.bodies.removeExpired())
	if content(blob(dir, r, receipts.InputPart)) != "" || content(blob(dir, stays, receipts.InputPart)) == "" {
		t.Error("the next start does not end what was begun, or more")
	}
	verified(t, dir)
}

// TestBodiesAreSwept checks that bodies are removed after their time, even if no receipt names them, and that files
// with other names stay.
func TestBodiesAreSwept(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	old, young := bodied(t, l, "input", "output"), bodied(t, l, "input", "output")
	do(t, l.Close())
	long := time.Now().Add(-retention - time.Minute)
	orphan, foreign := dir+"/blobs/r-nobody.stdout", dir+"/blobs/notes.txt"
	do(t, put(orphan, "x"))
	do(t, put(foreign, "x"))
	for _, name := range []string{blob(dir, old, receipts.InputPart), blob(dir, old, receipts.StdoutPart), orphan, foreign} {
		do(t, os.Chtimes(name, long, long))
	}
	target := filepath.Join(t.TempDir(), "target")
	do(t, put(target, "x"))
	link := dir + "/blobs/r-link.stdout"
	do(t, os.Symlink(target, link))
	l = open(t, Config{Dir: dir, Now: func() time.Time { return time.Now().Add(time.Hour) }})
	do(t, l.bodies.removeExpired())
	for name, there := range map[string]bool{blob(dir, old, receipts.InputPart): false, blob(dir, old, receipts.StdoutPart): false, orphan: false,
		foreign: true, blob(dir, young, receipts.InputPart): true, target: true} {
		if (content(name) != "") != there {
			t.Errorf("%s: there %v", name, !there)
		}
	}
	if _, err := l.Body(old.Intent.Receipt, receipts.InputPart, *old.Intent.InputBody); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	verified(t, dir)
}

// TestAttackBodiesFillTheDisk checks that the bodies of one day stay within the daily limit, at the cost of that day's
// oldest. All bodies together must stay within their limit, at the cost of the oldest of all. Receipts must verify
// without bodies.
func TestAttackBodiesFillTheDisk(t *testing.T) {
	dir := place(t)
	const kib = 1 << 10
	l := open(t, Config{Dir: dir, DailyBodies: 100 * kib, AllBodies: 150 * kib})
	output := strings.Repeat("x", 10*kib)
	var before []bailey.Receipt
	for range 5 {
		before = append(before, bodied(t, l, "in", output))
	}
	do(t, l.Close())
	yesterday := time.Now().Add(-24 * time.Hour)
	for _, r := range before {
		do(t, os.Chtimes(blob(dir, r, receipts.StdoutPart), yesterday, yesterday))
	}
	l = open(t, Config{Dir: dir, DailyBodies: 100 * kib, AllBodies: 150 * kib})
	sizes := func() (all int64, there func(bailey.Receipt) bool) {
		list, err := os.ReadDir(dir + "/blobs")
		do(t, err)
		for _, e := range list {
			if st, err := e.Info(); err == nil {
				all += st.Size()
			}
		}
		return all, func(r bailey.Receipt) bool { _, err := os.Lstat(blob(dir, r, receipts.StdoutPart)); return err == nil }
	}
	var last bailey.Receipt
	flood := func(n int) {
		for range n {
			last = bodied(t, l, "in", output)
			time.Sleep(2 * time.Millisecond) // otherwise files have the same age
		}
	}
	settled := func(most int64) (there func(bailey.Receipt) bool) {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			all, there := sizes()
			if all <= most {
				return there
			}
			if time.Since(begin) > time.Minute {
				t.Fatalf("%d bytes stay, of %d", all, most)
			}
		}
	}
	flood(40)
	there := settled(150*kib + 51*kib)
	for _, r := range before {
		if !there(r) {
			t.Error("a flood of today took a body of yesterday")
		}
	}
	if !there(last) {
		t.Error("the newest is gone")
	}
	if _, err := l.Body(last.Intent.Receipt, receipts.StdoutPart, *last.Outcome.StdoutBody); err != nil {
		t.Error(err)
	}
	// If there are many days, the oldest bodies are removed.
	do(t, l.Close())
	names, _ := filepath.Glob(dir + "/blobs/*.stdout")
	for i, name := range names {
		if name != blob(dir, last, receipts.StdoutPart) && name != blob(dir, before[0], receipts.StdoutPart) {
			when := time.Now().Add(-time.Duration(2+i) * 24 * time.Hour)
			do(t, os.Chtimes(name, when, when))
		}
	}
	old := time.Now().Add(-29 * 24 * time.Hour)
	do(t, os.Chtimes(blob(dir, before[0], receipts.StdoutPart), old, old))
	l = open(t, Config{Dir: dir, DailyBodies: 100 * kib, AllBodies: 60 * kib})
	there = settled(60 * kib)
	if there(before[0]) || !there(last) {
		t.Errorf("the oldest is there: %v; the newest: %v", there(before[0]), there(last))
	}
	if _, err := l.Body(before[0].Intent.Receipt, receipts.StdoutPart, *before[0].Outcome.StdoutBody); !errors.Is(err, bailey.NotFound) {
		t.Error(err)
	}
	do(t, l.Close())
	verified(t, dir)
}

// TestHostileBlobs checks that the ledger is not opened if the directory of bodies is less private than the ledger's.
func TestHostileBlobs(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"symlink": func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+"2")); do(t, os.Symlink(dir+"2", dir)) },
		"wider":   func(t *testing.T, dir string) { do(t, os.Chmod(dir, 0o755)) },
		"file":    func(t *testing.T, dir string) { do(t, os.RemoveAll(dir)); do(t, put(dir, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := place(t)
			do(t, open(t, Config{Dir: dir}).Close())
			spoil(t, dir+"/blobs")
			refused(t, dir, "blobs")
		})
	}
}

// TestForgottenWhileOpen checks that the output of a call is not stored if the call is forgotten while it runs.
func TestForgottenWhileOpen(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	in := intent()
	in.InputBody = &bailey.Body{Bytes: []byte("input")}
	seal, err := l.Open(context.Background(), in)
	do(t, err)
	// it is written beside the intent
	for content(filepath.Join(dir, "blobs", string(in.Receipt)+"."+receipts.InputPart)) == "" {
		time.Sleep(time.Millisecond)
	}
	_, err = l.Forget(context.Background(), receipts.Forgotten{Receipt: in.Receipt})
	do(t, err)
	do(t, seal(bailey.Outcome{Status: bailey.OK, Executed: new(true), StdoutBody: &bailey.Body{Bytes: []byte("output")}}))
	if parts := l.bodies.existingParts(in.Receipt); len(parts) > 0 {
		t.Errorf("%v are kept", parts)
	}
	if !strings.Contains(content(first(dir)), `"stdoutBody":{"length":6,"body":"not stored"}`) {
		t.Error("the outcome does not say so")
	}
}

func TestSweepGoesOn(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	stuck, old := dir+"/blobs/a.input", dir+"/blobs/b.input"
	do(t, os.MkdirAll(stuck+"/x", 0o700))
	do(t, put(old, "x"))
	long := time.Now().Add(-retention - time.Minute)
	do(t, os.Chtimes(stuck, long, long))
	do(t, os.Chtimes(old, long, long))
	if err := l.bodies.removeExpired(); err == nil || content(old) != "" {
		t.Errorf("%v; the other is there: %v", err, content(old) != "")
	}
}
