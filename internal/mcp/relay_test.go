package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"bailey"
)

// fakeDial hands out one end of a pipe for each connection and keeps the other.
type fakeDial struct {
	far  chan net.Conn
	fail error
}

func (d *fakeDial) dial(context.Context) (io.ReadWriteCloser, error) {
	if d.fail != nil {
		return nil, d.fail
	}
	near, far := net.Pipe()
	d.far <- far
	return near, nil
}

// TestRelayWithdrawsRequests checks that the requests of a gateway to the agent are withdrawn when that gateway ends. A
// late answer must not reach the next gateway, because that gateway may use the same ids.
func TestRelayWithdrawsRequests(t *testing.T) {
	d := &fakeDial{far: make(chan net.Conn, 4)}
	in, agent := io.Pipe()
	answers, out := io.Pipe()
	go Relay(t.Context(), d.dial, in, out)
	defer agent.Close()
	replies := bufio.NewScanner(answers)
	hear := func() string { replies.Scan(); return replies.Text() }
	say := func(s string) { io.WriteString(agent, s+"\n") }

	one := <-d.far
	first := bufio.NewScanner(one)
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}`, `{"jsonrpc":"2.0","id":2,"method":"elicitation/create"}`,
		`{"jsonrpc":"2.0","id":3,"method":"elicitation/create"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`} {
		io.WriteString(one, line+"\n")
		if got := hear(); got != line {
			t.Fatalf("the agent heard %s", got)
		}
	}
	say(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`)
	if first.Scan(); !strings.Contains(first.Text(), `"accept"`) {
		t.Fatalf("the gateway heard %s", first.Text())
	}
	one.Close()
	if got := hear(); !strings.Contains(got, "notifications/cancelled") || !strings.Contains(got, `"requestId":2`) {
		t.Fatalf("the agent heard %s", got)
	}
	for _, id := range []string{"1", "2", "3", "9"} { // one was answered, two were withdrawn, 9 was never asked
		say(`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept"}}`)
	}
	say(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	two := <-d.far
	second := bufio.NewScanner(two)
	if second.Scan(); !strings.Contains(second.Text(), `"ping"`) {
		t.Errorf("the next gateway heard %s", second.Text())
	}
	two.Close()
}

// TestRelayOutlivesTheGateway checks that pending requests get an error if the gateway ends, that no request is sent
// twice, and that the next line reaches a new gateway that has received the handshake.
func TestRelayOutlivesTheGateway(t *testing.T) {
	d := &fakeDial{far: make(chan net.Conn, 4)}
	in, agent := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Relay(context.Background(), d.dial, in, out) }()
	replies := bufio.NewScanner(answers)
	say := func(s string) { io.WriteString(agent, s+"\n") }
	hear := func() string {
		if !replies.Scan() {
			t.Fatalf("the relay ended: %v", replies.Err())
		}
		return replies.Text()
	}

	one := <-d.far
	first := bufio.NewScanner(one)
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`)
	first.Scan()
	io.WriteString(one, `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n")
	hear()
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	first.Scan()
	say(`{"jsonrpc":"2.0","id":"two","method":"tools/call"}`)
	first.Scan()
	one.Close()
	if got := hear(); !strings.Contains(got, `"id":"two"`) || !strings.Contains(got, "may have run") {
		t.Fatalf("what waited heard %s", got)
	}

	say(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
	two := <-d.far
	second := bufio.NewScanner(two)
	for _, want := range []string{`"method":"initialize"`, `notifications/initialized`, `"method":"ping"`} {
		second.Scan()
		if !strings.Contains(second.Text(), want) {
			t.Fatalf("the new gateway heard %s, want %s", second.Text(), want)
		}
		if want == `"method":"initialize"` {
			io.WriteString(two, `{"jsonrpc":"2.0","id":1,"result":{"again":true}}`+"\n")
		}
	}
	io.WriteString(two, `{"jsonrpc":"2.0","id":3,"result":{}}`+"\n")
	if got := hear(); !strings.Contains(got, `"id":3`) {
		t.Fatalf("the answer was %s", got)
	}

	d.fail = &bailey.Error{Kind: bailey.Unavailable, Message: "disk gone", Hint: "mend it"}
	two.Close()
	for { // A line that is sent before the relay sees the end goes to the old gateway.
		say(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		var e struct{ Error struct{ Message string } }
		got := hear()
		if err := json.Unmarshal([]byte(got), &e); err == nil && e.Error.Message == lostCall {
			continue
		}
		if !strings.Contains(e.Error.Message, "disk gone; mend it") {
			t.Fatalf("without a gateway the answer was %s", got)
		}
		break
	}
	agent.Close()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("the relay ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the relay did not end")
	}
}
