//go:build linux

package vmhost

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/egress"
	"bailey/internal/guestclient"
	"bailey/internal/guestwire"
	"bailey/internal/hostapi"
)

// A sandbox has no network device. Its way out is the egress proxy in this process, which connects to the places of the
// sandbox's network only. Programs in the guest reach the proxy at sockets of the guest's own loopback interface: the
// agent accepts for this process, and carries the bytes over its channel. So the host needs neither root rights, a bridge
// nor addresses, and no packet of a guest reaches the host's network.

// Limits of the network of a sandbox, between two sessions with its guest.
var networkLimits = egress.Limits{Total: 1 << 20, Bytes: 64 << 30, Life: 24 * time.Hour, Events: maxToldEvents / 2}

// maxToldEvents limits the events that a sandbox keeps for the next receipt.
const maxToldEvents = 128

// network is the way out of a sandbox, during one session with its guest.
type network struct {
	env []string
	way bailey.Way
}

// checkNetwork returns an error unless a sandbox of the caller can have the network. The host connects as its own user, so
// other users reach no private addresses through it, which a firewall may keep them from.
func checkNetwork(c caller, n *hostapi.Network) error {
	if n == nil {
		return nil
	}
	if len(n.Endpoints) == 0 {
		return bailey.Invalid.New("the network of the sandbox has no places", "name some, or leave the network out")
	}
	if i := slices.IndexFunc(n.Endpoints, func(e bailey.Endpoint) bool { return e.Private }); i >= 0 && !isHostUser(c.uid) {
		return bailey.Denied.Errorf("leave it out, or use a bailey-host of your own",
			"only root and the user of the host may let a sandbox reach private addresses: %s", n.Endpoints[i])
	}
	plan, err := egress.Plan(n.Endpoints)
	if err != nil {
		return err
	}
	if len(plan.Listen) > guestwire.MaxListeners {
		return bailey.Invalid.Errorf("name fewer, or use *. for the names of one domain",
			"%d places exceed the %d of a sandbox", len(plan.Listen)-1, guestwire.MaxListeners-1)
	}
	_, err = reachConfig(n, plan)
	return err
}

// startNetwork makes the way out that the record of the sandbox names, for a new session.
func (b *box) startNetwork(ctx context.Context, s *guestclient.Session) error {
	b.endNetwork()
	reach := b.recordNow().Reach
	if reach == nil {
		return nil
	}
	n, listeners, err := openNetwork(ctx, s, reach)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "the network of the sandbox cannot be made: "+err.Error(),
			hintOr(err, "destroy the sandbox, and create another"))
	}
	b.mu.Lock()
	b.network = n
	b.mu.Unlock()
	serving, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		<-s.Done()
	}()
	go func() {
		defer cancel()
		if err := n.way.Serve(serving, listeners); err != nil && s.Err() == nil {
			b.h.Log.Warn("the network of a sandbox ended", "sandbox", b.recordNow().ID, "error", err)
		}
	}()
	return nil
}

// openNetwork makes the proxy, and prepares the guest: its names, the certificates that its programs trust, its sockets.
func openNetwork(ctx context.Context, s *guestclient.Session, reach *hostapi.Network) (*network, []net.Listener, error) {
	plan, err := egress.Plan(reach.Endpoints)
	if err != nil {
		return nil, nil, err
	}
	config, err := reachConfig(reach, plan)
	if err != nil {
		return nil, nil, err
	}
	way, err := egress.NewWay(config)
	if err != nil {
		return nil, nil, err
	}
	if _, err := s.WriteFile(ctx, bailey.TrustFile, way.Trusted(), guestclient.NewFile{Parents: true}); err != nil {
		return nil, nil, err
	}
	if err := writeNames(ctx, s, plan.Hosts); err != nil {
		return nil, nil, err
	}
	var listeners []net.Listener
	for _, l := range plan.Listen {
		made, err := s.Listen(l.Address)
		if err != nil {
			return nil, nil, err
		}
		listeners = append(listeners, made)
	}
	return &network{env: plan.Env, way: way}, listeners, nil
}

// reachConfig returns the configuration of the proxy.
func reachConfig(reach *hostapi.Network, plan *bailey.Network) (c egress.WayConfig, err error) {
	c.Limits, c.Network, c.ByName = networkLimits, plan, reach.ByName
	if reach.Upstream != "" {
		if c.Upstream, err = url.Parse(reach.Upstream); err != nil {
			return c, bailey.Invalid.New("the URL of the proxy of this machine cannot be read", "correct upstream in settings.yaml")
		}
	}
	c.Authorities, err = egress.Authorities()
	return c, err
}

// ownLine ends the lines of hosts(5) that belong to the network.
const ownLine = "# network of the sandbox"

// writeNames lets the names of the network resolve to its sockets, also for programs that know no proxy.
func writeNames(ctx context.Context, s *guestclient.Session, names []bailey.HostName) error {
	const file = "/etc/hosts"
	old, err := s.ReadFile(ctx, file, 1<<20)
	if err != nil && !errors.Is(err, bailey.NotFound) {
		return err
	}
	kept := old
	if len(old) == 0 {
		kept = []byte("127.0.0.1\tlocalhost\n")
	}
	var text bytes.Buffer
	for line := range bytes.Lines(kept) {
		if !bytes.HasSuffix(bytes.TrimRight(line, "\n"), []byte(ownLine)) {
			text.Write(line)
		}
	}
	if text.Len() > 0 && !bytes.HasSuffix(text.Bytes(), []byte("\n")) {
		text.WriteByte('\n')
	}
	for _, n := range names {
		text.WriteString(n.Address + "\t" + n.Name + "\t" + ownLine + "\n")
	}
	if bytes.Equal(text.Bytes(), old) {
		return nil
	}
	_, err = s.WriteFile(ctx, file, text.Bytes(), guestclient.NewFile{Parents: true})
	return err
}

// withNetwork adds the variables of the network to an environment that does not set them.
func (b *box) withNetwork(env []string) []string {
	b.mu.Lock()
	n := b.network
	b.mu.Unlock()
	if n == nil {
		return env
	}
	all := slices.Clone(env)
	for _, pair := range n.env {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			all = append(all, pair)
		}
	}
	return all
}

// endNetwork forgets the network of a session that has ended, but not its events.
func (b *box) endNetwork() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collectEvents()
	b.network = nil
}

// collectEvents requires b.mu.
func (b *box) collectEvents() {
	if b.network == nil {
		return
	}
	way, ok := b.network.way.(interface{ TakeReport() bailey.EgressReport })
	if !ok {
		return
	}
	more := way.TakeReport()
	b.told.Connections += more.Connections
	b.told.Refused += more.Refused
	b.told.Failed += more.Failed
	b.told.Up += more.Up
	b.told.Down += more.Down
	kept := min(len(more.Events), maxToldEvents-len(b.told.Events))
	b.told.Events = append(b.told.Events, more.Events[:kept]...)
	b.told.Untold += more.Untold + int64(len(more.Events)-kept)
}

// takeEgress returns the connections of a sandbox since the last answer.
func (h *Host) takeEgress(_ context.Context, c caller, r hostapi.Target) (bailey.EgressReport, error) {
	b, err := h.findBox(c, r.Sandbox)
	if err != nil {
		return bailey.EgressReport{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.collectEvents()
	report := b.told
	b.told = bailey.EgressReport{}
	return report, nil
}
