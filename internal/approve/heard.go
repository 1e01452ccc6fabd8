package approve

import "bailey"

// maxHeard limits the calls with hook verdicts for one question: hooks may turn several calls into the same one. Beyond
// the limit, hooks are asked again. The inputs that they returned are in the question's text, whose length is limited.
const maxHeard = 4

// keepVerdict keeps the verdict of the hooks on a call while e is open.
func (u *Queue) keepVerdict(e *entry, h bailey.Heard) {
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

// Parked returns the verdict of the hooks on a pending call, by [bailey.Heard.Of]. After a restart there are no
// verdicts: a hook may have put data into an input that must not be written to a disk.
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
