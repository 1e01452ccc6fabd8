package auth

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Proxies are the networks of proxies whose X-Forwarded-For is believed.
type Proxies []netip.Prefix

// Client returns the address of the client: the last one in X-Forwarded-For that no trusted proxy has, if the
// connection comes from a trusted proxy, and otherwise the peer of the connection. It is the zero Addr if the peer has
// none, such as over a Unix socket.
func (p Proxies) Client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	address := peer.Addr().Unmap()
	forwarded := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(forwarded) - 1; i >= 0 && p.trustsAddress(address); i-- {
		next, err := netip.ParseAddr(strings.TrimSpace(forwarded[i]))
		if err != nil {
			break
		}
		address = next.Unmap()
	}
	return address
}

func (p Proxies) trustsAddress(a netip.Addr) bool {
	for _, network := range p {
		if network.Contains(a) {
			return true
		}
	}
	return false
}

// A Limiter has a bucket of tokens for each address. IPv6 addresses count by their /64, which one client controls.
type Limiter struct {
	PerSecond float64
	Burst     int
	Now       func() time.Time // time.Now if it is nil

	mu      sync.Mutex
	buckets map[netip.Prefix]*bucket
	swept   time.Time
}

type bucket struct {
	rate.Limiter
	used time.Time
}

// idle is after how long an unused bucket is dropped. It must be longer than an empty bucket takes to fill.
const idle = 10 * time.Minute

// Allow takes a token, or returns how long to wait for one.
func (l *Limiter) Allow(a netip.Addr) (wait time.Duration) {
	now := time.Now()
	if l.Now != nil {
		now = l.Now()
	}
	bits := 32
	if a.Is6() {
		bits = 64
	}
	network, _ := a.Prefix(bits) // the zero Prefix for the zero Addr: one bucket
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.swept) >= time.Minute {
		for k, b := range l.buckets {
			if now.Sub(b.used) >= idle {
				delete(l.buckets, k)
			}
		}
		l.swept = now
	}
	b := l.buckets[network]
	if b == nil {
		b = &bucket{Limiter: *rate.NewLimiter(rate.Limit(l.PerSecond), l.Burst)}
		if l.buckets == nil {
			l.buckets = map[netip.Prefix]*bucket{}
		}
		l.buckets[network] = b
	}
	b.used = now
	if b.AllowN(now, 1) {
		return 0
	}
	r := b.ReserveN(now, 1)
	defer r.CancelAt(now)
	return max(r.DelayFrom(now), time.Second)
}

// Len returns how many addresses have a bucket.
func (l *Limiter) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buckets)
}
