//go:build linux

package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"bailey"
	"bailey/audit"

	"golang.org/x/sys/unix"
)

// caged returns an outcome in a cage with this plan.
func caged(text string) bailey.Outcome {
	return bailey.Outcome{Status: bailey.OK, Cage: &bailey.Cage{Kind: "full", Enforced: true, PlanDigest: digestOf(text), Plan: text}}
}

// sealed makes a receipt with that outcome.
func sealed(t testing.TB, l *Log, o bailey.Outcome) error {
	t.Helper()
	seal, err := l.Open(context.Background(), intent())
	do(t, err)
	return seal(o)
}

// kinds returns the kinds of the ledger's entries.
func kinds(t testing.TB, dir string) string {
	t.Helper()
	var list []string
	for e, err := range audit.Scan(strings.NewReader(content(first(dir))), audit.Head{}) {
		do(t, err)
		list = append(list, e.Kind)
	}
	return strings.Join(list, " ")
}

// TestPlanIsNotedOnce checks that a plan is recorded before the first outcome that names it and not again, not even by
// the next gateway.
func TestPlanIsNotedOnce(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	do(t, sealed(t, l, caged("one <&> \u2028\n")))
	do(t, sealed(t, l, caged("one <&> \u2028\n")))
	do(t, l.NoteCaged(context.Background(), "jail.run", nil, caged("two").Cage))
	do(t, l.Close())
	l = open(t, Config{Dir: dir})
	do(t, sealed(t, l, caged("two")))
	do(t, sealed(t, l, caged("one <&> \u2028\n")))
	withheld := caged("three").Cage
	withheld.Plan = ""
	do(t, sealed(t, l, bailey.Outcome{Cage: withheld}))
	do(t, l.Note(context.Background(), "x", nil))
	want := "genesis intent plan outcome intent outcome plan jail.run intent outcome intent outcome intent plan outcome x"
	if got := kinds(t, dir); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if r := verified(t, dir); r.Plans != (audit.PlanCount{Recomputed: 2, Redacted: 1}) {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(content(first(dir)), `{"digest":"`+digestOf("three")+`","redacted":true}`) {
		t.Error("what is withheld is not said to be")
	}
}

// TestPlanIsItsDigests checks that a plan that would fail verification is refused and not written.
func TestPlanIsItsDigests(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	other, short := caged("a plan"), caged("a plan")
	other.Cage.Plan, short.Cage.PlanDigest, short.Cage.Plan = "another", "d", ""
	for _, o := range []bailey.Outcome{other, short} {
		if err := sealed(t, l, o); bailey.KindOf(err) != bailey.Internal {
			t.Errorf("%+v: %v", o.Cage, err)
		}
		if err := l.NoteCaged(context.Background(), "x", nil, o.Cage); bailey.KindOf(err) != bailey.Internal {
			t.Errorf("%+v: %v", o.Cage, err)
		}
	}
	if err := l.Note(context.Background(), audit.KindPlan, audit.Plan{Digest: "d"}); err == nil {
		t.Error("anybody may note a plan")
	}
	if got := kinds(t, dir); got != "genesis intent intent" {
		t.Error(got)
	}
}

// TestPlanHasItsSpace checks that on a full disk each open call still has space for the largest plan and outcome.
func TestPlanHasItsSpace(t *testing.T) {
	dir, l, disk := onFaulty(t)
	var seals []func(bailey.Outcome) error
	for range 30 {
		seal, err := l.Open(context.Background(), intent())
		do(t, err)
		seals = append(seals, seal)
	}
	disk.set(func() { disk.reserve = unix.ENOSPC })
	reserved := disk.reserved
	for i, seal := range seals {
		o := caged(fmt.Sprintf("%03d", i) + strings.Repeat(`"`, bailey.PlanCap/2-3)) // a quote takes two bytes in JSON
		o.Reason = strings.Repeat("x", 60000)
		if err := seal(o); err != nil {
			t.Fatalf("outcome %d, whose space was reserved: %v", i, err)
		}
	}
	if long := int64(len(content(first(dir)))); long > reserved {
		t.Errorf("%d bytes were written, %d reserved", long, reserved)
	}
	if r := verified(t, dir); r.Plans.Recomputed != len(seals) {
		t.Errorf("%+v", r)
	}
}

// TestPlanIsKnownWhenDurable checks that if a write fails, the next outcome that names the plan records it again.
func TestPlanIsKnownWhenDurable(t *testing.T) {
	dir, l, disk := onFaulty(t)
	seal, err := l.Open(context.Background(), intent())
	do(t, err)
	disk.set(func() { disk.write, disk.short = unix.EIO, 50 })
	if err := seal(caged("a plan")); !errors.Is(err, unix.EIO) {
		t.Errorf("%v", err)
	}
	disk.set(func() { disk.write = nil })
	do(t, sealed(t, l, caged("a plan")))
	if got := kinds(t, dir); got != "genesis intent outcome intent intent plan outcome" {
		t.Error(got)
	}
	verified(t, dir)
}

func TestKnownIsBounded(t *testing.T) {
	var k knownPlans
	for i := range 3 * maxPlans {
		k.addPlans(fmt.Sprint(i))
		if len(k) > maxPlans || !k.hasPlan(fmt.Sprint(i)) {
			t.Fatalf("%d known after %d", len(k), i)
		}
	}
}

// TestChangedPlansAreDamage checks that a rebuilt chain with another text, without the plan or with another digest does
// not verify, and that no gateway appends to it.
func TestChangedPlansAreDamage(t *testing.T) {
	dir := place(t)
	l := open(t, Config{Dir: dir})
	do(t, sealed(t, l, caged("a plan")))
	do(t, l.Close())
	whole := content(first(dir))
	for name, change := range map[string]func(e *audit.Entry) (keep bool){
		"text": func(e *audit.Entry) bool { replace(e, audit.KindPlan, "a plan", "a plan of mine"); return true },
		"note": func(e *audit.Entry) bool { return e.Kind != audit.KindPlan },
		"digest": func(e *audit.Entry) bool {
			replace(e, audit.KindOutcome, digestOf("a plan"), digestOf("x"))
			return true
		},
		"nothing": func(e *audit.Entry) bool { return true },
	} {
		do(t, os.WriteFile(first(dir), anew(t, whole, change), 0o600))
		r, err := Verify(dir)
		do(t, err)
		l, err := New(Config{Dir: dir})
		if err == nil {
			l.Close()
		}
		if name == "nothing" {
			if !r.OK || err != nil {
				t.Errorf("%s: %v, %v", name, r.FirstBad, err)
			}
			continue
		}
		if r.OK || r.FirstBad.Reason != audit.Planned || r.FirstBad.Entry < 3 {
			t.Errorf("%s: %v", name, r.FirstBad)
		}
		if !errors.Is(err, bailey.Conflict) || !strings.Contains(err.Error(), "plan") {
			t.Errorf("%s: a gateway opens it: %v", name, err)
		}
	}
}

func replace(e *audit.Entry, kind, old, now string) {
	if e.Kind == kind {
		e.Data = json.RawMessage(bytes.ReplaceAll(e.Data, []byte(old), []byte(now)))
	}
}

// anew returns a ledger with changed entries and recomputed hashes.
func anew(t *testing.T, ledger string, change func(*audit.Entry) bool) (out []byte) {
	t.Helper()
	var head audit.Head
	for e, err := range audit.Scan(strings.NewReader(ledger), audit.Head{}) {
		do(t, err)
		if !change(&e) {
			continue
		}
		e.Seq = head.Seq + 1
		line, hash, err := audit.Append(head.Hash, e)
		do(t, err)
		out, head = append(out, line...), audit.Head{Seq: e.Seq, Hash: hash}
	}
	return out
}
