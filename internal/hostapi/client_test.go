//go:build linux || darwin

package hostapi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// serveOnce listens on a socket and calls f for one connection.
func serveOnce(t *testing.T, f func(*peer.Conn)) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "bha")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Client{Socket: filepath.Join(dir, "s")}
	l, err := peer.Listen(c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err == nil {
			f(conn)
			conn.Close()
		}
	}()
	return c
}

// TestUnreachable checks the errors of a client whose host does not exist, ends, or cannot be started.
func TestUnreachable(t *testing.T) {
	c := &Client{Socket: filepath.Join(t.TempDir(), "none")}
	_, err := List.Ask(t.Context(), c, Owner{Person: "ann"}, None{})
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "" || strings.Contains(err.Error(), "\n") {
		t.Errorf("no host: %q", err)
	}
	c = serveOnce(t, func(conn *peer.Conn) { conn.ReadFrame() })
	_, err = List.Ask(t.Context(), c, Owner{Person: "ann"}, None{})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "stopped during") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a host that ends: %q", err)
	}
	c = serveOnce(t, func(conn *peer.Conn) { conn.ReadFrame(); conn.WriteFrame('?', nil) })
	if _, err = List.Ask(t.Context(), c, Owner{Person: "ann"}, None{}); err == nil {
		t.Error("a frame of an unknown kind is an answer")
	}
	d := Dir(filepath.Join(t.TempDir(), "host"))
	c = &Client{Socket: d.Socket(), Start: d.StartHost} // no program is beside the test
	_, err = List.Ask(t.Context(), c, Owner{Person: "ann"}, None{})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "is not installed") || !strings.Contains(bailey.HintOf(err), "install it") {
		t.Errorf("%v (%s)", err, bailey.HintOf(err))
	}
}

// TestUnheard sends a query to a host that ends before it reads the query. The next host answers.
func TestUnheard(t *testing.T) {
	dir, err := os.MkdirTemp("", "bha")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Client{Socket: filepath.Join(dir, "s")}
	l, err := peer.Listen(c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if n > 0 {
				conn.ReadFrame()
				conn.WriteJSON(localapi.FrameResult, []Sandbox{{ID: "x"}})
			} else {
				conn.Read(make([]byte, 1)) // the query has arrived, and the rest is not read
			}
			conn.Close()
		}
	}()
	list, err := List.Ask(t.Context(), c, Owner{Person: "ann"}, None{})
	if err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestErrorKept checks that an error of the host keeps its kind and its hint.
func TestErrorKept(t *testing.T) {
	c := serveOnce(t, func(conn *peer.Conn) {
		conn.ReadFrame()
		conn.WriteJSON(localapi.FrameError, localapi.NewFailure(bailey.Conflict.New("it exists", "choose another")))
	})
	_, err := Show.Ask(t.Context(), c, Owner{Person: "ann"}, Target{"x"})
	if !errors.Is(err, bailey.Conflict) || err.Error() != "it exists" || bailey.HintOf(err) != "choose another" {
		t.Errorf("%v (%s)", err, bailey.HintOf(err))
	}
}

// TestInputWindow checks that a client sends no more input than the host allows, and that the answer ends the command while
// input is left.
func TestInputWindow(t *testing.T) {
	const chunk = 1000 // does not divide the window
	got := make(chan int, 1)
	c := serveOnce(t, func(conn *peer.Conn) {
		conn.ReadFrame()
		n := 0
		for n < InputWindow-chunk {
			kind, b, err := conn.ReadFrame()
			if kind != localapi.FrameInput || err != nil {
				break
			}
			n += len(b)
		}
		conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, b, err := conn.ReadFrame(); err == nil {
			n += len(b)
		}
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		conn.WriteJSON(FrameCredit, chunk)
		if kind, b, err := conn.ReadFrame(); kind == localapi.FrameInput && err == nil {
			n += len(b)
		}
		got <- n
		conn.WriteJSON(localapi.FrameResult, Exit{Code: 7})
	})
	exit, err := c.Exec(t.Context(), Owner{Person: "ann"}, Command{Argv: []string{"x"}}, Streams{Stdin: chunks{chunk}})
	if n := <-got; n > InputWindow+chunk || n < InputWindow {
		t.Errorf("%d bytes were sent", n)
	}
	if err != nil || exit.Code != 7 {
		t.Errorf("%+v, %v", exit, err)
	}
}

// chunks is an endless input that gives n bytes at once.
type chunks struct{ n int }

func (c chunks) Read(p []byte) (int, error) { return min(c.n, len(p)), nil }

// TestHere checks which host a process uses.
func TestHere(t *testing.T) {
	home := localapi.Home(t.TempDir())
	t.Setenv(SocketVariable, "")
	c, err := Here(home)
	if err != nil || c.Socket != home.Path("host/host.sock") || c.Start == nil || c.Root {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv(SocketVariable, "/run/x.sock")
	if c, err = Here(home); err != nil || c.Socket != "/run/x.sock" || c.Start != nil || !c.Root {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv(SocketVariable, "x.sock")
	if _, err = Here(home); !errors.Is(err, bailey.Invalid) {
		t.Error(err)
	}
}
