//go:build linux

package main

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/internal/terminal"
)

// hangUp as keys closes the terminal. interrupt is the character of Ctrl-C.
const (
	hangUp    = "hang up"
	interrupt = "\x03"
)

// dialog runs the program on a new pseudo-terminal (pts(4)). It types early immediately, and keys after the prompt. It
// returns the content of the screen and the exit code.
func (y *yard) dialog(t *testing.T, early, keys string, args ...string) (string, int) {
	t.Helper()
	master, slave := ktest.PTY(t)
	cmd := y.command(y.program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if early != "" {
		master.WriteString(early)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	s := ktest.NewScreen()
	ended := make(chan struct{})
	go func() { s.Watch(master); close(ended) }()
	select {
	case <-s.Asked:
	case <-ended:
	case <-time.After(patience):
		cmd.Process.Kill()
		t.Fatalf("never asked:\n%s", s.Text())
	}
	if keys == hangUp {
		master.Close()
	} else {
		master.WriteString(keys)
	}
	kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer kill.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if at, ok := terminal.Get(master); keys != hangUp && (!ok || at.Lflag&(syscall.ICANON|syscall.ECHO) != syscall.ICANON|syscall.ECHO) {
		t.Error("the terminal is not left as it was")
	}
	<-ended
	return strings.ReplaceAll(s.Text(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

// conversation runs the program on a new pseudo-terminal. steps are pairs of a prompt and the keys that answer it.
func (y *yard) conversation(t *testing.T, args []string, steps ...string) (string, int) {
	t.Helper()
	master, slave := ktest.PTY(t)
	cmd := y.command(y.program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	kill := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer kill.Stop()
	s := ktest.NewScreen()
	ended := make(chan struct{})
	go func() { s.Watch(master); close(ended) }()
	for seen := 0; len(steps) > 0; steps = steps[2:] {
		for {
			at := strings.Index(s.Text()[seen:], steps[0])
			if at >= 0 {
				seen += at + len(steps[0])
				break
			}
			select {
			case <-ended:
				t.Fatalf("never asked %q:\n%s", steps[0], s.Text())
			case <-time.After(10 * time.Millisecond):
			}
		}
		master.WriteString(steps[1])
	}
	<-ended
	cmd.Wait()
	return strings.ReplaceAll(s.Text(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

// TestAttackOutputOnTerminal checks that the output of a tool is escaped on a terminal. With --raw or in a pipe it must
// be unchanged.
func TestAttackOutputOnTerminal(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	const evil = "\x1b]0;owned\x07\x1b[31mred"
	y.must("git", "-C", y.repo, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", evil)
	y.env = append(y.env, "BAILEY_OPERATOR=1")
	y.must(y.program, "init", y.repo, "--yes")
	call := []string{"run", "git.log", "-i", "repo=" + y.repo}
	if out, code := y.dialog(t, "", "", call...); code != 0 || strings.Contains(out, "\x1b") || !strings.Contains(out, `\x1b]0;owned\a\x1b[31mred`) {
		t.Errorf("on a terminal: %d, %q", code, out)
	}
	if out, code := y.dialog(t, "", "", append(call, "--raw")...); code != 0 || !strings.Contains(out, evil) {
		t.Errorf("on a terminal, raw: %d, %q", code, out)
	}
	if out := y.must(y.program, call...); !strings.Contains(out, evil) {
		t.Errorf("in a pipe: %q", out)
	}
}
