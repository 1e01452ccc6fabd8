package jail

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
	"bailey/internal/ktest"
)

// TestOnceBesideSignals checks that a stage asks again if a signal interrupts it while its keeper decides about its
// single execve, and becomes the tool. The Go runtime sends itself such signals on slow machines.
func TestOnceBesideSignals(t *testing.T) {
	ktest.Long(t)
	j := lesserJail(t, Config{})
	var sent atomic.Int64
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			for _, keeper := range offspring() {
				for _, pid := range childrenOf(keeper) {
					if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); string(name) != inside.Stage+"\x00" {
						continue
					}
					for range 1000 {
						if unix.Kill(pid, unix.SIGURG) != nil {
							break
						}
						sent.Add(1)
					}
				}
			}
		}
	}()
	for range 100 {
		if r := ask(t, j, bailey.Job{}, "exit", "5"); r.err != nil || r.exit.Code != 5 {
			t.Errorf("%v, %+v", r.err, r)
			break
		}
	}
	close(done)
	<-ended
	if sent.Load() == 0 {
		t.Error("no stage was sent a signal")
	}
}
