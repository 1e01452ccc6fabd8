//go:build linux

package vmhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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

// testTemplate returns a template of machines with 100 MiB.
func testTemplate() *template {
	return &template{record: templateRecord{Kind: warm, Snapshot: hostapi.Snapshot{ID: newID("sn"), MemoryMB: 100}}}
}

// TestAttackMemory creates sandboxes at once, none of which has written to its memory yet. They do not get more than
// the host has.
func TestAttackMemory(t *testing.T) {
	h := idleHost(t, func(c *Config) { c.TotalMB = 350 }) // of which 1 is reserved
	var made atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			switch _, err := h.reserveBox(caller{ann, os.Geteuid()}, boxRecord{}, testTemplate()); {
			case err == nil:
				made.Add(1)
			case !errors.Is(err, bailey.Unavailable) || bailey.HintOf(err) == "":
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 3 {
		t.Fatalf("%d sandboxes with 100 MB each were promised 349 MB", made.Load())
	}
	stopped := h.allBoxes()[0]
	stopped.record.State, stopped.record.Saved = hostapi.Stopped, "sn-saved"
	h.templates["sn-saved"] = testTemplate()
	free, err := h.claimMemory(100)
	if err != nil {
		t.Fatal("a stopped sandbox has memory:", err)
	}
	if err := h.cloneInto(t.Context(), stopped, "sn-saved"); !errors.Is(err, bailey.Unavailable) {
		t.Error("a sandbox started without memory:", err)
	}
	free()
	if free, err = h.claimMemory(100); err != nil {
		t.Error("memory is lost:", err)
	} else {
		free()
	}
}

// TestAttackUser invents persons and agents, and holds connections, as a member of the group. Others still get theirs.
func TestAttackUser(t *testing.T) {
	h := idleHost(t, func(c *Config) { c.PerOwner = 2 })
	made := 0
	for n := range 3 * h.PerUser {
		invented := caller{hostapi.Owner{Person: fmt.Sprint("person", n), Agent: "x"}, otherUser()}
		switch _, err := h.reserveBox(invented, boxRecord{}, testTemplate()); {
		case err == nil:
			made++
		case !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "a user of this host"):
			t.Error(err)
		}
	}
	if made != 4 {
		t.Errorf("a user has %d sandboxes", made)
	}
	for _, uid := range []int{otherUser() + 1, os.Geteuid()} {
		if _, err := h.reserveBox(caller{ann, uid}, boxRecord{}, testTemplate()); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
	var u userConns
	var done func()
	for n := range maxConns {
		one, err := u.admitConn(otherUser())
		if (err == nil) != (n < maxConns/4) {
			t.Fatalf("connection %d of a user: %v", n, err)
		}
		if err == nil {
			done = one
		}
	}
	if _, err := u.admitConn(otherUser() + 1); err != nil {
		t.Error("another user:", err)
	}
	done()
	if _, err := u.admitConn(otherUser()); err != nil {
		t.Error("after a connection has ended:", err)
	}
	for u.countAll() < maxConns {
		if _, err := u.admitConn(os.Geteuid()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.admitConn(os.Geteuid()); !errors.Is(err, bailey.Unavailable) {
		t.Error("more connections than there are:", err)
	}
}

// TestAttackSnapshots makes snapshots at once, as several agents of a person. Each owner gets their own number, and no
// more.
func TestAttackSnapshots(t *testing.T) {
	h := idleHost(t, func(c *Config) { c.PerOwner, c.PerUser = 2, 5 })
	take := func(agent, name string, uid int) error {
		r := templateRecord{Kind: snapshot, UID: uid, Snapshot: hostapi.Snapshot{ID: newID("sn"), Name: name,
			Owner: hostapi.Owner{Person: "ann", Agent: agent}}}
		return h.addTemplate(&template{record: r}, r)
	}
	var made atomic.Int32
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			if err := take("coder", fmt.Sprint("s", n), otherUser()); err == nil {
				made.Add(1)
			} else if !errors.Is(err, bailey.Unavailable) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if made.Load() != 2 {
		t.Errorf("an owner made %d snapshots", made.Load())
	}
	for n := range 3 { // the person, and other agents
		if err := take([]string{"", "a", "b"}[n], "mine", otherUser()); err != nil {
			t.Errorf("snapshot %d of the user: %v", 2+n, err)
		}
	}
	err := take("c", "x", otherUser())
	if !errors.Is(err, bailey.Unavailable) || !strings.Contains(err.Error(), "a user of") {
		t.Errorf("a user has 6 snapshots: %v", err)
	}
	if err := take("a", "mine", otherUser()); !errors.Is(err, bailey.Conflict) {
		t.Errorf("two snapshots have one name: %v", err)
	}
}
