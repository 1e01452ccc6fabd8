package guestagent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"bailey/internal/guestwire"
	"bailey/internal/ktest"
)

// fakeGuest returns an agent whose files are below a new directory, which starts no programs and changes nothing of this
// machine, and the list of what it would have changed.
func fakeGuest(t testing.TB) (*Agent, *[]string) {
	t.Helper()
	done := &[]string{}
	note := func(format string, args ...any) { *done = append(*done, fmt.Sprintf(format, args...)) }
	sys := system{root: t.TempDir(),
		addEntropy: func(seed []byte) error { note("seed %d", len(seed)); return nil },
		setClock:   func(at time.Time) error { note("clock %d", at.Unix()); return nil },
		setName:    func(name string) error { note("name %s", name); return nil },
		network:    func(n []guestwire.Interface, all bool) error { note("network %d %v", len(n), all); return nil },
		sync:       func() {}, dropCaches: func() {}, powerOff: func() {}}
	procs := newProcesses(false)
	procs.fork = func(string, []string, *syscall.ProcAttr) (int, error) { return 0, syscall.EPERM }
	return newAgent(sys, procs, false), done
}

// renewal returns a valid renewal.
func renewal() *guestwire.Renewal {
	return &guestwire.Renewal{Seed: make([]byte, minSeed), Clock: 1e18, MachineID: strings.Repeat("0a", 16), Hostname: "web1"}
}

// TestRenew checks that a renewal replaces all that clones share, with keys that OpenSSH reads.
func TestRenew(t *testing.T) {
	ktest.Require(t, "account", "ssh-keygen") // it refuses a user without an account
	a, done := fakeGuest(t)
	at := func(name string) string { return filepath.Join(a.sys.root, name) }
	for _, dir := range []string{"etc/ssh/sshd_config.d", "var/lib/dbus"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"etc/machine-id", "var/lib/dbus/machine-id", "etc/ssh/ssh_host_rsa_key", "etc/ssh/ssh_host_rsa_key.pub",
		"etc/ssh/ssh_host_ed25519_key", "etc/ssh/sshd_config"} {
		ktest.Write(t, at(name), "old")
	}
	if _, err := a.renewIdentity(renewal()); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(*done), "[seed 32 clock 1000000000 name web1 network 0 false]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for name, want := range map[string]string{"etc/machine-id": strings.Repeat("0a", 16) + "\n", "etc/hostname": "web1\n",
		"var/lib/dbus/machine-id": strings.Repeat("0a", 16) + "\n", "etc/ssh/sshd_config": "old",
		"etc/ssh/sshd_config.d/00-bailey-host-keys.conf": "HostKey /etc/ssh/ssh_host_ed25519_key\n"} {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if left, _ := filepath.Glob(at("etc/ssh/ssh_host_*")); len(left) != 2 {
		t.Error(left)
	}
	private := at("etc/ssh/ssh_host_ed25519_key")
	if info, err := os.Stat(private); err != nil || info.Mode() != 0o600 {
		t.Error(info.Mode(), err)
	}
	out, err := exec.Command("ssh-keygen", "-y", "-P", "", "-f", private).CombinedOutput()
	public, _ := os.ReadFile(private + ".pub")
	if err != nil || strings.TrimSpace(string(out)) != strings.TrimSpace(string(public)) {
		t.Errorf("%v, %s\nwant %s", err, out, public)
	}
	m := renewal()
	m.HostKeys = []guestwire.HostKey{{Name: "ssh_host_ecdsa_key", Private: "p", Public: "q", Certificate: "c"}}
	if _, err := a.renewIdentity(m); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(at("etc/ssh/ssh_host_*")); len(left) != 3 {
		t.Error("keys that were given:", left)
	}
}

// TestRenewRefused checks that an incomplete renewal changes nothing, and that a failed step is named.
func TestRenewRefused(t *testing.T) {
	a, done := fakeGuest(t)
	for name, spoil := range map[string]func(*guestwire.Renewal){
		"seed":     func(m *guestwire.Renewal) { m.Seed = m.Seed[1:] },
		"long":     func(m *guestwire.Renewal) { m.Seed = make([]byte, maxSeed+1) },
		"clock":    func(m *guestwire.Renewal) { m.Clock = 0 },
		"machine":  func(m *guestwire.Renewal) { m.MachineID = "0A" + m.MachineID[2:] },
		"short":    func(m *guestwire.Renewal) { m.MachineID = "00" },
		"hostname": func(m *guestwire.Renewal) { m.Hostname = "a\nb" },
		"key": func(m *guestwire.Renewal) {
			m.HostKeys = []guestwire.HostKey{{Name: "../x_key", Private: "p", Public: "q"}}
		},
	} {
		m := renewal()
		if spoil(m); renewalFault(m) == "" {
			t.Errorf("%s: accepted", name)
		}
		if _, err := a.renewIdentity(m); err == nil || len(*done) > 0 {
			t.Errorf("%s: %v, %v", name, err, *done)
		}
	}
	a.sys.setClock = func(time.Time) error { return unix.EPERM }
	if _, err := a.renewIdentity(renewal()); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "clock") {
		t.Error(err)
	}
}

// TestBootLine checks that an unknown word for the agent stops the boot.
func TestBootLine(t *testing.T) {
	b, err := parseBootLine("console=ttyS0 bailey.root=/dev/vda bailey.init=/sbin/init bailey.port=p quiet\n")
	if want := (bootLine{"/dev/vda", "ext4", "/sbin/init", "p"}); err != nil || b != want {
		t.Errorf("%+v, %v", b, err)
	}
	for _, bad := range []string{"", "console=ttyS0", "bailey.port=", "bailey.port", "bailey.port=p bailey.rot=/dev/vda"} {
		if _, err := parseBootLine(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// TestNetwork checks that an interface gets another address and route, in a network namespace of its own.
func TestNetwork(t *testing.T) {
	ktest.Require(t, "root", "netns", "ip")
	if ktest.RunInSubprocess(t) {
		return
	}
	runtime.LockOSThread() // the namespace is that of the thread, which ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"link add d0 type veth peer name d1", "addr add 198.51.100.1/24 dev d0", "addr add 2001:db8:1::1/64 dev d0", "link set d0 up"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			ktest.Missing(t, "netns", fmt.Errorf("no pair of veth interfaces: %w %s", err, out))
		}
	}
	list := []guestwire.Interface{{Name: "d0", MAC: "52:54:00:00:00:07", Prefix: []string{"192.0.2.7/24", "2001:db8::7/64"}, Gateway: "192.0.2.1"}}
	for range 2 { // it can be repeated
		if err := errors.Join(bringUpLoopback(), renewNetwork(list, true)); err != nil {
			t.Fatal(err)
		}
	}
	i, err := net.InterfaceByName("d0")
	if err != nil {
		t.Fatal(err)
	}
	addresses, _ := i.Addrs()
	if text := fmt.Sprint(i.HardwareAddr, addresses); !strings.Contains(text, "52:54:00:00:00:07 [192.0.2.7/24") ||
		!strings.Contains(text, "2001:db8::7/64") || strings.Contains(text, "198.51.100.1") || strings.Contains(text, "db8:1::1") {
		t.Error(text)
	}
	if out, err := exec.Command("ip", "route", "show", "default").CombinedOutput(); !strings.Contains(string(out), "via 192.0.2.1 dev d0") {
		t.Errorf("%s %v", out, err)
	}
	for _, bad := range []guestwire.Interface{{Name: "none"}, {Name: "d0", MAC: "ff:54:00:00:00:07"}, {Name: "d0", MAC: "x"},
		{Name: "d0", Prefix: []string{"192.0.2.7"}}, {Name: "d0", Gateway: "x"}, {Name: "d0", Prefix: make([]string, maxAddresses+1)}} {
		if err := renewNetwork([]guestwire.Interface{bad}, false); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// TestOutputIsNotLost checks that output is read that is there when the time after a command is up.
func TestOutputIsNotLost(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close() // as of a process that the command has left behind
	io.WriteString(w, "late")
	r.SetReadDeadline(time.Unix(1, 0))
	o := &output{f: r}
	if b, err := io.ReadAll(io.LimitReader(o, 4)); err != nil || string(b) != "late" {
		t.Errorf("%q, %v", b, err)
	}
	o.commandEnded()
	if n, err := o.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Error(n, err)
	}
}

// wire is a port that reads prepared bytes and drops what the agent writes.
type wire struct{ io.Reader }

func (wire) Write(b []byte) (int, error) { return len(b), nil }

// hello returns the written form of a host's first frame.
func hello(mustRenew bool) []byte {
	var b bytes.Buffer
	m := guestwire.Marshal(nil, &guestwire.Hello{Version: guestwire.Version, Nonce: [32]byte{1}, Marker: marker, MustRenew: mustRenew})
	guestwire.NewWriter(&b).Write(guestwire.KindHello, 0, m)
	return b.Bytes()
}

var marker = [guestwire.MarkerSize]byte([]byte("0123456789abcdef0123456789ABCDEF"))

// TestHostileHost checks that a violation ends the session but not the agent, which serves the next host.
func TestHostileHost(t *testing.T) {
	stat := string(guestwire.Marshal([]byte{byte(guestwire.OpStat)}, &guestwire.File{Path: "/"}))
	frame := func(kind guestwire.Kind, id uint32, payload string) string {
		var b bytes.Buffer
		guestwire.NewWriter(&b).Write(kind, id, []byte(payload))
		return b.String()
	}
	for name, text := range map[string]string{
		"noise":          "GET / HTTP/1.1\r\n\r\n",
		"a reply":        frame(guestwire.KindReply, 1, "x"),
		"stream 0":       "Q\x00\x00\x00\x00\x00\x00\x00\x00",
		"stream again":   frame(guestwire.KindRequest, 1, stat) + frame(guestwire.KindRequest, 1, stat),
		"no stream":      frame(guestwire.KindData, 7, "\x00x"),
		"operation":      frame(guestwire.KindRequest, 1, "\xff"),
		"empty":          frame(guestwire.KindRequest, 1, ""),
		"trailing bytes": frame(guestwire.KindRequest, 1, stat+"x"),
		"length":         "Q\x00\x00\x00\x01\xff\xff\xff\xff",
	} {
		ours, theirs := net.Pipe()
		a, _ := fakeGuest(t)
		ended := make(chan error, 1)
		go func() { ended <- a.serveHost(theirs) }()
		in := guestwire.NewReader(ours)
		go ours.Write(append(hello(false), text...))
		if err := in.SkipTo([32]byte{1}, 1000); err != nil {
			t.Fatal(name, err)
		}
		go io.WriteString(ours, string(marker[:])+string(hello(false))+frame(guestwire.KindRequest, 1, stat))
		if err := in.SkipTo([32]byte{1}, 1<<20); err != nil {
			t.Fatal(name, err)
		}
		for _, want := range []guestwire.Kind{guestwire.KindHello, guestwire.KindReply} {
			if f, err := in.Next(); err != nil || f.Kind != want {
				t.Errorf("%s: %c, %v", name, f.Kind, err)
			}
		}
		ours.Close()
		if err := <-ended; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzAgent checks that an agent survives whatever a host sends, and that it ends when the host does.
func FuzzAgent(f *testing.F) {
	requests := []struct {
		op guestwire.Op
		m  guestwire.Message
	}{{guestwire.OpExec, &guestwire.Command{Argv: []string{"/x"}, Input: true, Millis: 5}}, {guestwire.OpStart, &guestwire.Command{Argv: []string{"x"}}},
		{guestwire.OpWrite, &guestwire.File{Path: "/../f", Limit: 3, Parents: true}}, {guestwire.OpList, &guestwire.File{Path: "/"}},
		{guestwire.OpEdit, &guestwire.Edit{Path: "/f", Old: 1, New: 2}}, {guestwire.OpRenew, renewal()}, {guestwire.OpKill, &guestwire.Kill{ID: "job-1"}}}
	for i, r := range requests {
		var b bytes.Buffer
		w := guestwire.NewWriter(&b)
		w.Write(guestwire.KindRequest, uint32(i+1), guestwire.Marshal([]byte{byte(r.op)}, r.m))
		w.Write(guestwire.KindData, uint32(i+1), []byte("\x00abc"))
		w.Write(guestwire.KindData, uint32(i+1), []byte("\x00"))
		f.Add(i%2 == 0, b.Bytes())
	}
	f.Add(false, []byte("\x00\x00\x00\x01 is no frame"))
	f.Fuzz(func(t *testing.T, mustRenew bool, data []byte) {
		a, _ := fakeGuest(t)
		if err := a.serveHost(wire{io.MultiReader(bytes.NewReader(hello(mustRenew)), bytes.NewReader(data))}); err != nil {
			t.Error(err)
		}
		a.open.Wait()
	})
}
