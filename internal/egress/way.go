package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"bailey"
)

// proxyPort is the port of the proxy in a cage, on 127.0.0.1. If an endpoint uses that port there, the proxy gets a
// later one.
const proxyPort = 3128

// maxSeats limits the names that get an address of their own in a cage.
const maxSeats = 128

// outlet is a socket in a cage. It leads to the proxy itself, or to one target only.
type outlet struct {
	at     netip.AddrPort
	target string // host:port; "" for the proxy
	name   string // name that must resolve to the address; "" if not needed
}

// planOutlets returns the sockets on which a cage listens for these entries: the proxy first, then one for each name,
// with its own address and the port of the entry. If an entry is a loopback IPv4 address, its socket has that address.
func planOutlets(list *Allowlist) ([]outlet, error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	var all []outlet
	own := map[string]netip.Addr{"localhost": loopback}
	for _, e := range list.entries {
		s := outlet{target: e.String()}
		switch {
		case e.wild, e.addr.IsValid() && !(e.addr.Is4() && e.addr.IsLoopback()):
			continue // through the proxy only
		case e.addr.IsValid():
			s.at = netip.AddrPortFrom(e.addr, e.port)
		default:
			at, known := own[e.name]
			if !known {
				n := len(own) // the first is localhost
				at = netip.AddrFrom4([4]byte{127, 77, byte(n >> 8), byte(n)})
				own[e.name], s.name = at, e.name
			}
			s.at = netip.AddrPortFrom(at, e.port)
		}
		if i := slices.IndexFunc(all, func(o outlet) bool { return o.at == s.at }); i >= 0 {
			return nil, bailey.Conflict.Errorf("remove one of them",
				"egress %s and %s would need the same socket in the jail", all[i].target, s.target)
		}
		all = append(all, s)
	}
	if len(own) > maxSeats {
		return nil, invalidError(fmt.Sprintf("egress to %d names exceeds the %d addresses of a jail",
			len(own), maxSeats), "name fewer, or use *. for the names of one domain")
	}
	proxy := netip.AddrPortFrom(loopback, proxyPort)
	for slices.ContainsFunc(all, func(o outlet) bool { return o.at == proxy }) {
		proxy = netip.AddrPortFrom(loopback, proxy.Port()+1)
	}
	return append([]outlet{{at: proxy}}, all...), nil
}

// Plan returns the network that a cage needs so that its tools reach these endpoints, with or without support for
// proxies.
func Plan(endpoints []Endpoint) (*bailey.Network, error) {
	n := &bailey.Network{Endpoints: slices.Clone(endpoints), Trust: true}
	slices.SortFunc(n.Endpoints, func(a, b Endpoint) int { return cmp.Compare(a.String(), b.String()) })
	list, err := NewAllowlist(n.Endpoints)
	if err != nil {
		return nil, err
	}
	all, err := planOutlets(list)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		n.Listen = append(n.Listen, bailey.Listen{Network: "tcp", Address: s.at.String()})
		if s.name != "" {
			n.Hosts = append(n.Hosts, bailey.HostName{Address: s.at.Addr().String(), Name: s.name})
		}
	}
	n.Env = proxyEnviron(all[0].at.String())
	return n, nil
}

// proxyEnviron returns variables that make tools use the proxy, if they support that, and trust its certificates. Local
// addresses bypass the proxy: they belong to the cage itself, or to a socket that leads to one target.
func proxyEnviron(proxy string) (env []string) {
	for _, v := range [...][2]string{{"HTTP_PROXY", "http://" + proxy}, {"HTTPS_PROXY", "http://" + proxy},
		{"ALL_PROXY", "socks5h://" + proxy}, {"NO_PROXY", "localhost,127.0.0.1,::1"}} {
		env = append(env, v[0]+"="+v[1], strings.ToLower(v[0])+"="+v[1])
	}
	env = append(env, "NODE_USE_ENV_PROXY=1") // node(1), since 22.21
	for _, name := range [...]string{
		"SSL_CERT_FILE",       // OpenSSL, and Go
		"CURL_CA_BUNDLE",      // curl(1)
		"GIT_SSL_CAINFO",      // git-config(1), http.sslCAInfo
		"REQUESTS_CA_BUNDLE",  // Python's requests, and the Azure command line
		"PIP_CERT",            // pip
		"NODE_EXTRA_CA_CERTS", // node(1), and npm
		"CARGO_HTTP_CAINFO",   // cargo
		"AWS_CA_BUNDLE",       // the AWS command line
	} {
		env = append(env, name+"="+bailey.TrustFile)
	}
	return env
}

// WayConfig is the configuration of a way. Its Allow is replaced by the endpoints of Network.
type WayConfig struct {
	Config
	Network     *bailey.Network // from [Plan]
	Authorities []byte          // additional authorities that tools trust, in PEM
}

// networkProxy is the outer side of one cage's network.
type networkProxy struct {
	proxy   *Proxy
	outlets []outlet
	trust   []byte

	mu     sync.Mutex
	events []Event
}

// NewWay makes the outer side of a planned network. It starts nothing.
func NewWay(c WayConfig) (bailey.Way, error) {
	w := &networkProxy{}
	tell := c.Event
	c.Allow = c.Network.Endpoints
	c.Event = func(e Event) {
		w.mu.Lock()
		w.events = append(w.events, e)
		w.mu.Unlock()
		if tell != nil {
			tell(e)
		}
	}
	var err error
	if w.proxy, err = New(c.Config); err != nil {
		return nil, err
	}
	if w.outlets, err = planOutlets(w.proxy.list); err != nil {
		return nil, err
	}
	w.trust = slices.Concat(c.Authorities, w.proxy.Root())
	return w, nil
}

func (w *networkProxy) Trusted() []byte { return w.trust }

// Serve serves the listeners. There must be as many as were planned, in the same order.
func (w *networkProxy) Serve(ctx context.Context, listeners []net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if len(listeners) != len(w.outlets) {
		for _, ln := range listeners {
			ln.Close()
		}
		return bailey.Internal.Errorf("",
			"%d sockets came out of a jail, but %d were planned", len(listeners), len(w.outlets))
	}
	ended := make(chan error, len(listeners))
	for i, ln := range listeners {
		go func() {
			if target := w.outlets[i].target; target != "" {
				ended <- w.proxy.Forward(ctx, ln, target)
				return
			}
			ended <- w.proxy.Serve(ctx, ln)
		}()
	}
	var errs []error
	for range listeners {
		err := <-ended
		// If one listener ends before the cage, all others must end: a partial network is useless.
		if ctx.Err() == nil {
			if err == nil {
				err = bailey.Internal.New("a listener ended unexpectedly", "")
			}
			errs = append(errs, err)
			cancel()
		}
	}
	return errors.Join(errs...)
}

// TakeReport is Report for a network that outlives calls: what it has returned is not reported again.
func (w *networkProxy) TakeReport() bailey.EgressReport {
	sum := w.proxy.record.takeTotals()
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	return bailey.EgressReport{EgressTotals: sum, Events: events}
}

func (w *networkProxy) Report() bailey.EgressReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bailey.EgressReport{EgressTotals: w.proxy.Totals(), Events: slices.Clone(w.events)}
}
