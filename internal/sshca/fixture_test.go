package sshca

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"bailey"
)

// testTime is the time of the golden output.
var testTime = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// testClock is a clock that only a test moves.
type testClock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *testClock { return &testClock{at: testTime} }

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// endless returns the same byte again and again.
type endless byte

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(e)
	}
	return len(b), nil
}

// testKey returns a fixed key.
func testKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func publicOf(t testing.TB, key any) ssh.PublicKey {
	t.Helper()
	pub, err := ssh.NewPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pub
}

func newAuthority(t testing.TB, key ed25519.PrivateKey, now func() time.Time, random io.Reader) *Authority {
	t.Helper()
	a, err := New(Config{Signer: key, Now: now, Random: random})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(t testing.TB, p Principal) Request {
	t.Helper()
	return Request{Key: publicOf(t, testKey(2).Public()), Principal: p,
		Identity: Identity{User: "ann@example.org", VM: "vm-1", Sandbox: "sbx_2"}}
}

func issue(t testing.TB, a *Authority, r Request) *Certificate {
	t.Helper()
	c, err := a.Issue(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantRefusal checks the kind, a part of the message and that there is a hint. It returns the message.
func wantRefusal(t testing.TB, err error, kind bailey.Kind, says string) string {
	t.Helper()
	var e *bailey.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not a bailey.Error, want %q", err, says)
	}
	if e.Kind != kind || !strings.Contains(err.Error(), says) || e.Hint == "" {
		t.Errorf("kind %q, message %q, hint %q; want kind %q and %q", e.Kind, err, e.Hint, kind, says)
	}
	return err.Error()
}
