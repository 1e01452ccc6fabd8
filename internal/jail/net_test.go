//go:build linux

package jail

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// echo is a Way whose listeners answer each line with their number and that line.
type echo struct {
	trusted string
	fail    error // the error with which Serve returns at once
	open    atomic.Int64
	served  atomic.Bool
}

func (e *echo) Trusted() []byte             { return []byte(e.trusted) }
func (e *echo) Report() bailey.EgressReport { return bailey.EgressReport{} }

func (e *echo) Serve(ctx context.Context, listeners []net.Listener) error {
	e.served.Store(true)
	var all sync.WaitGroup
	for n, l := range listeners {
		defer context.AfterFunc(ctx, func() { l.Close() })()
		if e.fail != nil {
			l.Close()
			continue
		}
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				e.open.Add(1)
				all.Go(func() {
					defer e.open.Add(-1)
					defer c.Close()
					defer context.AfterFunc(ctx, func() { c.Close() })()
					for in := bufio.NewScanner(c); in.Scan(); {
						fmt.Fprintf(c, "%d: %s\n", n, in.Text())
					}
				})
			}
		})
	}
	all.Wait()
	return e.fail
}

// network is the network of a cage with a proxy, a name with two ports (one below 1024), and a socket path.
func network() *bailey.Network {
	return &bailey.Network{
		Listen: []bailey.Listen{{Network: "tcp", Address: "127.0.0.1:3128"}, {Network: "tcp", Address: "127.77.0.1:443"},
			{Network: "tcp", Address: "127.77.0.1:8443"}, {Network: "unix", Address: "/run/bailey/calls.sock"}},
		Hosts: []bailey.HostName{{Address: "127.77.0.1", Name: "api.example.com"}},
		Env:   []string{"HTTPS_PROXY=http://127.0.0.1:3128"},
	}
}

func TestNetwork(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	for _, c := range []struct{ network, address, want string }{
		{"tcp", "127.0.0.1:3128", "0: a word\nok"},
		{"tcp", "api.example.com:443", "1: a word\nok"},
		{"tcp", "api.example.com:8443", "2: a word\nok"},
		{"tcp", "127.77.0.1:80", "connection refused"},
		{"tcp", "127.0.0.1:443", "connection refused"},
		{"tcp", "other.example.com:443", "no such host"},
	} {
		r := ask(t, j, bailey.Job{Network: network()}, "talk", c.network, c.address).must(t)
		if got := strings.TrimSpace(r.out); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.address, got, c.want)
		}
	}
	if r := ask(t, j, bailey.Job{}, "talk", "tcp", "127.0.0.1:3128").must(t); !strings.Contains(r.out, "permission denied") {
		t.Errorf("a cage without a network: %q", r.out)
	}
	if r := ask(t, j, bailey.Job{Network: network()}, "talk", "unix", "/run/bailey/calls.sock").must(t); !strings.Contains(r.out, "permission denied") {
		t.Errorf("a tool's cage has sockets of the machine: %q", r.out)
	}
	r := ask(t, j, bailey.Job{Network: network()}, "sees").must(t)
	if !strings.Contains(r.out, `"HTTPS_PROXY=http://127.0.0.1:3128"`) {
		t.Errorf("the environment: %s", r.out)
	}
}

// TestNetworkOfADaemon checks that a tool that talks to a daemon can use only Unix sockets, which lead to the Way.
func TestNetworkOfADaemon(t *testing.T) {
	j := newJail(t, Config{})
	n := network()
	n.API = &bailey.API{Socket: "docker"}
	for _, c := range []struct{ network, address, want string }{
		{"unix", "/run/bailey/calls.sock", "3: a word\nok"},
		{"unix", "/run/bailey/other.sock", "no such file"},
		{"unix", "/var/run/docker.sock", "no such file"},
		{"tcp", "127.0.0.1:3128", "permission denied"},
	} {
		r := ask(t, j, bailey.Job{Network: n}, "talk", c.network, c.address).must(t)
		if got := strings.TrimSpace(r.out); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.address, got, c.want)
		}
	}
}

// TestNetworkIsPlanned checks that the plan contains the listeners and the names that the tool resolves, and nothing of
// one run.
func TestNetworkIsPlanned(t *testing.T) {
	j := newJail(t, Config{})
	n := network()
	n.Trust = true
	job := bailey.Job{Command: probe, Network: n}
	cage := planCage(t, j, job)
	for _, line := range []string{"\nloopback\n", `listen "" 127.0.0.1:3128`, `listen "" 127.77.0.1:443`, `listen "run/bailey/calls.sock"`,
		`"127.0.0.1 localhost\n127.77.0.1 api.example.com\n"`, `lent "trusted authorities" "run/bailey/trust/authorities.pem" 0444`} {
		if !strings.Contains(cage.Plan, line) {
			t.Errorf("%s is not in the plan:\n%s", line, cage.Plan)
		}
	}
	if again := planCage(t, j, job); again.PlanDigest != cage.PlanDigest {
		t.Error("two plans of one job differ")
	}
	n.Listen[1].Address = "127.77.0.1:444"
	if other := planCage(t, j, job); other.PlanDigest == cage.PlanDigest {
		t.Error("another port, and the same digest")
	}
	if r := planCage(t, j, bailey.Job{Command: probe}); strings.Contains(r.Plan, "loopback") {
		t.Error("a cage without a network has a loopback interface")
	}
}

// TestNetworkTrust checks that the trusted authorities are passed at the start and cannot be changed.
func TestNetworkTrust(t *testing.T) {
	j := newJail(t, Config{})
	n := network()
	n.Trust = true
	start := func(way bailey.Way, args ...string) (string, error) {
		run, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: args, Network: n})
		if err != nil {
			t.Fatal(err)
		}
		defer run.Close()
		var out bytes.Buffer
		_, err = run.Start(t.Context(), bailey.Lent{Way: way}, bailey.Streams{Stdout: &out})
		return out.String(), err
	}
	if out, err := start(&echo{trusted: "whom to believe\n"}, "show", bailey.TrustFile); err != nil || out != "whom to believe\nok\n" {
		t.Errorf("%q %v", out, err)
	}
	if out, err := start(&echo{trusted: "whom to believe\n"}, "write", bailey.TrustFile); err != nil || strings.HasPrefix(out, "ok") {
		t.Errorf("written: %q %v", out, err)
	}
	if _, err := start(&echo{trusted: strings.Repeat("x", maxTrust+1)}, "sees"); !errors.Is(err, bailey.Invalid) {
		t.Errorf("too much: %v", err)
	}
}

// TestAttackOutOfTheNetwork checks that a cage with a network reaches no socket of the host by any protocol.
func TestAttackOutOfTheNetwork(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	abstract, err := net.Listen("unix", "@bailey-test-"+random(t))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	var callers atomic.Int64
	for _, l := range []net.Listener{tcp, abstract} {
		go func() {
			if c, err := l.Accept(); err == nil {
				callers.Add(1)
				c.Close()
			}
		}()
	}
	go func() {
		if n, _, err := udp.ReadFrom(make([]byte, 64)); err == nil && n > 0 {
			callers.Add(1)
		}
	}()
	for _, args := range [][]string{
		{"talk", "tcp", tcp.Addr().String()}, {"talk", "unix", abstract.Addr().String()}, {"talk", "tcp", "192.0.2.1:443"}, {"talk", "tcp", "[2001:db8::1]:443"},
		{"talk", "tcp", "169.254.169.254:80"}, {"talk", "tcp", "[::ffff:127.0.0.1]:" + strings.TrimPrefix(tcp.Addr().String(), "127.0.0.1:")},
		{"datagram", udp.LocalAddr().String()}, {"datagram", "127.0.0.1:53"}, {"datagram", "127.0.0.53:53"}, {"datagram", "192.0.2.1:443"}, {"datagram", "[2001:db8::1]:53"},
		{"datagram", "255.255.255.255:67"}, {"datagram", "224.0.0.251:5353"},
	} {
		r := ask(t, j, bailey.Job{Network: network()}, args...).must(t)
		if strings.Contains(r.out, "ok") || strings.Contains(r.out, "i/o timeout") {
			t.Errorf("%v: %q", args, r.out)
		}
	}
	if n := callers.Load(); n > 0 {
		t.Errorf("%d callers came out of the cage", n)
	}
}

// TestAttackHeldPastTheCall checks that a connection still open at the end of a call, and a process left in the cage,
// end with the call.
func TestAttackHeldPastTheCall(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	dir := t.TempDir()
	beat := filepath.Join(dir, "beat")
	run, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"idle", "tcp", "127.0.0.1:3128", beat}, Network: network(),
		Places: []bailey.Place{place(t, dir, true)}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var out bytes.Buffer
	e := &echo{}
	if _, err := run.Start(t.Context(), bailey.Lent{Way: e}, bailey.Streams{Stdout: &out}); err != nil || out.String() != "ok\nok\n" {
		t.Fatalf("%v %q", err, &out)
	}
	if !e.served.Load() || e.open.Load() != 0 {
		t.Errorf("served %v, %d connections are open", e.served.Load(), e.open.Load())
	}
	if !still(t, beat) {
		t.Error("what the call left lives")
	}
}

// TestNetworkCancelled checks that a cancelled call ends its network at any time.
func TestNetworkCancelled(t *testing.T) {
	ktest.Long(t)
	j := newJail(t, Config{})
	run, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"sleep"}, Network: network()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	e, stop := &echo{}, errors.New("stopped")
	go func() {
		for begin := time.Now(); !e.served.Load() && time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
		}
		time.AfterFunc(200*time.Millisecond, func() { cancel(stop) })
	}()
	if _, err := run.Start(ctx, bailey.Lent{Way: e}, bailey.Streams{}); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	if !e.served.Load() || e.open.Load() != 0 {
		t.Errorf("served %v, %d connections", e.served.Load(), e.open.Load())
	}
}

// TestNetworkBreaks checks that if the Way ends by itself, the network is closed and the run reports it.
func TestNetworkBreaks(t *testing.T) {
	j := newJail(t, Config{})
	run, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"sees"}, Network: network()})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	exit, err := run.Start(t.Context(), bailey.Lent{Way: &echo{fail: errors.New("a fault")}}, bailey.Streams{})
	if exit.Code == bailey.NeverRan || !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "the network of the jail failed") {
		t.Errorf("%+v %v", exit, err)
	}
}

// TestNetworkRefused checks that a network that cannot be enforced is not planned, and that a run starts with a Way
// only if it was planned.
func TestNetworkRefused(t *testing.T) {
	j := newJail(t, Config{})
	tcp := func(address string) *bailey.Network {
		return &bailey.Network{Listen: []bailey.Listen{{Network: "tcp", Address: address}}}
	}
	for name, n := range map[string]*bailey.Network{
		"not loopback": tcp("192.0.2.1:80"), "any": tcp("0.0.0.0:80"), "version 6": tcp("[::1]:80"), "no port": tcp("127.0.0.1:0"), "a name": tcp("localhost:80"),
		"a protocol": {Listen: []bailey.Listen{{Network: "udp", Address: "127.0.0.1:53"}}},
		"a path":     {Listen: []bailey.Listen{{Network: "unix", Address: "/tmp/x"}}},
		"a way out":  {Listen: []bailey.Listen{{Network: "unix", Address: "/run/bailey/../x"}}},
		"a line":     {Hosts: []bailey.HostName{{Address: "127.0.0.1", Name: "a\n192.0.2.1 b"}}},
		"an address": {Hosts: []bailey.HostName{{Address: "192.0.2.1", Name: "b"}}},
		"too many":   {Listen: make([]bailey.Listen, maxListeners+1)},
	} {
		if run, err := j.Plan(t.Context(), bailey.Job{Command: probe, Network: n}); err == nil {
			run.Close()
			t.Errorf("%s: planned", name)
		}
	}
	for name, c := range map[string]struct {
		network *bailey.Network
		way     bailey.Way
	}{"a way without a network": {nil, &echo{}}, "a network without a way": {network(), nil}} {
		run, err := j.Plan(t.Context(), bailey.Job{Command: probe, Args: []string{"sees"}, Network: c.network})
		if err != nil {
			t.Fatal(err)
		}
		if exit, err := run.Start(t.Context(), bailey.Lent{Way: c.way}, bailey.Streams{}); err == nil || exit.Code != bailey.NeverRan {
			t.Errorf("%s: %+v %v", name, exit, err)
		}
		run.Close()
	}
	lesser := lesserJail(t, Config{})
	if _, err := lesser.Plan(t.Context(), bailey.Job{Command: probe, Network: network()}); !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "netns") {
		t.Errorf("without namespaces: %v", err)
	}
}
