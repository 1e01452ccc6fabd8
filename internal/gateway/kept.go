package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"bailey"
	"bailey/internal/redact"
)

// What is kept of what people redacted: beyond these bounds the map that was not used for longest goes.
const (
	keptFor      = 8 * time.Hour // since its last use
	maxKept      = 64            // sessions
	maxKeptBytes = 64 << 20      // of hidden texts; a table holds each about twice
)

// Kept are the token maps of `bailey redact`, in memory alone, so that an answer can be restored later. They are
// apart from those of calls: the id of a call's session opens none of them. While one is kept the gateway is not
// idle. It is safe for concurrent use.
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
	ID    bailey.SessionID `json:"session"`
	Texts int              `json:"texts"` // that have a token
	Used  time.Time        `json:"used"`
	Until time.Time        `json:"until"`
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
		return "", nil, noSession(id)
	}
	m.used = k.now()
	k.maps[id] = m
	return id, m.table, nil
}

// keep keeps a session's map, from now on for its time, and reports whether there was anything to keep.
func (k *Kept) keep(id bailey.SessionID, t *redact.Table) bool {
	if texts, _ := t.Size(); texts == 0 {
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
	all := k.list()
	bytes := 0
	for i, s := range all {
		_, n := k.maps[s.ID].table.Size()
		if bytes += n; i > 0 && (i >= maxKept || bytes > maxKeptBytes) {
			delete(k.maps, s.ID)
		}
	}
}

// List returns what is kept, last used first, never nil.
func (k *Kept) List() []KeptSession {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	return k.list()
}

func (k *Kept) list() []KeptSession {
	all := make([]KeptSession, 0, len(k.maps))
	for id, m := range k.maps {
		texts, _ := m.table.Size()
		all = append(all, KeptSession{id, texts, m.used.UTC(), m.used.Add(keptFor).UTC()})
	}
	slices.SortFunc(all, func(a, b KeptSession) int {
		return cmp.Or(b.Used.Compare(a.Used), cmp.Compare(b.ID, a.ID))
	})
	return all
}

// Find says of one session what List says of all.
func (k *Kept) Find(id bailey.SessionID) (KeptSession, error) {
	for _, s := range k.List() {
		if s.ID == id {
			return s, nil
		}
	}
	return KeptSession{}, noSession(id)
}

func noSession(id bailey.SessionID) error {
	return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("there is no redaction session %q", string(id)),
		Hint: "one ends eight hours after its last use, with the gateway, or when newer ones need its room; redact the text again, and ask anew with what comes out"}
}
