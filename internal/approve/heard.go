package approve

import "bailey"

// maxHeard is how many calls may come to one question, each with what hooks said of it: they may make the same of several.
// Beyond it hooks are asked again. What they left of an input stands in the question's text, whose length is bounded.
const maxHeard = 4

// hear keeps what hooks said of a call for as long as e is open.
func (u *Queue) hear(e *entry, h bailey.Heard) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if h.Of == "" || len(e.heard) >= maxHeard {
		return
	}
	if e.heard == nil {
		e.heard = map[string]bailey.Heard{}
	}
	e.heard[h.Of] = h
}

// Parked is what hooks said of a call whose question is open, by what they were asked about. After a restart there is nothing of
// it: a hook may have left in an input what belongs on no disk.
func (u *Queue) Parked(of string) (bailey.Heard, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, e := range u.live {
		if h, ok := e.heard[of]; ok {
			return h, true
		}
	}
	return bailey.Heard{}, false
}
