//go:build linux

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// TestSlowLooksSayWhy checks that a slow answer and a slow read are reported, but only on a terminal.
func TestSlowLooksSayWhy(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	master, slave := ktest.PTY(t)
	s := ktest.NewScreen()
	go s.Watch(master)
	defer slave.Close()
	on := &App{Stderr: slave}
	until := func(words string, do func()) {
		for deadline := time.Now().Add(time.Minute); !strings.Contains(s.Text(), words); time.Sleep(10 * time.Millisecond) {
			if do(); time.Now().After(deadline) {
				t.Fatalf("%q, want %q", s.Text(), words)
			}
		}
	}
	on.withSlowNotice(func() error { until("still searching", func() {}); return nil })
	progress := on.Progress("reading the ledger")
	until("reading the ledger: 40 %", func() { progress(2, 5) })
	var off bytes.Buffer
	if (&App{Stderr: &off}).Progress("") != nil || (&App{Stderr: &off}).isTerminal() {
		t.Error("a file is told how far it is")
	}
}
