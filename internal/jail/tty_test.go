//go:build linux

package jail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/ktest"
)

// pty returns a pseudo-terminal that belongs to no session (pts(4), ioctl_tty(2)).
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	ktest.Require(t, "pty")
	m, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(m), "master")
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(m, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	s, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(m), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		t.Fatal(e)
	}
	slave = os.NewFile(s, "slave")
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestTerminalIsItsOwn checks that a run planned with a terminal has it for its session and its streams.
func TestTerminalIsItsOwn(t *testing.T) {
	t.Run("full", func(t *testing.T) { terminalIsItsOwn(t, newJail(t, Config{})) })
	t.Run("landlock", func(t *testing.T) { terminalIsItsOwn(t, lesserJail(t, Config{})) })
}

func terminalIsItsOwn(t *testing.T, j *Jail) {
	t.Helper()
	master, slave := pty(t)
	r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"tty"}, TTY: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if exit, err := r.Start(t.Context(), bailey.Lent{}, bailey.Streams{TTY: slave}); err != nil || exit.Code != 0 {
		t.Fatal(exit, err)
	}
	if err := slave.Close(); err != nil {
		t.Fatal("the run closed what is the caller's: ", err)
	}
	said, _ := io.ReadAll(master) // EIO if the slave is closed everywhere: the run must not hold it
	for _, want := range []string{"stream 0 true", "stream 1 true", "stream 2 true", "tty true"} {
		if !strings.Contains(string(said), want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
}

// TestTerminalMustBePlanned checks that a run starts with a terminal only if it was planned, and that the plan shows
// it.
func TestTerminalMustBePlanned(t *testing.T) {
	_, slave := pty(t)
	j := newJail(t, Config{})
	texts := map[bool]string{}
	for _, planned := range []bool{false, true} {
		r, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"exit", "0"}, TTY: planned})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		texts[planned] = r.Cage().Plan
		s := bailey.Streams{TTY: slave}
		if planned {
			s.TTY = nil
		}
		if exit, err := r.Start(t.Context(), bailey.Lent{}, s); bailey.KindOf(err) != bailey.Internal || exit != never {
			t.Errorf("planned %v: %v, %v", planned, exit, err)
		}
	}
	exec := func(text string) string { return text[strings.LastIndex(text, "\nexec "):] }
	if !strings.Contains(exec(texts[true]), " tty env ") || strings.Contains(texts[false], "tty") || !strings.Contains(texts[true], `"/dev/tty"`) {
		t.Errorf("the plans are\n%s%s", exec(texts[false]), exec(texts[true]))
	}
}

// TestGentleEnd checks that a tool whose run is ended by a person gets as much time as after a timeout.
func TestGentleEnd(t *testing.T) {
	t.Parallel()
	stop := errors.New("stopped")
	for _, c := range []struct {
		verb  string
		cause error
		code  int
		err   error
		grace time.Duration
		least time.Duration
	}{
		{"tidy", bailey.Gentle{Cause: stop}, 7, nil, time.Minute, 0},
		{"tidy", stop, 137, stop, time.Hour, 0},
		{"deafsaid", bailey.Gentle{Cause: stop}, 137, stop, short, short},
	} {
		t.Run(fmt.Sprintf("%s %T", c.verb, c.cause), func(t *testing.T) {
			r, err := newJail(t, Config{Grace: c.grace}).Plan(t.Context(), bailey.Job{Command: probe, Args: []string{c.verb, "/tmp/beat"}})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			ctx, cancel := context.WithCancelCause(t.Context())
			var begin time.Time
			stop := sync.OnceFunc(func() { begin = time.Now(); cancel(c.cause) })
			// each tool writes when it waits
			out := writerFunc(func(b []byte) (int, error) { stop(); return len(b), nil })
			exit, err := r.Start(ctx, bailey.Lent{}, bailey.Streams{Stdout: out})
			if took := time.Since(begin); exit.Code != c.code || !errors.Is(err, c.err) || took < c.least || took > c.least+time.Minute {
				t.Errorf("%+v, %v after %v", exit, err, took)
			}
		})
	}
}
