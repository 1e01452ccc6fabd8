//go:build unix

package hooks

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/jail"
)

// runs starts a shell command with the runner without a cage.
func runs(t *testing.T, ctx context.Context, line string, timeout time.Duration, word string) (exit bailey.Exit, out, log string, err error) {
	t.Helper()
	return runsWithin(t, ctx, line, timeout, 0, word)
}

// runsWithin is runs with this time between SIGTERM and SIGKILL; zero is the default.
func runsWithin(t *testing.T, ctx context.Context, line string, timeout, grace time.Duration, word string) (exit bailey.Exit, out, log string, err error) {
	t.Helper()
	r, err := jail.Uncaged{Grace: grace}.Plan(t.Context(), bailey.Job{Command: "sh", Args: []string{"-c", line, word}, Env: []string{"PATH=" + searchPath}, EnvNames: []string{"LENT"}, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var stdout, stderr hook.Output
	exit, err = r.Start(ctx, bailey.Lent{Env: []string{"LENT=value"}}, bailey.Streams{Stdout: &stdout, Stderr: &stderr})
	if _, again := r.Start(ctx, bailey.Lent{}, bailey.Streams{}); bailey.KindOf(again) != bailey.Conflict {
		t.Errorf("it starts twice: %v", again)
	}
	o, _ := stdout.Kept()
	l, _ := stderr.Kept()
	return exit, string(o), string(l), err
}

// TestBareInheritsNothing checks that the program inherits no variable, no descriptor (even without close-on-exec), no
// session and no input.
func TestBareInheritsNothing(t *testing.T) {
	t.Setenv("SECRET", "of the gateway's")
	open, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, open.Fd(), syscall.F_SETFD, 0); e != 0 {
		t.Fatal(e)
	}
	exit, out, log, err := runs(t, t.Context(), `env | sort | grep -v ^_= | grep -v ^PWD=; wc -c; ls /dev/fd/`+strconv.Itoa(int(open.Fd()))+` || echo closed; ps -o sid= -p $$ | grep -qw $$ && echo session; exit 3`, time.Minute, "")
	if want := "LENT=value\nPATH=" + searchPath + "\n0\nclosed\nsession\n"; exit.Code != 3 || err != nil || out != want {
		t.Errorf("%+v %v %q %q, want %q", exit, err, out, log, want)
	}
}

// TestBareEndsWhole checks that all processes in the program's session end with it, without waiting for streams they
// hold.
func TestBareEndsWhole(t *testing.T) {
	word := "bare-" + filepath.Base(t.TempDir()) + strconv.Itoa(os.Getpid())
	exit, out, _, err := runs(t, t.Context(), `sh -c 'sleep 600; :' $0 & echo out`, time.Minute, word)
	if exit.Code != 0 || err != nil || out != "out\n" {
		t.Errorf("%+v %v %q", exit, err, out)
	}
	if left := alive(t, word); len(left) > 0 {
		t.Errorf("%v live on", left)
	}
	if exit, _, _, err := runs(t, t.Context(), "kill -9 $$", time.Minute, word); exit.Code != 137 || err != nil {
		t.Errorf("%+v %v", exit, err)
	}
	inMidst(t, func(timeout time.Duration) bool {
		exit, out, _, err := runsWithin(t, t.Context(), "trap 'echo asked; exit 5' TERM; echo up; while :; do sleep 0.1; done", timeout, time.Minute, word)
		if out != "" && (!exit.TimedOut || exit.Code != 5 || out != "up\nasked\n" || err != nil) {
			t.Errorf("%+v %v %q", exit, err, out)
		}
		return out != ""
	})
	inMidst(t, func(timeout time.Duration) bool {
		exit, out, _, err := runsWithin(t, t.Context(), "trap '' TERM; echo up; while :; do sleep 0.1; done", timeout, 100*time.Millisecond, word)
		if out != "" && (!exit.TimedOut || exit.Code != 137 || err != nil) {
			t.Errorf("%+v %v", exit, err)
		}
		return out != ""
	})
}

// TestBareCancelled checks that a cancelled program is killed at once, or gets SIGTERM first if the cause is
// [bailey.Gentle].
func TestBareCancelled(t *testing.T) {
	why := errors.New("somebody changed their mind")
	for _, cause := range []error{why, bailey.Gentle{Cause: why}} {
		began := filepath.Join(t.TempDir(), "began")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		go func() {
			comes(t, began)
			cancel(cause)
		}()
		exit, out, _, err := runs(t, ctx, "trap 'echo asked; exit 0' TERM; echo > "+began+"; while :; do sleep 0.05; done", time.Minute, "")
		_, gentle := cause.(bailey.Gentle)
		if !errors.Is(err, why) || exit.Code != 137 || (out == "asked\n") != gentle {
			t.Errorf("%T: %+v %v %q", cause, exit, err, out)
		}
	}
}

// TestBareRefuses checks that jobs that need a cage, or have no program, are refused.
func TestBareRefuses(t *testing.T) {
	for _, job := range []bailey.Job{
		{Command: "sh", Wall: &bailey.Wall{}}, {Command: "sh", Network: &bailey.Network{}}, {Command: "sh", Read: []string{"/etc"}}, {Command: "sh", Limits: bailey.Limits{Tasks: 1}},
		{Command: "sh", Places: []bailey.Place{{}}}, {Command: "sh", TTY: true}, {Command: "no-such-program-here"}, {Command: "../bin/sh"}, {Command: ".."}, {Command: ""}, {Command: "/bin"},
	} {
		if r, err := (jail.Uncaged{}).Plan(t.Context(), job); err == nil || r != nil || strings.Contains(err.Error(), "%!") {
			t.Errorf("%+v was planned: %v", job, err)
		}
	}
}
