package guestclient

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	"bailey"
	"bailey/internal/guestwire"
)

// freeAddress returns an address at which the agent can listen: its process has the network of the test.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func listen(t testing.TB, s *Session) (net.Listener, string) {
	t.Helper()
	address := freeAddress(t)
	l, err := s.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, address
}

// dial connects as a program in the guest. The agent listens from the first Accept on, so it may be too early.
func dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	var conn net.Conn
	eventually(t.(*testing.T), "the guest listens", func() (ok bool) {
		c, err := net.Dial("tcp4", address)
		conn = c
		return err == nil
	})
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// serveEach serves each connection of a listener with f.
func serveEach(t testing.TB, l net.Listener, f func(net.Conn)) {
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				f(c)
			})
		}
	})
}

// TestConnections checks that connections of the guest carry any bytes in both directions, that each direction ends by
// itself, and that more connections than a session has wait.
func TestConnections(t *testing.T) {
	s := newSession(t)
	l, address := listen(t, s)
	serveEach(t, l, func(c net.Conn) {
		fmt.Fprint(c, "first\n") // before the client says anything
		got, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		c.Write(bytes.ToUpper(got))
	})
	long := strings.Repeat("0123456789abcdef", 1<<16)
	var clients sync.WaitGroup
	for i := range guestwire.MaxConnections + 20 {
		c := dial(t, address)
		clients.Go(func() {
			defer c.Close()
			text := fmt.Sprintf("client %d", i)
			if i == 0 {
				text = long
			}
			go func() {
				io.WriteString(c, text)
				c.CloseWrite()
			}()
			got, err := io.ReadAll(c)
			if want := "first\n" + strings.ToUpper(text); err != nil || string(got) != want {
				t.Errorf("client %d got %d bytes, want %d: %v", i, len(got), len(want), err)
			}
		})
	}
	clients.Wait()
	if out, _, _ := run(t, s, shell("echo works")); out != "works\n" {
		t.Errorf("a command beside the connections says %q", out)
	}
}

// TestConnectionsEnd checks that connections end with the session and with the listener, and that a client that does not
// read is not waited for.
func TestConnectionsEnd(t *testing.T) {
	s := newSession(t)
	l, address := listen(t, s)
	taken := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		taken <- c
	}()
	client := dial(t, address)
	server := <-taken
	defer server.Close()
	s.Close()
	if n, err := client.Read(make([]byte, 1)); err == nil {
		t.Errorf("the guest's end still has %d bytes", n)
	}
	if _, err := io.ReadAll(server); err != nil {
		t.Errorf("this end is not closed but broken: %v", err)
	}
	if _, err := l.Accept(); err == nil {
		t.Error("the listener outlives the session")
	}

	s = newSession(t)
	l, _ = listen(t, s)
	l.Close()
	if _, err := l.Accept(); err == nil {
		t.Error("a closed listener accepts")
	}
}

// TestListenRefuses checks addresses that would be reachable from elsewhere, or are none, and one that is in use.
func TestListenRefuses(t *testing.T) {
	s := newSession(t)
	for _, address := range []string{"", "x", "0.0.0.0:80", "192.0.2.1:80", "[::1]:80", "127.0.0.1:0", "localhost:80", "127.0.0.1"} {
		if _, err := s.Listen(address); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%q: %v", address, err)
		}
		// The agent does not rely on its client.
		err := s.doOp(context.Background(), guestwire.OpAccept, &guestwire.Listener{Address: address}, &guestwire.Empty{})
		if bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("the agent, %q: %v", address, err)
		}
	}
	used, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	l, err := s.Listen(used.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(); bailey.KindOf(err) != bailey.Unavailable || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		t.Errorf("a port in use: %v", err)
	}
}
