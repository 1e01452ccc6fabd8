package gateway

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/redact"
)

// keptAt returns a store with its own clock.
func keptAt() (*Kept, *time.Time) {
	now := time.Unix(1e9, 0)
	k := NewKept(NewRedaction())
	k.now = func() time.Time { return now }
	return k, &now
}

// held keeps a new session in which size bytes are hidden, and returns its id.
func held(t *testing.T, k *Kept, size int) bailey.SessionID {
	t.Helper()
	id, table, err := k.openTable("")
	if err != nil {
		t.Fatal(err)
	}
	const each = 48 << 10
	for i := 0; i < size; i += each {
		table.Text(fmt.Sprintf("-----BEGIN PRIVATE KEY-----\n%08d", i) + strings.Repeat("MIIEvQIB", min(size, each)/8) + "\n-----END PRIVATE KEY-----\n")
	}
	if texts, bytes := table.Size(); texts == 0 || bytes < size/2 {
		t.Fatalf("%d texts of %d bytes are hidden, want %d", texts, bytes, size)
	}
	if !k.storeTable(id, table, false) {
		t.Fatal("nothing was kept")
	}
	return id
}

func many(k *Kept) int {
	n, _ := k.Count()
	return n
}

func known(k *Kept, id bailey.SessionID) bool {
	_, err := k.Find(id)
	return err == nil
}

// TestKeptForEightHours checks that a map is kept for eight hours after its last use, and that each use counts.
func TestKeptForEightHours(t *testing.T) {
	k, now := keptAt()
	id := held(t, k, 1)
	*now = now.Add(keptFor - time.Second)
	if _, _, err := k.openTable(id); err != nil {
		t.Fatal(err)
	}
	*now = now.Add(keptFor - time.Second)
	s, err := k.Find(id)
	n, until := k.Count()
	if err != nil || s.Texts != 1 || s.Until.Sub(s.Used) != keptFor || n != 1 || !until.Equal(s.Until) {
		t.Errorf("%v %+v; %d until %v", err, s, n, until)
	}
	*now = now.Add(time.Second)
	_, _, err = k.openTable(id)
	if !errors.Is(err, bailey.NotFound) || !strings.Contains(bailey.HintOf(err), "redact the text again") || strings.Contains(err.Error(), string(id)) || len(k.maps) != 0 {
		t.Errorf("after its time: %v, %q, %d kept", err, bailey.HintOf(err), len(k.maps))
	}
}

// TestKeptIsBounded checks the limits in number and in bytes. The map that was unused for longest must go first, and
// the newest one must stay.
func TestKeptIsBounded(t *testing.T) {
	ktest.Long(t)
	k, now := keptAt()
	var ids []bailey.SessionID
	for range maxKept {
		*now = now.Add(time.Second)
		ids = append(ids, held(t, k, 1))
	}
	*now = now.Add(time.Second)
	k.openTable(ids[0]) // used again
	ids = append(ids, held(t, k, 1))
	if many(k) != maxKept || !known(k, ids[0]) || known(k, ids[1]) || !known(k, ids[2]) || !known(k, ids[maxKept]) {
		t.Errorf("%d kept", many(k))
	}
	k, now = keptAt()
	ids = nil
	for range maxKeptBytes/redact.MaxBytes + 3 {
		*now = now.Add(time.Second)
		ids = append(ids, held(t, k, 7<<20))
	}
	first := held(t, k, 1)
	total := 0
	for _, m := range k.maps {
		_, n := m.table.Size()
		total += n
	}
	if total > maxKeptBytes || len(k.maps) != len(ids)+1 {
		t.Errorf("%d bytes of %d sessions", total, len(k.maps))
	}
	for range 3 {
		*now = now.Add(time.Second)
		ids = append(ids, held(t, k, 7<<20))
	}
	if known(k, ids[0]) || !known(k, ids[len(ids)-1]) || !known(k, first) {
		t.Error("the wrong ones went")
	}
}

// TestKeptKnowsItsOwn checks that an empty map is not kept, and that neither the id of a call's session nor another
// name opens a map.
func TestKeptKnowsItsOwn(t *testing.T) {
	r := NewRedaction()
	k := NewKept(r)
	call := bailey.NewSessionID()
	r.Learn(call, []bailey.Secret{bailey.NewSecret("hunter2hunter2")})
	r.Value(call, "hunter2hunter2")
	for _, id := range []bailey.SessionID{call, "s-1", "none", "../s"} {
		if _, _, err := k.openTable(id); !errors.Is(err, bailey.NotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
	id, table, _ := k.openTable("")
	table.Text("nothing here")
	if k.storeTable(id, table, false) || known(k, id) {
		t.Error("an empty map was kept")
	}
	if !k.storeTable(id, table, true) || !known(k, id) {
		t.Error("a map that is needed was not kept")
	}
	other, _, _ := k.openTable("")
	if id == other {
		t.Error("two sessions have one id")
	}
	if got := r.Again(held(t, k, 1), []byte("[REDACTED_PRIVATE_KEY_1]")); strings.Contains(string(got), "BEGIN") {
		t.Errorf("a call reached a kept map: %s", got)
	}
}

// TestKeptIsNotIdle checks that a gateway is not idle while it keeps a map, nor during its idle time after that.
func TestKeptIsNotIdle(t *testing.T) {
	k, now := keptAt()
	id := held(t, k, 1)
	g := &Gateway{Config: Config{Kept: k, Idle: time.Hour}, quiet: time.Now().Add(-2 * time.Hour)}
	if g.isIdle() {
		t.Error("idle while a map is kept")
	}
	*now = now.Add(keptFor)
	if g.isIdle() || known(k, id) {
		t.Error("the idle time did not begin when the map had its own")
	}
	if g.quiet = time.Now().Add(-2 * time.Hour); !g.isIdle() {
		t.Error("never idle again")
	}
}
