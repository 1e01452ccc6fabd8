package egress

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"bailey/internal/ktest"
)

// TestNetwork runs in its own network namespace, where this machine has a public, a private and a metadata address with
// listeners, so that the kernel really connects.
func TestNetwork(t *testing.T) {
	ktest.Require(t, "userns", "netns", "ip")
	if os.Getenv("BAILEY_EGRESS_NETWORK") == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestNetwork$", "-test.v", "-test.count=1")
		cmd.Env = append(os.Environ(), "BAILEY_EGRESS_NETWORK=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestNetwork") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for _, words := range []string{"link set lo up", "addr add " + public + "/32 dev lo", "addr add 10.0.0.9/32 dev lo", "addr add 169.254.169.254/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(words)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", words, err, out)
		}
	}
	met := map[string]*atomic.Int64{}
	for _, addr := range []string{public, "10.0.0.9", "169.254.169.254", "127.0.0.1"} {
		ln, err := net.Listen("tcp", addr+":443")
		if err != nil {
			t.Fatal(err)
		}
		n := &atomic.Int64{}
		met[addr] = n
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				n.Add(1)
				c.Close()
			}
		}()
	}
	w := newWorld(t)
	w.names = map[string][][]string{"public.example.com": {{public}}, "near.example.com": {{"10.0.0.9"}}, "near.example.org": {{"10.0.0.9"}}, "meta.example.com": {{"169.254.169.254"}},
		"meta.example.org": {{"169.254.169.254"}}, "mapped.example.org": {{"::ffff:169.254.169.254"}}, "self.example.com": {{"127.0.0.1"}}, "zero.example.com": {{"0.0.0.0"}}, "six.example.com": {{"::"}}}
	all := append(allow("*.example.com:443"), Endpoint{Host: "*.example.org", Port: 443, Private: true})
	// as if the addresses were another machine's
	y := w.start(Config{Dial: dialTCP, Allow: all, Own: func() ([]netip.Prefix, error) { return nil, nil }})
	reach := func(host string) string {
		got := y.say("CONNECT " + host + ":443 HTTP/1.1\r\n\r\n" + string(clientHello(t, host)))
		return got[:min(len(got), 12)]
	}
	for host, want := range map[string]string{"public.example.com": "HTTP/1.1 200", "near.example.org": "HTTP/1.1 200", "near.example.com": "HTTP/1.1 403", "meta.example.com": "HTTP/1.1 403",
		"meta.example.org": "HTTP/1.1 403", "mapped.example.org": "HTTP/1.1 403", "self.example.com": "HTTP/1.1 403", "zero.example.com": "HTTP/1.1 403", "six.example.com": "HTTP/1.1 403",
		"169.254.169.254": "HTTP/1.1 403", "127.0.0.1": "HTTP/1.1 403", "2852039166": "HTTP/1.1 400", "[::ffff:a9fe:a9fe]": "HTTP/1.1 400", "0xa9fea9fe": "HTTP/1.1 400", "localhost": "HTTP/1.1 403"} {
		if got := reach(host); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
	y.stop()
	y = w.start(Config{Dial: dialTCP, Allow: all}) // but they are this machine's, as the kernel reports
	if got := reach("public.example.com"); got != "HTTP/1.1 403" {
		t.Errorf("an own address that looks public: %q", got)
	}
	y.stop()
	for addr, want := range map[string]int64{public: 1, "10.0.0.9": 1, "169.254.169.254": 0, "127.0.0.1": 0} {
		if got := met[addr].Load(); got != want {
			t.Errorf("%s was met %d times, want %d", netip.MustParseAddr(addr), got, want)
		}
	}
	t.Logf("dialled %v", w.reached())
}
