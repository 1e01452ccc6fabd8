package modelwire

import "sync"

// Cache remembers the edited form of texts, so that the history of a conversation is not edited again in each turn. It
// keeps the texts in memory, as they were and as they became, up to a limit. It is safe for concurrent use.
type Cache struct {
	limit int // bytes

	mu    sync.Mutex
	young map[Where]map[string]cachedText
	old   map[Where]map[string]cachedText // an entry moves to young if it is used
	bytes int                             // of young
}

// cachedText is the edited form of a JSON string.
type cachedText struct {
	generation int
	edited     []byte // the JSON string; nil if the text did not change
}

// overhead is what an entry takes besides its texts, about.
const overhead = 128

// NewCache returns a cache that keeps about maxBytes.
func NewCache(maxBytes int) *Cache {
	return &Cache{limit: maxBytes, young: map[Where]map[string]cachedText{}}
}

// findText returns the edited form of the JSON string raw. It is known only if it is of the given generation.
func (c *Cache) findText(generation int, where Where, raw []byte) (edited []byte, known bool) {
	if c == nil || len(where.Tool) > maxPlace {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.young[where][string(raw)]; ok {
		return t.edited, t.generation == generation
	}
	if t, ok := c.old[where][string(raw)]; ok && t.generation == generation {
		c.addText(where, string(raw), t)
		return t.edited, true
	}
	return nil, false
}

// keepText records the edited form of the JSON string raw. It reports whether an earlier form was different.
func (c *Cache) keepText(generation int, where Where, raw, edited []byte) (changed bool) {
	if c == nil || len(where.Tool) > maxPlace {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	earlier, ok := c.young[where][string(raw)]
	if !ok {
		earlier, ok = c.old[where][string(raw)]
	}
	c.addText(where, string(raw), cachedText{generation, edited})
	return ok && string(earlier.edited) != string(edited)
}

// addText stores an entry among the young ones. If they have half of the limit, they become the old ones.
func (c *Cache) addText(where Where, raw string, t cachedText) {
	if c.bytes > c.limit/2 {
		c.old, c.young, c.bytes = c.young, map[Where]map[string]cachedText{}, 0
	}
	texts := c.young[where]
	if texts == nil {
		texts = map[string]cachedText{}
		c.young[where] = texts
	}
	if _, ok := texts[raw]; !ok {
		c.bytes += len(where.Tool) + len(where.Field) + len(raw) + len(t.edited) + overhead
	}
	texts[raw] = t
}
