package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/redact"
)

// What is kept of what people redacted: beyond these bounds the map that was not used for longest goes.
const (
	keptFor      = 8 * time.Hour // since its last use
	maxKept      = 1024          // sessions
	maxKeptBytes = 64 << 20      // of hidden texts; a table holds each about twice
)

// Kept are the token maps of `bailey redact`, in memory alone, so that an answer can be restored later. They are
// apart from those of calls: the id of a call's session opens none of them. A session's id is the only key to its map,
// so nothing lists them: whoever may go on with a session can have a guess confirmed by its token. While one is kept
// the gateway is not idle. It is safe for concurrent use.
type Kept struct {
	redaction *Redaction
	now       func() time.Time

	mu   sync.Mutex // guards maps; a table locks itself
	maps map[bailey.SessionID]keptMap
}

type keptMap struct {
	table *redact.Table
	used  time.Time
}

// KeptSession is what may be told of a map.
type KeptSession struct {
	Texts int       `json:"texts"` // that have a token
	Used  time.Time `json:"used"`
	Until time.Time `json:"until"`
}

// NewKept keeps nothing yet; new maps are made under r's rules.
func NewKept(r *Redaction) *Kept {
	return &Kept{redaction: r, now: time.Now, maps: map[bailey.SessionID]keptMap{}}
}

// table returns the map of a session, for an empty id a new one that is not kept yet.
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

// keep keeps a session's map, from now on for its time, and reports whether there was anything to keep. A map without
// a text still takes escapes back: it is kept if somebody needs it for that.
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

// expire forgets what has had its time; k.mu is held.
func (k *Kept) expire() {
	for id, m := range k.maps {
		if k.now().Sub(m.used) >= keptFor {
			delete(k.maps, id)
		}
	}
}

// push forgets what is over the bounds; k.mu is held.
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

// Count says how many are kept, and until when the last of them is, the zero time for none.
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

// Find tells of the session with that id. It is no use of it.
func (k *Kept) Find(id bailey.SessionID) (KeptSession, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	m, ok := k.maps[id]
	if !ok {
		return KeptSession{}, noSession()
	}
	texts, _ := m.table.Size()
	return KeptSession{texts, m.used.UTC(), m.used.Add(keptFor).UTC()}, nil
}

// noSession does not repeat the id, which looks like a secret and is one.
func noSession() error {
	return &bailey.Error{Kind: bailey.NotFound, Message: "there is no such redaction session",
		Hint: "one ends eight hours after its last use, with the gateway, or when newer ones need its room; redact the text again, and ask anew with what comes out"}
}
