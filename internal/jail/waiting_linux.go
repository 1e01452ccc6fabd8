package jail

// Waiting is how many warm helpers have made ready for a call what they make ahead of it. For who measures.
func (j *Jail) Waiting() (n int) {
	j.warm.mu.Lock()
	defer j.warm.mu.Unlock()
	for _, h := range j.warm.helpers {
		if !h.taken && h.waits() && h.spoilt == nil {
			n++
		}
	}
	return n
}
