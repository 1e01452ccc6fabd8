package strangers

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// end is one end of a connection with a given remote address.
type end struct {
	net.Conn
	from string
}

func (e end) RemoteAddr() net.Addr { return addr(e.from) }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// enter adds a connection from an address to the crowd and returns the server's side and the client's.
func enter(t *testing.T, c *Crowd, from string) (*Conn, net.Conn) {
	t.Helper()
	server, client := net.Pipe()
	t.Cleanup(func() { client.Close(); server.Close() })
	e := end{server, from}
	return c.addConn(e, Source(e)), client
}

// closed reports whether the server closed a connection.
func closed(client net.Conn) bool {
	client.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := client.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestOldestOfASourceLeaves(t *testing.T) {
	c := New(Limits{PerSource: 2, Total: 100})
	_, first := enter(t, c, "192.0.2.1:1")
	_, second := enter(t, c, "192.0.2.1:2")
	_, other := enter(t, c, "192.0.2.2:1")
	_, third := enter(t, c, "192.0.2.1:3")
	if !closed(first) || closed(second) || closed(third) || closed(other) || c.Size() != 3 {
		t.Errorf("closed: %v %v %v, another source's %v; %d are left", closed(first), closed(second), closed(third), closed(other), c.Size())
	}
}

// TestGrace checks that new strangers stay if there is room at all, and that older ones are closed when the next one
// comes.
func TestGrace(t *testing.T) {
	c := New(Limits{PerSource: 1, Total: 1, Most: 3, Grace: time.Hour})
	conn, first := enter(t, c, "192.0.2.1:1")
	_, second := enter(t, c, "192.0.2.1:2")
	if closed(first) || closed(second) || c.Size() != 2 {
		t.Errorf("closed: %v %v", closed(first), closed(second))
	}
	conn.since = conn.since.Add(-2 * time.Hour)
	_, third := enter(t, c, "192.0.2.2:1")
	if !closed(first) || closed(second) || closed(third) || c.Size() != 2 {
		t.Errorf("closed: %v %v %v", closed(first), closed(second), closed(third))
	}
	_, fourth := enter(t, c, "192.0.2.1:3")
	_, fifth := enter(t, c, "192.0.2.1:4")
	if !closed(second) || closed(third) || closed(fourth) || closed(fifth) || c.Size() != 3 {
		t.Errorf("closed: %v %v %v %v", closed(second), closed(third), closed(fourth), closed(fifth))
	}
}

func TestSourceThatHasMostMakesPlace(t *testing.T) {
	c := New(Limits{PerSource: 3, Total: 4})
	var flood []net.Conn
	for range 3 {
		_, client := enter(t, c, "192.0.2.1:1")
		flood = append(flood, client)
	}
	_, one := enter(t, c, "192.0.2.2:1")
	_, two := enter(t, c, "192.0.2.3:1")
	if !closed(flood[0]) || closed(flood[1]) || closed(one) || closed(two) || c.Size() != 4 {
		t.Errorf("closed: %v %v, other sources' %v %v; %d are left", closed(flood[0]), closed(flood[1]), closed(one), closed(two), c.Size())
	}
}

func TestKnownKeepsItsPlace(t *testing.T) {
	c := New(Limits{PerSource: 1, Total: 1})
	known, client := enter(t, c, "192.0.2.1:1")
	known.Known()
	known.Known()
	for range 3 {
		enter(t, c, "192.0.2.1:1")
	}
	if closed(client) || c.Size() != 1 {
		t.Errorf("a known one was closed: %v; %d strangers", closed(client), c.Size())
	}
	known.Close()
	if c.Size() != 1 {
		t.Errorf("%d strangers after a known one is gone", c.Size())
	}
}

func TestSources(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[::ffff:192.0.2.1]:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::/64", "[2001:db8::ffff:2]:81": "2001:db8::/64",
		"[fe80::1%eth0]:80": "fe80::/64", "@": "@", "": "",
	} {
		if got := Source(end{nil, from}); got != want {
			t.Errorf("%q is from %q, want %q", from, got, want)
		}
	}
}

func TestOfFindsTheConnBelowTLS(t *testing.T) {
	c := New(Limits{PerSource: 1, Total: 1})
	conn, _ := enter(t, c, "192.0.2.1:1")
	if Of(tls.Server(conn, nil)) != conn || Of(conn) != conn || Of(conn.Conn) != nil {
		t.Error("the connection below is another")
	}
}

// TestManyAtOnce checks that the count is correct if connections come, become known and leave concurrently.
func TestManyAtOnce(t *testing.T) {
	c := New(Limits{PerSource: 4, Total: 16})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	crowd := c.Listener(l, nil)
	var work sync.WaitGroup
	work.Go(func() {
		for i := 0; ; i++ {
			conn, err := crowd.Accept()
			if err != nil {
				return
			}
			if i%3 == 0 {
				Of(conn).Known()
			}
			work.Go(func() {
				conn.Read(make([]byte, 1))
				conn.Close()
			})
		}
	})
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range 25 {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				if n := c.Size(); n > 4 {
					t.Errorf("%d strangers of one source", n)
				}
				conn.Close()
			}
		})
	}
	clients.Wait()
	crowd.Close()
	work.Wait()
	if c.Size() != 0 || len(c.sources) != 0 {
		t.Errorf("%d strangers of %d sources are left", c.Size(), len(c.sources))
	}
}
