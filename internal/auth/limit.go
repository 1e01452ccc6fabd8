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

// A Limiter has a bucket of tokens for each address, or for each key. IPv6 addresses count by their /64, which one client
// controls. If there are MaxBuckets, new addresses and keys share one.
type Limiter struct {
	PerSecond float64
	Burst     int
	Now       func() time.Time // time.Now if it is nil

	mu      sync.Mutex
	buckets map[string]*bucket
	swept   time.Time
}

type bucket struct {
	rate.Limiter
	used time.Time
}

// idle is after how long an unused bucket is dropped. It must be longer than an empty bucket takes to fill.
const idle = 10 * time.Minute

// MaxBuckets bounds the memory of a Limiter.
const MaxBuckets = 100_000

// Allow takes a token of an address, or returns how long to wait for one.
func (l *Limiter) Allow(a netip.Addr) (wait time.Duration) {
	bits := 32
	if a.Is6() {
		bits = 64
	}
	network, _ := a.Prefix(bits) // the zero Prefix for the zero Addr: one bucket
	return l.AllowKey(network.String())
}

// AllowKey takes a token of a key, such as the name of an account, or returns how long to wait for one.
func (l *Limiter) AllowKey(key string) (wait time.Duration) {
	now := time.Now()
	if l.Now != nil {
		now = l.Now()
	}
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
	b := l.buckets[key]
	if b == nil && len(l.buckets) >= MaxBuckets {
		key = ""
		b = l.buckets[key]
	}
	if b == nil {
		b = &bucket{Limiter: *rate.NewLimiter(rate.Limit(l.PerSecond), l.Burst)}
		if l.buckets == nil {
			l.buckets = map[string]*bucket{}
		}
		l.buckets[key] = b
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
