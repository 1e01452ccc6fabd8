//go:build linux

package vm

import "time"

// readTSC reads the time stamp counter.
func readTSC() uint64

// measureTSC returns the frequency of the time stamp counter in kHz. An emulated processor has the counter of the real
// one.
func measureTSC() uint64 {
	const length = 20 * time.Millisecond
	fastest := func() (tsc uint64, at time.Time) { // the reading that was interrupted least
		least := time.Duration(1<<63 - 1)
		for range 20 {
			before := time.Now()
			value := readTSC()
			if took := time.Since(before); took < least {
				least, tsc, at = took, value, before
			}
		}
		return tsc, at
	}
	first, begin := fastest()
	time.Sleep(length)
	last, end := fastest()
	return (last - first) * uint64(time.Millisecond) / uint64(end.Sub(begin))
}
