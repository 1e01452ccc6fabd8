package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/localapi/apitype"
	"bailey/internal/redact"
)

// Limits of the kept token maps. Beyond them, the map with the oldest last use is removed.
const (
	keptFor      = 8 * time.Hour // since the last use
	maxKept      = 1024          // sessions
	maxKeptBytes = 64 << 20      // of redacted texts; a table stores each about twice
)

// Kept holds the token maps of `bailey redact`, in memory only, so that a text can be restored later. They are separate
// from the maps of calls: the session id of a call opens none of them. The session id is the only key to a map and must
// stay secret, so no function lists the ids: with the id, an attacker could confirm a guessed text by its token. While
// a map is kept, the gateway is not idle. Kept is safe for concurrent use.
type Kept struct {
	redaction *Redaction
	now       func() time.Time

	mu   sync.Mutex // guards maps; each table has its own lock
	maps map[bailey.SessionID]keptMap
}

type keptMap struct {
	table *redact.Table
	used  time.Time
}

// NewKept returns an empty Kept. New maps use the rules of r.
func NewKept(r *Redaction) *Kept {
	return &Kept{redaction: r, now: time.Now, maps: map[bailey.SessionID]keptMap{}}
}

// table returns the map of a session. If id is empty, it returns a new session and map that are not kept yet.
func (k *Kept) table(id bailey.SessionID) (bailey.SessionID, *redact.Table, error) {
	if id == "" {
		return bailey.NewSessionID(), k.redaction.newTable(), nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	m, ok := k.maps[id]
	if !ok {
		return "", nil, noSession()
	}
	m.used = k.now()
	k.maps[id] = m
	return id, m.table, nil
}

// keep stores a session's map for keptFor and reports whether it did. A map without texts is stored only if needed is
// set, because it can still restore escaped tokens.
func (k *Kept) keep(id bailey.SessionID, t *redact.Table, needed bool) bool {
	if texts, _ := t.Size(); texts == 0 && !needed {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.maps[id] = keptMap{t, k.now()}
	k.expire()
	k.push()
	return true
}

func (k *Kept) drop(id bailey.SessionID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.maps, id)
}

// expire removes expired maps. The caller must hold k.mu.
func (k *Kept) expire() {
	for id, m := range k.maps {
		if k.now().Sub(m.used) >= keptFor {
			delete(k.maps, id)
		}
	}
}

// push removes the maps that exceed the limits. The caller must hold k.mu.
func (k *Kept) push() {
	ids := slices.SortedFunc(maps.Keys(k.maps), func(a, b bailey.SessionID) int {
		return cmp.Or(k.maps[b].used.Compare(k.maps[a].used), cmp.Compare(b, a))
	})
	bytes := 0
	for i, id := range ids {
		_, n := k.maps[id].table.Size()
		if bytes += n; i > 0 && (i >= maxKept || bytes > maxKeptBytes) {
			delete(k.maps, id)
		}
	}
}

// Count returns the number of kept maps and when the last of them expires. Without maps that is the zero time.
func (k *Kept) Count() (n int, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	for _, m := range k.maps {
		if end := m.used.Add(keptFor).UTC(); end.After(until) {
			until = end
		}
	}
	return len(k.maps), until
}

// Find returns information about a session. It does not count as a use.
func (k *Kept) Find(id bailey.SessionID) (apitype.KeptSession, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	m, ok := k.maps[id]
	if !ok {
		return apitype.KeptSession{}, noSession()
	}
	texts, _ := m.table.Size()
	return apitype.KeptSession{Texts: texts, Used: m.used.UTC(), Until: m.used.Add(keptFor).UTC()}, nil
}

// noSession does not repeat the id, because the id is a secret.
func noSession() error {
	return &bailey.Error{Kind: bailey.NotFound, Message: "there is no such redaction session",
		Hint: "one ends eight hours after its last use, with the gateway, or when newer ones need its room; redact the text again, and ask anew with what comes out"}
}
