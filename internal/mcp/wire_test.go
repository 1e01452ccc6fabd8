package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

func TestRefusedLines(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	call := func(args string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"system_echo","arguments":` + args + `}}`
	}
	for _, tt := range []struct{ name, line, id, want string }{
		{"garbage", "GET / HTTP/1.1", "null", "not one JSON value"},
		{"binary", "\x00\x01\x02", "null", "not one JSON value"},
		{"two values", `{"jsonrpc":"2.0","method":"ping","id":1}{}`, "1", "not one JSON value"},
		{"half a message", `{"jsonrpc":"2.0","id":7,"method":"ping"`, "7", "not one JSON value"},
		{"not UTF-8", call("{\"message\":\"\xff\"}"), "7", "not one JSON value"},
		{"a scalar", `5`, "null", "not an object"},
		{"null", `null`, "null", "not an object"},
		{"nothing in it", `{}`, "null", `"jsonrpc": "2.0"`},
		{"an old version", `{"jsonrpc":"1.0","id":7,"method":"ping"}`, "7", `"jsonrpc": "2.0"`},
		{"neither request nor answer", `{"jsonrpc":"2.0","id":7}`, "7", "neither method nor result"},
		{"a method in capitals", `{"jsonrpc":"2.0","id":7,"METHOD":"ping"}`, "7", "neither method nor result"},
		{"a method that is a number", `{"jsonrpc":"2.0","id":7,"method":5}`, "7", "not a string"},
		{"a method that is null", `{"jsonrpc":"2.0","id":7,"method":null}`, "7", "not a string"},
		{"an id of null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", "the id is neither"},
		{"a broken id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "null", "the id is neither"},
		{"a huge id", `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, "null", "the id is neither"},
		{"an object for id", `{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, "null", "the id is neither"},
		{"a long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 300) + `","method":"ping"}`, "null", "the id is neither"},
		{"two ids", `{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}`, "null", `key "id" is twice`},
		{"two methods", `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call"}`, "7", `key "method" is twice`},
		{"two names", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"system_echo","name":"git_push"}}`, "7", `key "name" is twice`},
		{"two values for an argument", call(`{"message":"a","message":"b"}`), "7", `key "message" is twice`},
		{"twice by escape", call(`{"message":"a","m\u0065ssage":"b"}`), "7", `key "message" is twice`},
		{"twice, far in", call(`{"a":[{"b":1},{"b":1,"c":{},"b":2}]}`), "7", `key "b" is twice`},
		{"twice after an array", call(`{"a":[1,"a"],"a":2}`), "7", `key "a" is twice`},
		{"deep", call(`{"message":` + deep(62) + `}`), "7", "is nested deeper than 64"},
		{"deep without end", strings.Repeat(`{"a":`, 5000), "null", "not one JSON value"},
		{"very deep", deep(100000), "null", "not one JSON value"},
		{"a batch", `[{"jsonrpc":"2.0","id":7,"method":"ping"}]`, "null", "not part of this revision"},
		{"no arguments object", call(`"x"`), "7", "not an object"},
		{"a method of nobody", `{"jsonrpc":"2.0","id":7,"method":"shutdown"}`, "7", "method not found"},
		{"resources", `{"jsonrpc":"2.0","id":7,"method":"prompts/list"}`, "7", "method not found"},
		{"a level for logs", `{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"debug"}}`, "7", "method not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := yard()
			w := dial(t, g)
			w.hello("2025-11-25")
			var got struct {
				ID    json.RawMessage
				Error struct{ Message string }
			}
			line := w.ask(tt.line)
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
			if string(got.ID) != tt.id || !strings.Contains(got.Error.Message, tt.want) {
				t.Errorf("got %s", line)
			}
			if n := len(g.got()); n != 0 {
				t.Errorf("the gate was called %d times", n)
			}
			if pong := w.ask(`{"jsonrpc":"2.0","id":"after","method":"ping"}`); pong != `{"jsonrpc":"2.0","id":"after","result":{}}` {
				t.Errorf("afterwards: %s", pong)
			}
		})
	}
}

func TestDepthThatStillPasses(t *testing.T) {
	w := dial(t, yard())
	w.hello("2025-11-25")
	// The message, params and arguments are three levels.
	args := `{"message":"x","deep":` + strings.Repeat("[", 61) + strings.Repeat("]", 61) + `}`
	got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo","arguments":` + args + `}}`)
	if !strings.Contains(got, `"text":"x"`) {
		t.Error(got)
	}
}

func TestIgnoredLines(t *testing.T) {
	w := dial(t, yard())
	w.hello("2025-11-25")
	w.send("", "  ", "\r", `{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","method":"notifications/whatever"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4711}}`)
	if pong := w.ask("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r"); pong != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Error(pong)
	}
}

func TestToolCallAsNotification(t *testing.T) {
	g := yard()
	w := dial(t, g)
	w.hello("2025-11-25")
	w.send(`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"system_echo","arguments":{"message":"x"}}}`)
	w.ask(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if n := len(g.got()); n != 0 {
		t.Errorf("a tools/call that wants no answer was made %d times", n)
	}
}

func TestHugeLine(t *testing.T) {
	ktest.Long(t)
	near, far := pipe(t)
	go Serve(t.Context(), config(yard()), far)
	w := listen(t, near)
	w.hello("2025-11-25")
	head := `{"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"`
	fits := head + strings.Repeat("x", maxLine-len(head)-len(`"}},"jsonrpc":"2.0","id":1}`)) + `"}},"jsonrpc":"2.0","id":1}`
	for range 10 { // more than may be open at once: answered requests do not count
		if got := w.ask(fits); !strings.Contains(got, `"id":1,"result"`) {
			t.Errorf("a line of %d bytes: %.200s", len(fits), got)
		}
	}
	long := strings.Replace(fits, `"id":1}`, `"id":12}`, 1)
	if got := w.ask(long); !strings.Contains(got, `"id":12,"error":{"code":-32600,"message":"the message is over 1 MiB"}`) {
		t.Errorf("a line of %d bytes: %.200s", len(long), got)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	chunk := bytes.Repeat([]byte("y"), 1<<20)
	io.WriteString(near, `{"id":"long","x":"`)
	for range 32 {
		if _, err := near.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.ask(`"}`); !strings.Contains(got, `"id":"long","error"`) {
		t.Errorf("32 MiB: %.200s", got)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("a line of 32 MiB allocated %d MiB", grown>>20)
	}
	if got := w.ask(`{"jsonrpc":"2.0","id":2,"method":"ping"}`); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("afterwards: %s", got)
	}
}

func TestOpenRequestsAreBounded(t *testing.T) {
	t.Parallel()
	g := yard()
	came, ended := make(chan bool, maxOpen), make(chan bool)
	g.do["system.echo"] = func(ctx context.Context, _ bailey.Call) bailey.Result {
		came <- true
		<-ended
		return bailey.Result{Receipt: "r", Status: bailey.OK, Executed: true}
	}
	w := dial(t, g)
	w.hello("2025-11-25")
	for i := range maxOpen {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"system_echo"}}`, i))
		<-came
	}
	if got := w.ask(`{"jsonrpc":"2.0","id":"more","method":"ping"}`); !strings.Contains(got, `"id":"more","error"`) || !strings.Contains(got, "too many requests") {
		t.Error(got)
	}
	if got := w.ask(`{"jsonrpc":"2.0","id":5,"method":"ping"}`); !strings.Contains(got, `"id":null`) || !strings.Contains(got, "in use") {
		t.Errorf("an id in use: %s", got)
	}
	close(ended)
	for range maxOpen {
		w.recv()
	}
	for i := range 3 { // every place must be free again
		if got := w.ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)); !strings.Contains(got, `"result":{}`) {
			t.Error(got)
		}
	}
}

func TestOpenBytesAreBounded(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	g := yard()
	came, ended := waiting(g)
	near, far := pipe(t)
	go Serve(t.Context(), hasty(g), far)
	w := listen(t, near)
	w.hello("2025-11-25")
	pad := strings.Repeat("x", maxLine-200)
	for i := range 8 {
		w.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"%s"}}}`, i, pad))
		<-came
	}
	if got := w.ask(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"` + pad + `"}}}`); !strings.Contains(got, "too many requests") {
		t.Error(got)
	}
	near.Close()
	for range 8 {
		wantCancelled(t, ended)
	}
}

// TestAnswersAfterTheInputEnded checks that a conversation that is piped in as a whole is answered even if the input
// has ended.
func TestAnswersAfterTheInputEnded(t *testing.T) {
	t.Parallel()
	g := yard()
	echo := g.do["system.echo"]
	g.do["system.echo"] = func(ctx context.Context, c bailey.Call) bailey.Result {
		time.Sleep(100 * time.Millisecond)
		return echo(ctx, c)
	}
	near, far := pipe(t)
	served := make(chan error, 1)
	cfg := config(g)
	cfg.Grace = time.Minute // the machine may be busy
	go func() { served <- Serve(t.Context(), cfg, far) }()
	io.WriteString(near, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"late"}}}`)
	near.CloseWrite()
	all, err := io.ReadAll(near)
	if err != nil || !strings.Contains(string(all), `"text":"late"`) {
		t.Errorf("%s, %v", all, err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestGrace checks that open requests are cancelled after the grace period, which begins with the peer's last byte.
func TestGrace(t *testing.T) {
	for name, took := range map[string]time.Duration{"in time": DefaultGrace - time.Millisecond, "late": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := yard()
				echo := g.do["system.echo"]
				g.do["system.echo"] = func(ctx context.Context, c bailey.Call) bailey.Result {
					select {
					case <-time.After(took):
						return echo(ctx, c)
					case <-ctx.Done():
						return bailey.Result{Receipt: "r-k", Status: bailey.Killed}
					}
				}
				out, began := &sink{}, time.Now()
				if err := Serve(t.Context(), config(g), stream{strings.NewReader(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}
{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"late"}}}`), out}); err != nil {
					t.Errorf("Serve: %v", err)
				}
				answered := strings.Contains(out.String(), `"text":"late"`)
				if ended := time.Since(began); answered != (took < DefaultGrace) || ended != min(took, DefaultGrace) {
					t.Errorf("answered %v, it ended after %v", answered, ended)
				}
			})
		})
	}
}

// TestPeerThatDoesNotRead checks that the session of a peer that neither reads nor sends ends.
func TestPeerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	g := yard()
	g.do["system.echo"] = func(context.Context, bailey.Call) bailey.Result {
		return bailey.Result{Receipt: "r", Status: bailey.OK, Executed: true, Stdout: bytes.Repeat([]byte("x"), 1<<20)}
	}
	near, far := pipe(t)
	served := make(chan error, 1)
	cfg := config(g)
	cfg.Grace = 200 * time.Millisecond
	go func() { served <- Serve(t.Context(), cfg, far) }()
	io.WriteString(near, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`+"\n")
	for i := range 4 {
		fmt.Fprintf(near, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"system_echo"}}`+"\n", i+1)
	}
	near.CloseWrite()
	select {
	case err := <-served:
		if err != nil && !errors.Is(err, io.ErrClosedPipe) && !strings.Contains(err.Error(), "closed") {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Serve waits for a peer that does not read")
	}
}

func TestBatch(t *testing.T) {
	g := yard()
	w := dial(t, g)
	w.hello("2025-03-26")
	got := w.ask(`[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}},` +
		`{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}},` +
		`{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"system_echo","arguments":{"message":"x"}}},{"jsonrpc":"2.0","id":1000,"result":{}}]`)
	var all []struct{ ID any }
	if err := json.Unmarshal([]byte(got), &all); err != nil || len(all) != 2 {
		t.Fatalf("%s: %v", got, err)
	}
	w.send(`[{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}]`) // nothing to answer
	for line, want := range map[string]string{
		`[]`: "the batch is empty",
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]`: "in use",
		`[{"jsonrpc":"2.0","id":1,"method":"ping"},5]`:                                        "not an object",
		`[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]`:                                        "not an object",
		"[" + strings.Repeat(`{"jsonrpc":"2.0","method":"x"},`, 3) + manyPings() + "]":        "too many requests",
	} {
		if got := w.ask(line); !strings.Contains(got, want) || !strings.Contains(got, `"id":null`) {
			t.Errorf("%.60s: %s", line, got)
		}
	}
	if n := len(g.got()); n != 1 {
		t.Errorf("%d calls", n)
	}
	if got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"ping"}`); !strings.Contains(got, `"result":{}`) {
		t.Errorf("afterwards: %s", got)
	}
}

func manyPings() string {
	var p []string
	for i := range maxOpen + 1 {
		p = append(p, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i))
	}
	return strings.Join(p, ",")
}

func TestCallBeforeInitialize(t *testing.T) {
	g := yard()
	w := dial(t, g)
	if got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo","arguments":{"message":"x"}}}`); !strings.Contains(got, `"error"`) {
		t.Error(got)
	}
	if n := len(g.got()); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// hidden simulates the session's redaction.
func hidden(text string) string { return strings.ReplaceAll(text, "hunter2", "[TOKEN]") }

// TestProtocolErrorsAreHidden checks that an error is redacted if it quotes the request, including its data, and that
// its code stays the same.
func TestProtocolErrorsAreHidden(t *testing.T) {
	far, near := net.Pipe()
	go Serve(t.Context(), config(yard()), far)
	defer near.Close()
	answers := bufio.NewReader(near)
	fmt.Fprintln(near, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if _, err := answers.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ line, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"hunter2"}`, `"code":-32601,"message":"method not found: \"[TOKEN]\""`},
		{`{"jsonrpc":"2.0","id":2,"method":"ping","hunter2":1,"hunter2":2}`, `"code":-32600,"message":"the key \"[TOKEN]\" is twice in one object"`},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":["hunter2"]}}`, `[TOKEN]`},
		{`{"jsonrpc":"2.0","id":4,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"hunter2","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`, `"requested":"[TOKEN]"`},
	} {
		fmt.Fprintln(near, c.line)
		got, err := answers.ReadString('\n')
		if err != nil || strings.Contains(got, "hunter2") || !strings.Contains(got, c.want) || !json.Valid([]byte(got)) {
			t.Errorf("%s: %s, %v; want %s", c.line, got, err, c.want)
		}
	}
}
