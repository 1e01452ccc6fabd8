//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"bailey"
	"bailey/internal/jail/inside"
)

// A cage with a network has the namespace of every full cage, with only its loopback interface up: no packet can leave
// it. PID 1 makes sockets that listen in the namespace and passes them to the gateway before the tool starts. The
// gateway holds them, accepts the connections, and alone decides about each. So the cage has no relay that a process
// could use in another way, and no descriptor that leads outside.

// netDir is the directory of sockets that have a path.
const netDir = "/run/bailey"

// maxListeners limits the listening sockets of one cage.
const maxListeners = 256

// maxTrust limits, in bytes, the certificate authorities that a cage gets. All that a distribution ships are about 300
// KiB.
const maxTrust = 4 << 20

// trusted is the name of [bailey.TrustFile] in the loan; no variable can have that name.
const trusted = "trusted authorities"

func networkEnv(n *bailey.Network) []string {
	if n == nil {
		return nil
	}
	return n.Env
}

// addNetwork adds a job's network to the layout.
func (r *run) addNetwork(l *layout, n *bailey.Network) error {
	if n == nil {
		return nil
	}
	if r.lesser != "" {
		return bailey.Unavailable.New("no jail: layer netns: without a network namespace a tool could reach every host",
			"use a host with namespaces: "+r.lesser)
	}
	if len(n.Listen) > maxListeners {
		return bailey.Invalid.Errorf("name fewer hosts",
			"a jail can listen on at most %d sockets, but this call needs %d", maxListeners, len(n.Listen))
	}
	for _, s := range n.Listen {
		if _, _, err := parseListenAddr(s); err != nil {
			return err
		}
	}
	hosts := strings.Builder{}
	hosts.WriteString("127.0.0.1 localhost\n")
	for _, h := range n.Hosts {
		a, err := netip.ParseAddr(h.Address)
		if err != nil || !a.Is4() || !a.IsLoopback() || h.Name == "" ||
			strings.ContainsFunc(h.Name, func(r rune) bool { return r <= ' ' || r == '#' || r > '~' }) {
			return bailey.Internal.Errorf("", "invalid entry for the jail's hosts file: %q %q", h.Address, h.Name)
		}
		fmt.Fprintf(&hosts, "%s %s\n", h.Address, h.Name)
	}
	l.net, r.net = n, n
	l.files["/etc/hosts"] = hosts.String()
	l.files["/etc/nsswitch.conf"] = "passwd: files\ngroup: files\nhosts: files\n" // no name server is asked
	return nil
}

// parseListenAddr parses the address of a socket: an IP address and port, or a path.
func parseListenAddr(s bailey.Listen) (at netip.AddrPort, path string, err error) {
	switch s.Network {
	case "tcp":
		if at, err = netip.ParseAddrPort(s.Address); err == nil && at.Addr().Is4() && at.Addr().IsLoopback() &&
			at.Port() > 0 {
			return at, "", nil
		}
	case "unix":
		if filepath.Dir(s.Address) == netDir && len(s.Address) < 100 { // sun_path has 108 bytes (unix(7))
			return at, s.Address, nil
		}
	}
	return at, "", bailey.Internal.Errorf("", "a jail cannot listen on %s %q", s.Network, s.Address)
}

// addListenSteps adds the steps that make the sockets, while the root is still writable.
func (l *layout) addListenSteps(p *plan) {
	if l.net == nil {
		return
	}
	for i, s := range l.net.Listen {
		at, path, _ := parseListenAddr(s) // network has checked it
		var ip uint64
		if path == "" {
			for _, b := range at.Addr().As4() {
				ip = ip<<8 | uint64(b)
			}
		} else {
			path = path[1:]
		}
		p.addStep("netns", inside.Listen, []uint64{uint64(i), ip, uint64(at.Port())}, path)
	}
}

// addTrustFile makes PID 1 write the authorities that the tool should trust. Like lent files they come with the start, because
// they are made for one run.
func (l *layout) addTrustFile(p *plan) {
	if l.net == nil || !l.net.Trust {
		return
	}
	dir, flags := filepath.Dir(bailey.TrustFile)[1:], uint64(unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC)
	p.addStep("tmp-private", inside.Tmpfs, []uint64{flags}, dir,
		fmt.Sprintf("mode=0755,size=%d,nr_inodes=16", 2*maxTrust))
	p.addStep("tmp-private", inside.Lend, []uint64{0, 0o444, 0}, trusted, bailey.TrustFile[1:])
	p.addStep("tmp-private", inside.Seal, []uint64{readOnly | inert}, dir)
}

// attachNetwork takes the other side of the network. It must be there if the plan has sockets, and only then.
func (r *run) attachNetwork(way bailey.Way) error {
	if (way != nil) != (r.net != nil && len(r.net.Listen) > 0) {
		return bailey.Internal.New("the run was planned without this network", "")
	}
	if r.way = way; way == nil || !r.net.Trust {
		return nil
	}
	text := way.Trusted()
	if len(text) > maxTrust {
		return bailey.Invalid.Errorf("trust fewer", "the trusted CA certificates exceed %d bytes", maxTrust)
	}
	file, _, err := sealInMemory(bytes.NewReader(text))
	if err != nil {
		return bailey.Unavailable.Wrap(err, "cannot create a memory file for the trusted CA certificates", "")
	}
	r.loan[trusted] = file
	return nil
}

// networkPeer is the other side of a cage's network while the cage exists.
type networkPeer struct {
	way    bailey.Way
	ctx    context.Context
	cancel context.CancelFunc
	served chan error // result of Serve; nil before Serve is called

	mu   sync.Mutex     // guards the fields below
	come []net.Listener // by their number in the plan; nil if not yet received
	left int
}

// newNetworkPeer returns nil for a run without a network.
func (r *run) newNetworkPeer(ctx context.Context) *networkPeer {
	if r.way == nil {
		return nil
	}
	o := &networkPeer{way: r.way, come: make([]net.Listener, len(r.net.Listen)), left: len(r.net.Listen)}
	o.ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx)) // ends with the cage, however that ends
	return o
}

// addListener receives each socket that PID 1 has made. With the last one it starts Serve; connections that come earlier wait.
func (o *networkPeer) addListener(n int, f *os.File) {
	if o == nil || f == nil {
		f.Close()
		return
	}
	l, err := net.FileListener(f)
	f.Close()
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || n < 0 || n >= len(o.come) || o.come[n] != nil || o.served != nil {
		if l != nil {
			l.Close()
		}
		return // this socket is not served
	}
	o.come[n] = l
	if o.left--; o.left > 0 {
		return
	}
	o.served = make(chan error, 1)
	come := o.come
	go func() { o.served <- o.way.Serve(o.ctx, come) }()
}

// dropListeners drops the sockets of a cage that could not be built.
func (o *networkPeer) dropListeners() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, l := range o.come {
		if l != nil && o.served == nil {
			l.Close()
			o.come[i] = nil
		}
	}
	if o.served == nil {
		o.left = len(o.come)
	}
}

// stopServing ends the other side, once no process of the cage lives, and returns when all its connections are closed.
func (o *networkPeer) stopServing() error {
	if o == nil {
		return nil
	}
	o.cancel()
	o.mu.Lock()
	served := o.served
	o.mu.Unlock()
	if served == nil {
		o.dropListeners()
		return nil // if the cage was never built, its own error says so
	}
	if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
		return bailey.Unavailable.Wrap(err, "the network of the jail failed", "the tool ran until then")
	}
	return nil
}

// receiveReport reads one report, and the descriptor that came with it, if any.
func receiveReport(stream *os.File, b []byte) (file *os.File, err error) {
	raw, err := stream.SyscallConn()
	if err != nil {
		return nil, err
	}
	for len(b) > 0 && err == nil {
		oob := make([]byte, unix.CmsgSpace(4))
		var n, size int
		rerr := raw.Read(func(fd uintptr) bool {
			for {
				n, size, _, _, err = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
				if err != unix.EINTR {
					return err != unix.EAGAIN
				}
			}
		})
		switch {
		case rerr != nil:
			err = rerr
		case err == nil && n == 0:
			err = os.ErrClosed
		case err == nil:
			b = b[n:]
			if got := parseDescriptor(oob[:size]); got != nil {
				file.Close()
				file = got
			}
		}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func parseDescriptor(oob []byte) *os.File {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil || len(messages) != 1 {
		return nil
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "listener")
}
