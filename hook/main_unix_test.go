//go:build unix

package hook

import (
	"strings"
	"syscall"
	"testing"
)

// TestMainIsToldToEnd checks that SIGTERM ends the context and not the program.
func TestMainIsToldToEnd(t *testing.T) {
	cmd, out, _ := start(t, "waits", []byte(written(t, SessionEnd{})))
	log := &waiting{said: make(chan struct{})}
	said := log.said
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-said
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	stdout, _ := out.Kept()
	stderr, _ := log.Kept()
	if cmd.ProcessState.ExitCode() != exitFailure || len(stdout) > 0 || !strings.Contains(string(stderr), "context canceled") {
		t.Errorf("%v, %q, %q", cmd.ProcessState, stdout, stderr)
	}
}
