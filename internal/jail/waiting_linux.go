package jail

// Waiting returns how many warm helpers have prepared everything that they prepare ahead of a call. It is for
// measurements.
func (j *Jail) Waiting() (n int) {
	j.warm.mu.Lock()
	defer j.warm.mu.Unlock()
	for _, h := range j.warm.helpers {
		if !h.taken && h.isReady() && h.spoilt == nil {
			n++
		}
	}
	return n
}
