package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/auth"

	"golang.org/x/crypto/bcrypt"
)

func TestPasswords(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := auth.NewPasswords(2)
	p.Cost = bcrypt.MinCost
	for _, bad := range []string{"", "short77", strings.Repeat("x", 73), strings.Repeat("ü", 37)} {
		if _, err := p.Hash(ctx, bad); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	hash, err := p.Hash(ctx, "größer, 8")
	if err != nil {
		t.Fatal(err)
	}
	for password, want := range map[string]bool{"größer, 8": true, "größer, 9": false, "": false} {
		if ok, err := p.Check(ctx, hash, password); ok != want || err != nil {
			t.Errorf("%q: got %v, %v", password, ok, err)
		}
	}
	if ok, err := p.Check(ctx, "", "größer, 8"); ok || err != nil {
		t.Errorf("a missing account: got %v, %v", ok, err)
	}
	long := strings.Repeat("x", 72)
	if hash, err = p.Hash(ctx, long); err != nil {
		t.Fatal(err)
	}
	if ok, err := p.Check(ctx, hash, long+"y"); ok || err != nil {
		t.Errorf("a password whose first 72 bytes are right: got %v, %v", ok, err)
	}
}

// TestPasswordsAreBounded: a crowd that signs in does not hold more than its share, and the rest is refused at once.
func TestPasswordsAreBounded(t *testing.T) {
	t.Parallel()
	p := auth.NewPasswords(1)
	p.Cost = 10
	hash, err := p.Hash(t.Context(), "a password of the test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range 60 {
		group.Go(func() {
			ok, err := p.Check(ctx, hash, "a password of the test")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ok:
				got["ok"]++
				cancel()
			case errors.Is(err, bailey.Unavailable):
				got["refused"]++
			case errors.Is(err, context.Canceled):
				got["left"]++
			}
		})
	}
	group.Wait()
	if got["ok"] == 0 || got["refused"] == 0 || got["ok"]+got["refused"]+got["left"] != 60 {
		t.Errorf("got %v", got)
	}
	if ok, err := p.Check(t.Context(), hash, "a password of the test"); !ok || err != nil {
		t.Errorf("after the crowd: %v, %v", ok, err)
	}
}

func TestTokenForm(t *testing.T) {
	t.Parallel()
	token := auth.NewToken(auth.APIToken)
	if !auth.IsToken(token, auth.APIToken) || token == auth.NewToken(auth.APIToken) {
		t.Errorf("got %q", token)
	}
	for _, bad := range []string{"", auth.APIToken, token + "A", token[:len(token)-1], token + "\n", "x" + token} {
		if auth.IsToken(bad, auth.APIToken) {
			t.Errorf("%q is accepted", bad)
		}
	}
	if auth.IsToken(token, auth.SessionToken) {
		t.Error("a token for programs is accepted as one of a session")
	}
}

func TestClientAddress(t *testing.T) {
	t.Parallel()
	trusted := auth.Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct {
		peer      string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:9", nil, "192.0.2.1"},
		{"192.0.2.1:9", []string{"198.51.100.7"}, "192.0.2.1"}, // not a trusted proxy: the header is the client's claim
		{"10.0.0.1:9", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:9", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"}, // the first one is the client's claim
		{"10.0.0.1:9", []string{"203.0.113.9", "198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		{"[fd00::1]:9", []string{" 2001:db8::7 "}, "2001:db8::7"},
		{"[::ffff:10.0.0.1]:9", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:9", []string{"unknown"}, "10.0.0.1"},
		{"10.0.0.1:9", []string{"203.0.113.9, junk"}, "10.0.0.1"},
		{"@", []string{"203.0.113.9"}, "invalid IP"},
	} {
		r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		if got := trusted.Client(r).String(); got != c.want {
			t.Errorf("%v %q: got %s, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
}

func TestLimiter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	l := auth.Limiter{PerSecond: 0.2, Burst: 10, Now: func() time.Time { return now }}
	one := netip.MustParseAddr("192.0.2.1")
	for i := range 10 {
		if wait := l.Allow(one); wait != 0 {
			t.Fatalf("attempt %d must wait for %v", i, wait)
		}
	}
	for range 3 {
		if wait := l.Allow(one); wait != 5*time.Second { // waiting costs nothing
			t.Errorf("the bucket is empty, and the wait is %v", wait)
		}
	}
	if wait := l.Allow(netip.MustParseAddr("192.0.2.2")); wait != 0 {
		t.Errorf("another address must wait for %v", wait)
	}
	now = now.Add(5 * time.Second)
	if wait := l.Allow(one); wait != 0 {
		t.Errorf("after 5 s the wait is %v", wait)
	}
	for i := range 20 { // one client has the whole /64
		l.Allow(netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i)))
	}
	if wait := l.Allow(netip.MustParseAddr("2001:db8::ffff")); wait == 0 {
		t.Error("another address of the same /64 has a bucket of its own")
	}
	if l.Len() != 3 {
		t.Errorf("%d buckets", l.Len())
	}
	now = now.Add(10 * time.Minute)
	l.Allow(one)
	if l.Len() != 1 {
		t.Errorf("%d buckets after ten idle minutes", l.Len())
	}
}
