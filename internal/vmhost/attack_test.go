//go:build linux

package vmhost

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/hostapi"
	"bailey/internal/localapi"
	"bailey/internal/peer"
)

// TestAttackSocket sends malformed queries, and frames that a client must not send during a command. Each gets an error
// with a reason, and the host serves others.
func TestAttackSocket(t *testing.T) {
	t.Parallel()
	r := newHost(t)
	r.newSandbox("one")
	query := func(q any) []byte {
		b, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good := hostapi.Query{Protocol: hostapi.Protocol, Verb: "list", Owner: ann, Request: json.RawMessage("{}")}
	other, unknown, anonymous, extra := good, good, good, good
	other.Protocol, unknown.Verb, anonymous.Owner.Person, extra.Request = 7, "no-such", "\x1b[2J", json.RawMessage(`{"more":1}`)
	for want, frame := range map[string]struct {
		kind byte
		body []byte
	}{
		"malformed": {localapi.FrameQuery, []byte(`{"protocol":1,`)}, "the first frame has": {'?', query(good)}, "speaks version": {localapi.FrameQuery, query(other)},
		"does not know": {localapi.FrameQuery, query(unknown)}, "name of an owner": {localapi.FrameQuery, query(anonymous)},
		"unknown field": {localapi.FrameQuery, query(extra)}, "request is": {localapi.FrameQuery, []byte(`{"protocol":3,"protocol":3}`)},
	} {
		conn, err := peer.Dial(r.host.Socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.WriteFrame(frame.kind, frame.body)
		wantFailure(t, conn, want)
	}
	conn, err := peer.Dial(r.host.Socket)
	if err != nil {
		t.Fatal(err)
	}
	conn.Write(binary.BigEndian.AppendUint32([]byte{localapi.FrameQuery}, 1<<31))
	wantFailure(t, conn, "may have at most")
	exec := hostapi.Query{Protocol: hostapi.Protocol, Verb: hostapi.ExecVerb, Owner: ann, Request: query(hostapi.Command{Sandbox: "one",
		Argv: []string{"/bin/busybox", "sleep", "10000"}, Input: true})}
	for want, send := range map[string]func(c *peer.Conn){
		"has the kind": func(c *peer.Conn) { c.WriteFrame('?', nil) },
		"not the number of a signal": func(c *peer.Conn) {
			c.WriteFrame(hostapi.FrameSignal, []byte("-1"))
		},
		"malformed": func(c *peer.Conn) { c.WriteFrame(hostapi.FrameSize, []byte("{")) },
		"more input": func(c *peer.Conn) {
			for range 2 * hostapi.InputWindow / (64 << 10) * 4 {
				c.WriteFrame(localapi.FrameInput, make([]byte, 64<<10))
			}
		},
	} {
		conn, err := peer.Dial(r.host.Socket)
		if err != nil {
			t.Fatal(err)
		}
		conn.WriteFrame(localapi.FrameQuery, query(exec))
		send(conn)
		wantFailure(t, conn, want)
	}
	r.shell("one", "true")
}

// wantFailure reads frames until the last one, which must be an error with that text.
func wantFailure(t *testing.T, conn *peer.Conn, want string) {
	t.Helper()
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(patience))
	for {
		kind, b, err := conn.ReadFrame()
		if err != nil {
			t.Errorf("%s: no answer: %v", want, err)
			return
		}
		if kind == hostapi.FrameCredit {
			continue
		}
		if err := localapi.LastWord(kind, b, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		return
	}
}

// TestDamagedRecords starts hosts over records that are damaged, foreign, or name other directories.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	c := testConfig(t, shortDir(t))
	id := newID("sb")
	outside := filepath.Join(string(c.Dir), "outside")
	for _, text := range []string{"", "{", "null", `{"id":"../../outside"}`, `{"id":"` + id + `","name":"x","state":"running","expires":"2999-01-01T00:00:00Z","Template":"../../outside"}`,
		strings.Repeat("[", 1000), `{"id":"` + id + `","name":"x","state":"creating","expires":"2999-01-01T00:00:00Z"}`} {
		dir := filepath.Join(string(c.Dir), "sandboxes", id)
		for _, d := range []string{dir, filepath.Join(string(c.Dir), "templates", newID("sn"))} {
			if err := errors.Join(os.MkdirAll(d, 0o700), os.WriteFile(filepath.Join(d, recordFile), []byte(text), 0o600), os.MkdirAll(outside, 0o700)); err != nil {
				t.Fatal(err)
			}
		}
		r := runHost(t, c)
		if n := len(r.host.boxes) + len(r.host.templates); n != 0 {
			t.Errorf("%.60s: %d sandboxes and templates", text, n)
		}
		r.stop()
		wantFiles(t, r.host, 0, 0)
		if _, err := os.Stat(outside); err != nil {
			t.Errorf("%.60s: %v", text, err)
		}
	}
	// A directory that is not a sandbox's is left alone.
	foreign := filepath.Join(string(c.Dir), "sandboxes", "notes")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	runHost(t, c).stop()
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(string(c.Dir), 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Run(t.Context()); !errors.Is(err, bailey.Denied) {
		t.Error("a directory that others can read:", err)
	}
}

// FuzzRecord checks that a record that is accepted names only directories below those of the host.
func FuzzRecord(f *testing.F) {
	f.Add("sb-"+strings.Repeat("a", 26), "one", "")
	f.Add("../x", "..", "a/b")
	f.Fuzz(func(t *testing.T, id, name, template string) {
		r := boxRecord{Template: template, Saved: template}
		r.ID, r.Name, r.State, r.Expires = id, name, hostapi.Running, time.Now()
		tr := templateRecord{Kind: warm, Parent: template}
		tr.ID = id
		box, tmpl := r.checkFields(id) == nil, tr.checkFields(id) == nil
		for _, s := range []string{id, name, template} {
			if (box || tmpl && s != name) && (strings.ContainsAny(s, "/\x00\n") || strings.HasPrefix(s, ".")) {
				t.Errorf("%q, %q, %q", id, name, template)
			}
		}
	})
}
