package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey/internal/ktest"
)

// quiet starts a server that accepts and answers nothing. It reports each end of a connection.
func (w *world) quiet(at string) (ended chan struct{}) {
	ended = make(chan struct{}, 2000)
	ln := w.listen(at)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(io.Discard, c); c.Close(); ended <- struct{}{} }()
		}
	}()
	return ended
}

// TestAttackLeftOver checks that every connection ends with its call, in any state, and that the proxy no longer
// listens.
func TestAttackLeftOver(t *testing.T) {
	w := newWorld(t)
	w.names["plain.example.com"] = [][]string{{public}}
	w.names["api.example.com"] = [][]string{{public2}}
	over := w.quiet(public + ":22")
	w.quiet(public2 + ":443")
	w.host("open.example.com", "93.184.216.36", 443, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	before := runtime.NumGoroutine()
	y := w.start(Config{Allow: append(allow("api.example.com:443"), Endpoint{Host: "plain.example.com", Port: 22, Plain: true}, Endpoint{Host: "open.example.com", Port: 443, Inspect: true})})
	tunnel := y.tunnel("plain.example.com:22")
	io.WriteString(tunnel, "x")
	res, err := y.client().Get("https://open.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	hello := y.tunnel("api.example.com:443")
	hello.Write(clientHello(t, "api.example.com")[:50])
	half := y.raw()
	io.WriteString(half, "CONNECT pla")
	idle := y.raw()
	y.stop()
	for name, c := range map[string]net.Conn{"a tunnel": tunnel, "half a ClientHello": hello, "half a request": half, "a connection that said nothing": idle} {
		if !hangsUp(c) {
			t.Errorf("%s outlives the call", name)
		}
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("an answer that was cut off looks whole")
	}
	<-over
	if _, err := net.Dial("unix", y.unix); err == nil {
		t.Error("somebody still listens")
	}
	// dialling could reach another process that has the port by now
	if err := y.tcp.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the proxy still listens: %v", err)
	}
	if y.open.Load() != 0 {
		t.Errorf("%d connections count as open", y.open.Load())
	}
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before+6; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// TestAttackIdle checks that a silent connection is ended, and one with slow traffic is not.
func TestAttackIdle(t *testing.T) {
	t.Parallel()
	inTime(t, func(idle time.Duration) error {
		w := newWorld(t)
		w.names["plain.example.com"] = [][]string{{public}}
		over := w.quiet(public + ":22")
		y := w.start(Config{Allow: []Endpoint{{Host: "plain.example.com", Port: 22, Plain: true}}, Limits: Limits{Idle: idle}})
		defer y.stop()
		c := y.tunnel("plain.example.com:22")
		for i := range 30 { // 1.5 times the idle limit
			if _, err := io.WriteString(c, "x"); err != nil {
				return fmt.Errorf("a connection that trickles was ended after %d bytes: %w", i, err)
			}
			time.Sleep(idle / 20)
		}
		if !hangsUp(c) {
			t.Fatal("an idle connection stays")
		}
		<-over
		y.stop()
		if e := w.seen(KindClosed); len(e) != 1 || e[0].Up != 30 {
			return fmt.Errorf("events %+v", e)
		}
		return nil
	})
}

// TestLife checks that every connection has a time limit, even if bytes pass.
func TestLife(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.names["plain.example.com"] = [][]string{{public}}
	w.quiet(public + ":22")
	y := w.start(Config{Allow: []Endpoint{{Host: "plain.example.com", Port: 22, Plain: true}}, Limits: Limits{Life: 100 * time.Millisecond}})
	c := y.tunnel("plain.example.com:22")
	c.SetDeadline(time.Time{}) // the proxy, not this deadline, must end it
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := io.WriteString(c, "x"); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it goes on")
		}
	}
}

// TestBudgetBytes checks that the bytes of a call are counted exactly, and that nothing passes beyond the limit.
func TestBudgetBytes(t *testing.T) {
	w := newWorld(t)
	w.names["plain.example.com"] = [][]string{{public}}
	ln := w.listen(public + ":22")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, endless{}); c.Close() }()
		}
	}()
	const most = 1_000_001
	y := w.start(Config{Allow: []Endpoint{{Host: "plain.example.com", Port: 22, Plain: true}}, Limits: Limits{Bytes: most}})
	c := y.tunnel("plain.example.com:22")
	if n, _ := io.Copy(io.Discard, c); n != most {
		t.Errorf("%d bytes came, %d allowed", n, most)
	}
	w.await(KindRefused, "used up its bytes")
	if got := y.say("CONNECT plain.example.com:22 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 503 ") {
		t.Errorf("another connection: %q", got)
	}
	y.stop()
	if y.Totals().Down != most {
		t.Errorf("totals %+v", y.Totals())
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestBudgetBytesOpened checks the same for opened TLS.
func TestBudgetBytesOpened(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, func(w http.ResponseWriter, r *http.Request) { io.Copy(w, endless{}) })
	y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: true}}, Limits: Limits{Bytes: 1 << 20}})
	res, err := y.client().Get("https://api.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); err == nil || n > 1<<20 {
		t.Errorf("%d bytes came, %v", n, err)
	}
	w.await(KindRefused, "used up its bytes")
}

// TestBudgetConnections checks the limits on concurrent and on all connections.
func TestBudgetConnections(t *testing.T) {
	w := newWorld(t)
	w.names["plain.example.com"] = [][]string{{public}}
	w.quiet(public + ":22")
	y := w.start(Config{Allow: []Endpoint{{Host: "plain.example.com", Port: 22, Plain: true}}, Limits: Limits{Open: 2, Total: 4}})
	one, two := y.tunnel("plain.example.com:22"), y.tunnel("plain.example.com:22")
	const ask = "CONNECT plain.example.com:22 HTTP/1.1\r\n\r\n"
	if got := y.say(ask); !strings.Contains(got, "503") || !strings.Contains(got, "2 open connections") {
		t.Errorf("a third at once: %q", got)
	}
	one.Close()
	two.Close()
	for end := time.Now().Add(time.Minute); y.open.Load() > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	y.tunnel("plain.example.com:22").Close()
	if got := y.say(ask); !strings.Contains(got, "503") || !strings.Contains(got, "connections, the maximum") {
		t.Errorf("a fifth in all: %q", got)
	}
}

// TestEventsAreBounded checks that events beyond the limit are only counted, and that allowed connections cannot
// displace a refusal.
func TestEventsAreBounded(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	y := w.start(Config{Allow: allow("api.example.com:443"), Limits: Limits{Events: 3}})
	for range 10 {
		if _, err := y.get("https://api.example.com/"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		y.say(fmt.Sprintf("CONNECT evil%d.example:443 HTTP/1.1\r\n\r\n", i))
	}
	y.stop()
	if closed, bad := w.seen(KindClosed), w.seen(KindRefused); len(closed) != 3 || len(bad) != 3 {
		t.Errorf("%d and %d events", len(closed), len(bad))
	}
	if got := y.Totals(); got.Connections != 10 || got.Refused != 10 || got.Untold != 14 {
		t.Errorf("totals %+v", got)
	}
}

// TestThousand checks 1,000 concurrent tunnels, over TCP and over a unix socket.
func TestThousand(t *testing.T) {
	ktest.Long(t)
	w := newWorld(t)
	w.names["plain.example.com"] = [][]string{{public}}
	ln := w.listen(public + ":22")
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	const n = 1000
	y := w.start(Config{Allow: []Endpoint{{Host: "plain.example.com", Port: 22, Plain: true}}, Limits: Limits{Open: n}})
	all := make([]net.Conn, n)
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			network, addr := "tcp", y.addr
			if i%2 == 0 {
				network, addr = "unix", y.unix
			}
			c, err := net.Dial(network, addr)
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = c
			io.WriteString(c, "CONNECT plain.example.com:22 HTTP/1.1\r\n\r\n")
			want := fmt.Sprintf("HTTP/1.1 200 Connection established\r\n\r\n%d", i)
			fmt.Fprint(c, i)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Errorf("%d: %q, %v", i, got, err)
			}
		})
	}
	work.Wait()
	if got := y.open.Load(); got != n {
		t.Errorf("%d are open", got)
	}
	y.stop()
	for _, c := range all {
		if c != nil && !hangsUp(c) {
			t.Fatal("one outlives the call")
		}
	}
	if got := y.Totals().Connections; got != n {
		t.Errorf("%d connections were counted", got)
	}
}

// TestCallsAreApart checks that a call never uses a connection of another call.
func TestCallsAreApart(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, echo)
	for range 2 {
		y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: true}}})
		for range 2 {
			if _, err := y.get("https://api.example.com/"); err != nil {
				t.Fatal(err)
			}
		}
		y.stop()
	}
	if got := w.reached(); len(got) != 2 {
		t.Errorf("dialled %v: want one for each call", got)
	}
}

// TestUnix checks the proxy over a unix socket, through which a cage without a network reaches it.
func TestUnix(t *testing.T) {
	w := newWorld(t)
	w.host("api.example.com", public, 443, func(w http.ResponseWriter, r *http.Request) { io.CopyN(w, endless{}, 3<<20) })
	y := w.start(Config{Allow: allow("api.example.com:443")})
	c, err := net.Dial("unix", y.unix)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("\x05\x01\x00\x05\x01\x00\x03\x0fapi.example.com\x01\xbb"))
	if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: w.roots}, DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
	res, err := client.Get("https://api.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); n != 3<<20 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestUnreachable checks that if an allowed target cannot be reached, the answer says so.
func TestUnreachable(t *testing.T) {
	w := newWorld(t)
	w.names["api.example.com"] = [][]string{{public}}
	y := w.start(Config{Allow: allow("api.example.com:443", "gone.example.com:443"), Dial: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
		return dialTCP(ctx, netip.MustParseAddrPort("127.0.0.1:1"))
	}})
	for name, want := range map[string]string{"api.example.com": "the connection was refused", "gone.example.com": "does not resolve"} {
		if got := y.say("CONNECT " + name + ":443 HTTP/1.1\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") || !strings.Contains(got, want) {
			t.Errorf("%s: %q", name, got)
		}
		if got := y.socks(3, 1, []byte(name), 443); got != socksUnreachable {
			t.Errorf("%s by SOCKS5: %d", name, got)
		}
	}
	w.await(KindFailed, "refused")
}

// TestLongUpload checks that an upload is not idle if it takes longer than the idle limit and is answered only at its
// end.
func TestLongUpload(t *testing.T) {
	for _, inspect := range []bool{false, true} {
		t.Run(fmt.Sprintf("inspected %v", inspect), func(t *testing.T) {
			t.Parallel()
			inTime(t, func(idle time.Duration) error {
				w := newWorld(t)
				w.host("api.example.com", public, 443, func(rw http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					fmt.Fprint(rw, n, err)
				})
				y := w.start(Config{Allow: []Endpoint{{Host: "api.example.com", Port: 443, Inspect: inspect}}, Limits: Limits{Idle: idle}})
				defer y.stop()
				r, out := io.Pipe()
				go func() {
					for range 30 { // 1.5 times the idle limit
						time.Sleep(idle / 20)
						io.WriteString(out, "x")
					}
					out.Close()
				}()
				res, err := y.client().Post("https://api.example.com/", "text/plain", r)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				b, err := io.ReadAll(res.Body)
				if err == nil && string(b) != "30 <nil>" {
					err = fmt.Errorf("the host says %q", b)
				}
				return err
			})
		})
	}
}
