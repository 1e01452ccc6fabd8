//go:build linux || darwin

package broker

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/peer"
)

// TestStrict checks that a message is accepted in one form only, and refused in any other before it has an effect.
func TestStrict(t *testing.T) {
	good := `{"version":1,"wants":[{"name":"a","env":"A"}]}`
	if a, err := readAsk([]byte(good)); err != nil || a.Wants[0].Name != "a" {
		t.Fatal(a, err)
	}
	for name, text := range map[string]string{
		"nothing": ``, "null": `null`, "a list": `[]`, "a word": `"x"`, "two": good + good, "more behind": good + "x", "cut": good[:len(good)-1],
		"unknown": `{"version":1,"x":1}`, "twice": `{"version":1,"version":1}`, "twice inside": `{"version":1,"wants":[{"name":"a","name":"b","env":"A"}]}`,
		"capital": `{"Version":1}`, "other letters": `{"verſion":1}`, "a key of nothing": `{"":1,"version":1}`, "another type": `{"version":"1"}`,
		"version 0": `{}`, "version 2": `{"version":2}`, "a long word": `{"version":1,"receipt":"` + strings.Repeat("r", maxWord+1) + `"}`,
		"many wants": `{"version":1,"wants":[` + strings.Repeat(`{"name":"a","env":"A"},`, maxWants) + `{"name":"a","env":"A"}]}`,
		"many ids":   `{"version":1,"ids":[` + strings.Repeat(`"a",`, maxWants) + `"a"]}`,
		"deep":       `{"version":1,"wants":[[[[]]]]}`, "deeper": `{"version":` + strings.Repeat("[", 100000),
	} {
		if a, err := readAsk([]byte(text)); !errors.Is(err, bailey.Invalid) || bailey.HintOf(err) == "" || !reflect.DeepEqual(a, brokerRequest{}) {
			t.Errorf("%s: %+v %v", name, a, err)
		}
	}
}

// TestHostileClients checks that an unknown, malformed or too long message gets an error or ends the connection, and
// that the broker continues.
func TestHostileClients(t *testing.T) {
	h := newHouse(t, table())
	for name, do := range map[string]func(c *peer.Conn) error{
		"unknown kind": func(c *peer.Conn) error { return c.WriteFrame('?', []byte(`{"version":1}`)) },
		"no form":      func(c *peer.Conn) error { return c.WriteFrame(askLend, []byte("x")) },
		"nothing":      func(c *peer.Conn) error { return c.WriteFrame(askLend, []byte(`{"version":1}`)) },
		"too long":     func(c *peer.Conn) error { _, err := c.Write([]byte{askLend, 0xff, 0xff, 0xff, 0xff}); return err },
		"an apply of what does not exist": func(c *peer.Conn) error {
			return c.WriteFrame(askApply, []byte(`{"version":1,"digest":"00"}`))
		},
	} {
		c, done, err := h.client.dialBroker(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := do(c); err != nil {
			t.Fatal(err)
		}
		kind, payload, err := c.ReadFrame()
		var r refusal
		if err != nil || kind != answerErr || json.Unmarshal(payload, &r) != nil || r.Hint == "" {
			t.Errorf("%s: %q %s %v", name, kind, payload, err)
		}
		done()
	}
}

// TestManyConnections checks that the number of concurrent connections is limited, and that a closed one makes room.
func TestManyConnections(t *testing.T) {
	h := newHouse(t, table())
	h.end()
	h.config.Most = 3
	h.start(false)
	var open []func()
	for range h.config.Most {
		c, done, err := h.client.dialBroker(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, done)
		if err := roundTrip(c, askHello, brokerRequest{Version: version}, &Hello{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.client.Hello(t.Context()); !errors.Is(err, bailey.Unavailable) {
		t.Errorf("one more: %v", err)
	}
	for _, done := range open {
		done()
	}
	// a connection ends when the broker notices it
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := h.client.Hello(t.Context()); err == nil {
			return
		}
	}
	t.Error("it takes nobody any more")
}

// FuzzAsk checks that an accepted message is read again as the same, and that it has only known keys.
func FuzzAsk(f *testing.F) {
	f.Add([]byte(`{"version":1,"receipt":"r-1","capability":"git.push","wants":[{"name":"a","env":"A","file":true}],"text":"x","signatures":["y"]}`))
	f.Add([]byte(`{"version":1,"ids":["l-1"],"digest":"00"}`))
	f.Add([]byte(`{"version":1,"key":"00","text":"x"}`))
	f.Add([]byte(`{"version":1,"Version":1}`))
	f.Add([]byte(`{"version":1,"wants":[[[[[`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		a, err := readAsk(payload)
		if err != nil {
			return
		}
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := readAsk(again); err != nil || !reflect.DeepEqual(normal(a), normal(b)) {
			t.Errorf("%s reads as %+v, and that as %+v, %v", payload, a, b, err)
		}
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(payload, &keys); err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		for k := range keys {
			if !strings.Contains("version receipt capability wants text signatures ids digest key", k) {
				t.Errorf("the key %q was taken", k)
			}
		}
	})
}

// normal returns a with nil in place of empty lists.
func normal(a brokerRequest) brokerRequest {
	if len(a.Wants) == 0 {
		a.Wants = nil
	}
	if len(a.Signatures) == 0 {
		a.Signatures = nil
	}
	if len(a.IDs) == 0 {
		a.IDs = nil
	}
	return a
}
