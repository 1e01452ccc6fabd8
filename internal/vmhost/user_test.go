//go:build linux

package vmhost

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// idleHost returns a host that does not run.
func idleHost(t *testing.T, change func(c *Config)) *Host {
	t.Helper()
	c := configFor(shortDir(t), "", "")
	change(&c)
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// askAs sends a query that the host receives from the user uid, and returns the error of the answer.
func askAs(t *testing.T, h *Host, uid int, q hostapi.Query) error {
	t.Helper()
	dir := shortDir(t)
	l, err := peer.Listen(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := peer.Dial(filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.UID = uid
	q.Protocol = hostapi.Protocol
	if err := client.WriteJSON(localapi.FrameQuery, q); err != nil {
		t.Fatal(err)
	}
	h.serveConn(t.Context(), conn, h.allHandlers())
	kind, b, err := client.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	return localapi.LastWord(kind, b, new(json.RawMessage))
}

// otherUser is a member of the group for which a host runs.
func otherUser() int { return os.Geteuid() + 4242 }

// TestAttackStop checks that a member of the group cannot stop the host of everybody, and that root and its user can.
func TestAttackStop(t *testing.T) {
	h := idleHost(t, func(*Config) {})
	ctx, end := context.WithCancelCause(t.Context())
	h.end = end
	q := hostapi.Query{Verb: hostapi.StopVerb, Request: json.RawMessage("{}")}
	if err := askAs(t, h, otherUser(), q); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" {
		t.Errorf("another user: %v (%s)", err, bailey.HintOf(err))
	}
	if ctx.Err() != nil {
		t.Error("another user stopped the host")
	}
	for _, uid := range []int{0, os.Geteuid()} {
		if err := askAs(t, h, uid, q); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
	if !errors.Is(context.Cause(ctx), errStopped) {
		t.Error("its user cannot stop the host")
	}
}
