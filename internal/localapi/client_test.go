package localapi

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/internal/peer"
)

// starter returns a client of an empty home. Its gateway is a shell script with the ready pipe as file descriptor 3.
func starter(t *testing.T, script string) (*Client, *atomic.Int32) {
	t.Helper()
	home := Home(t.TempDir())
	if err := os.Chmod(string(home), 0o700); err != nil {
		t.Fatal(err)
	}
	var starts atomic.Int32
	return &Client{Home: home, Start: func(_ Home, ready *os.File) (*os.Process, error) {
		starts.Add(1)
		cmd := exec.Command("sh", "-c", script)
		cmd.ExtraFiles = []*os.File{ready}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		return cmd.Process, nil
	}}, &starts
}

var ping = NewQuery[None, any]("ping")

func look(ctx context.Context, c *Client) error {
	_, err := ping.Ask(ctx, c, None{})
	return err
}

// TestSlowStartIsSaid checks that after two seconds a client reports once why it waits, and that the caller gets the
// gateway's error with its hint.
func TestSlowStartIsSaid(t *testing.T) {
	ktest.Long(t)
	c, _ := starter(t, `sleep 2.3; printf '{"kind":"conflict","message":"damaged","hint":"restore it"}\0' >&3`)
	var said []string
	c.Progress = func(s string) { said = append(said, s) }
	err := look(t.Context(), c)
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "damaged") || bailey.HintOf(err) != "restore it" {
		t.Errorf("%v, hint %q", err, bailey.HintOf(err))
	}
	if len(said) != 1 || !strings.Contains(said[0], "verifies its ledger") {
		t.Errorf("said %q", said)
	}
}

func TestGatewayThatDiesAtItsStart(t *testing.T) {
	for name, script := range map[string]string{"silent": "exit 1", "half a word": `printf read >&3`, "noise": `printf '\377\0' >&3`,
		"too much": `yes >&3`} {
		c, _ := starter(t, script)
		err := look(t.Context(), c)
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(bailey.HintOf(err), c.Home.LogFile()) {
			t.Errorf("%s: %v, hint %q", name, err, bailey.HintOf(err))
		}
	}
}

// TestWaitingEndsWithTheCaller checks that a waiting client returns when its context ends, with the cause of that end.
func TestWaitingEndsWithTheCaller(t *testing.T) {
	for name, held := range map[string]func(Home) string{
		"another client starts one": Home.StartLock, "one is ending": Home.Lock, "one starts": nil,
	} {
		c, starts := starter(t, "exec sleep 30")
		if held != nil {
			unlock, err := LockFile(held(c.Home))
			if err != nil {
				t.Fatal(err)
			}
			defer unlock()
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(100*time.Millisecond, func() { cancel(enough) })
		began := time.Now()
		if err := look(ctx, c); err != enough {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %v to hear of the end", name, took)
		}
		if held != nil && starts.Load() != 0 {
			t.Errorf("%s: a gateway was started all the same", name)
		}
	}
}

// TestAnEndingGatewayIsAwaited checks that if a gateway is ending, the client starts the next one as soon as the home
// is free.
func TestAnEndingGatewayIsAwaited(t *testing.T) {
	c, starts := starter(t, "exit 1")
	unlock, err := LockFile(c.Home.Lock())
	if err != nil {
		t.Fatal(err)
	}
	var early atomic.Int32
	early.Store(-1)
	time.AfterFunc(150*time.Millisecond, func() { early.Store(starts.Load()); unlock() })
	if err := look(t.Context(), c); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	if early.Load() != 0 || starts.Load() != 1 {
		t.Errorf("%d starts while the home was held, %d in all", early.Load(), starts.Load())
	}
}

func TestUnwrittenHomesHaveCures(t *testing.T) {
	c := &Client{Home: "/h"}
	for errno, word := range map[syscall.Errno]string{syscall.ENOSPC: "free some space", syscall.EDQUOT: "quota", syscall.EROFS: "read-write",
		syscall.EACCES: "BAILEY_HOME"} {
		err := c.homeWriteError(&os.PathError{Op: "open", Path: "/h/start.lock", Err: errno})
		if !strings.Contains(bailey.HintOf(err), word) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "/h") {
			t.Errorf("%v: %v, hint %q", errno, err, bailey.HintOf(err))
		}
	}
	known := &bailey.Error{Kind: bailey.Denied, Message: "m", Hint: "h", Err: &os.PathError{Op: "x", Path: "y", Err: syscall.EACCES}}
	if err := c.homeWriteError(known); err != error(known) {
		t.Errorf("a cure was replaced: %v", err)
	}
}

// TestUnheardIsSaidAgain checks that a query is repeated if the gateway ended before it read the query. If the gateway
// ended after that, it may have carried out the query, and the client must not repeat it.
func TestUnheardIsSaidAgain(t *testing.T) {
	for _, heard := range []bool{false, true} {
		c, starts := starter(t, "exit 1")
		l, err := peer.Listen(c.Home.Socket())
		if err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int32
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				switch n := asked.Add(1); {
				case n > 2:
					conn.ReadFrame()
					conn.WriteJSON(FrameResult, "heard")
				case heard:
					conn.ReadFrame()
				case n == 1: // probably before the query is written
				default:
					time.Sleep(50 * time.Millisecond) // until the query has arrived, unread
				}
				conn.Close()
			}
		}()
		out, err := ping.Ask(t.Context(), c, None{})
		l.Close()
		if !heard && (err != nil || out != "heard" || asked.Load() != 3) || heard && (!errors.Is(err, ErrUnreachable) || asked.Load() != 1) || starts.Load() != 0 {
			t.Errorf("heard %v: %q, %v, asked %d times", heard, out, err, asked.Load())
		}
	}
}
