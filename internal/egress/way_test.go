package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey"
)

// TestPlanOfANetwork checks that each name has its own address and planned ports, and a wildcard has none.
func TestPlanOfANetwork(t *testing.T) {
	n, err := Plan([]Endpoint{
		{Host: "b.example.com", Port: 443}, {Host: "a.example.com", Port: 8443}, {Host: "a.example.com", Port: 443}, {Host: "*.example.org", Port: 443},
		{Host: "127.0.0.1", Port: 3128, Private: true, Plain: true}, {Host: "192.0.2.1", Port: 443, Private: true}, {Host: "localhost", Port: 80, Private: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range n.Listen {
		got = append(got, l.Network+" "+l.Address)
	}
	for _, h := range n.Hosts {
		got = append(got, h.Address+" "+h.Name)
	}
	want := []string{"tcp 127.0.0.1:3129", "tcp 127.0.0.1:3128", "tcp 127.77.0.1:443", "tcp 127.77.0.1:8443", "tcp 127.77.0.2:443", "tcp 127.0.0.1:80",
		"127.77.0.1 a.example.com", "127.77.0.2 b.example.com"}
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	for _, v := range []string{"HTTPS_PROXY=http://127.0.0.1:3129", "https_proxy=http://127.0.0.1:3129", "NO_PROXY=localhost,127.0.0.1,::1", "SSL_CERT_FILE=" + bailey.TrustFile} {
		if !slices.Contains(n.Env, v) {
			t.Errorf("%s is not among %q", v, n.Env)
		}
	}
	again, _ := Plan(slices.Clone(n.Endpoints))
	if fmt.Sprint(again) != fmt.Sprint(n) {
		t.Error("the order of entries makes a difference")
	}
}

func TestPlanRefused(t *testing.T) {
	many := make([]Endpoint, maxSeats+1)
	for i := range many {
		many[i] = Endpoint{Host: fmt.Sprintf("n%d.example.com", i), Port: 443}
	}
	for name, all := range map[string][]Endpoint{
		"private": {{Host: "127.0.0.1", Port: 80}}, "twice": {{Host: "a.example.com", Port: 443}, {Host: "A.example.com", Port: 443}},
		"the same socket": {{Host: "localhost", Port: 80, Private: true}, {Host: "127.0.0.1", Port: 80, Private: true}}, "too many": many,
	} {
		if n, err := Plan(all); err == nil {
			t.Errorf("%s: planned %+v", name, n)
		}
	}
}

// TestWay checks that the planned sockets lead to their targets, and nowhere once the cage is gone.
func TestWay(t *testing.T) {
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	go func() {
		for {
			c, err := far.Accept()
			if err != nil {
				return
			}
			go func() { io.WriteString(c, "far\n"); io.Copy(io.Discard, c); c.Close() }()
		}
	}()
	port := far.Addr().(*net.TCPAddr).Port
	n, err := Plan([]Endpoint{{Host: "127.0.0.1", Port: port, Private: true, Plain: true}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWay(WayConfig{Network: n, Authorities: []byte("whom to believe\n")})
	if err != nil {
		t.Fatal(err)
	}
	if string(w.Trusted()) != "whom to believe\n" {
		t.Errorf("trusts %q", w.Trusted())
	}
	var listeners []net.Listener
	for range n.Listen {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- w.Serve(ctx, listeners) }()
	c, err := net.Dial("tcp", listeners[1].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "far\n" {
		t.Errorf("%q %v", b, err)
	}
	refused, err := net.Dial("tcp", listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(refused, "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n")
	answer, _ := io.ReadAll(refused)
	if !strings.Contains(string(answer), "egress to evil.example:443 is not allowed") {
		t.Errorf("%q", answer)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(b); !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
		t.Errorf("a connection is open past the cage: %v", err)
	}
	r := w.Report()
	if r.Connections != 1 || r.Refused != 1 || len(r.Refusals()) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestWayHalf checks that no socket is served if some are missing or if one breaks.
func TestWayHalf(t *testing.T) {
	n, err := Plan([]Endpoint{{Host: "a.example.com", Port: 443}})
	if err != nil {
		t.Fatal(err)
	}
	for _, come := range []int{1, 2} {
		w, err := NewWay(WayConfig{Network: n})
		if err != nil {
			t.Fatal(err)
		}
		var listeners []net.Listener
		for range come {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			listeners = append(listeners, l)
		}
		listeners[0].Close()
		if err := w.Serve(t.Context(), listeners); err == nil {
			t.Errorf("%d sockets: served", come)
		}
		for _, l := range listeners {
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%d sockets: one is open: %v", come, err)
			}
		}
	}
}
