package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// connect connects the SDK's own client, so that the server is not tested with Bailey's code only.
func connect(t *testing.T, g Gate) *sdk.ClientSession {
	t.Helper()
	c, _ := serve(t, g)
	client := sdk.NewClient(&sdk.Implementation{Name: "sdk\x1b[31m", Version: "1.8"}, nil)
	s, err := client.Connect(t.Context(), &sdk.IOTransport{Reader: c, Writer: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func callTool(t *testing.T, s *sdk.ClientSession, name string, args any) *sdk.CallToolResult {
	t.Helper()
	res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return res
}

// first returns the first text. Some agents show only this text of an error.
func first(t *testing.T, r *sdk.CallToolResult) string {
	t.Helper()
	if len(r.Content) == 0 {
		t.Fatal("no content")
	}
	return r.Content[0].(*sdk.TextContent).Text
}

// metaOf reads the facts from the result as a program would.
func metaOf(t *testing.T, r *sdk.CallToolResult) facts {
	t.Helper()
	raw, err := json.Marshal(r.Meta[ResultKey])
	if err != nil {
		t.Fatal(err)
	}
	var f facts
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatalf("_meta %s: %v", raw, err)
	}
	return f
}

func TestClientSeesServer(t *testing.T) {
	s := connect(t, yard())
	init := s.InitializeResult()
	if init.ServerInfo.Name != "bailey" || init.ServerInfo.Version != "0.1" || !strings.Contains(init.Instructions, "refusal is final") || !strings.Contains(init.Instructions, "[REDACTED_") {
		t.Errorf("initialize: %+v, %+v", init.ServerInfo, init)
	}
	if c := init.Capabilities; c.Tools == nil || c.Resources == nil || c.Resources.Subscribe || c.Prompts != nil {
		t.Errorf("capabilities: %+v", c)
	}
}

func TestClientLists(t *testing.T) {
	s := connect(t, yard())
	res, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, tool := range res.Tools {
		got = append(got, fmt.Sprintf("%s=%s ro=%v destructive=%v idempotent=%v open=%v", tool.Name, tool.Title,
			tool.Annotations.ReadOnlyHint, *tool.Annotations.DestructiveHint, tool.Annotations.IdempotentHint, *tool.Annotations.OpenWorldHint))
	}
	want := []string{
		"git_branch-list=git.branch-list ro=false destructive=false idempotent=false open=false",
		"git_push=git.push ro=false destructive=true idempotent=false open=true",
		"system_echo=system.echo ro=true destructive=false idempotent=true open=false",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// TestCallsAreNotLists checks that a client that calls without listing has its names looked up once, and that a name
// that was not found then is looked up again.
func TestCallsAreNotLists(t *testing.T) {
	g := yard()
	s := connect(t, g)
	before := g.listed
	for range 3 {
		callTool(t, s, "system_echo", map[string]any{"message": "hi"})
	}
	if n := g.listed - before; n != 1 {
		t.Errorf("three calls listed %d times", n)
	}
	g.mu.Lock()
	g.tools = append(g.tools[:len(g.tools):len(g.tools)], Tool{ID: "late-comer.say"})
	g.mu.Unlock()
	callTool(t, s, "late-comer_say", nil)
	if c := g.got(); c[len(c)-1].Capability != "late-comer.say" {
		t.Errorf("what came later was taken for %s", c[len(c)-1].Capability)
	}
}

func TestClientCalls(t *testing.T) {
	g := yard()
	s := connect(t, g)
	res := callTool(t, s, "system_echo", map[string]any{"message": "hi", "n": 12345678901234567})
	if f := metaOf(t, res); res.IsError || first(t, res) != "hi" || res.StructuredContent != nil || !f.OK || f.Receipt != "r-ok" || *f.ExitCode != 0 {
		t.Errorf("allowed: %+v, %+v", res, f)
	}
	c := g.got()[0]
	if c.Capability != "system.echo" || c.Principal.Agent != "tester" || c.Session.ID != "s-1" || c.Door != "mcp" ||
		c.Dir != "/src" || c.Client != "sdk\uFFFD[31m/1.8" || c.Text || c.DryRun || c.Patience != DefaultPatience || c.Stdout != nil {
		t.Errorf("call: %+v", c)
	}
	if n, ok := c.Input["n"].(json.Number); !ok || n != "12345678901234567" {
		t.Errorf("a number became %T %v", c.Input["n"], c.Input["n"])
	}
}

func TestClientIsRefused(t *testing.T) {
	s := connect(t, yard())
	res := callTool(t, s, "git_push", nil)
	want := "refused: push to main is released by a person\nexecuted: no\nwhat to do: push to a branch\nreceipt: r-no\n"
	if !res.IsError || first(t, res) != want || len(res.Content) != 1 {
		t.Errorf("refused: %+v %q", res, first(t, res))
	}
	f, _ := res.StructuredContent.(map[string]any)
	if f["ok"] != false || f["decision"] != "deny" || f["receiptId"] != "r-no" || f["reason"] == "" || f["hint"] != "push to a branch" {
		t.Errorf("structured: %v", f)
	}
}

func TestClientCallsWhatIsNotThere(t *testing.T) {
	g := yard()
	s := connect(t, g)
	for name, want := range map[string]bailey.CapabilityID{
		"no_such_tool":           "no.such_tool",
		"git.push":               "git.push",
		"git_push\n":             "git.push\uFFFD",
		"":                       "",
		strings.Repeat("x", 999): bailey.CapabilityID(strings.Repeat("x", 125) + "…"),
	} {
		before := len(g.got())
		if res := callTool(t, s, name, map[string]any{}); !res.IsError {
			t.Errorf("%q: not an error", name)
		}
		if calls := g.got(); len(calls) != before+1 || calls[before].Capability != want {
			t.Errorf("%q: the gate saw %v", name, calls[before:])
		}
	}
}

func TestClientSendsBadArguments(t *testing.T) {
	g := yard()
	s := connect(t, g)
	res := callTool(t, s, "system_echo", map[string]any{"message": 5})
	if !res.IsError || !strings.HasPrefix(first(t, res), "wrong arguments: message: a string is wanted\n") || metaOf(t, res).Decision != "" {
		t.Errorf("wrong type: %q %+v", first(t, res), metaOf(t, res))
	}
	if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "system_echo", Arguments: []int{1}}); err == nil || !strings.Contains(err.Error(), "not an object") {
		t.Errorf("an array of arguments: %v", err)
	}
	if n := len(g.got()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// waiting makes system.echo run until its context ends. The channels report that it has started and how it ended.
func waiting(g *gate) (came chan struct{}, ended chan error) {
	came, ended = make(chan struct{}, 64), make(chan error, 64)
	g.do["system.echo"] = func(ctx context.Context, _ bailey.Call) bailey.Result {
		came <- struct{}{}
		select {
		case <-ctx.Done():
			ended <- ctx.Err()
		case <-time.After(time.Minute):
			ended <- errors.New("the call was never cancelled")
		}
		return bailey.Result{Receipt: "r-k", Status: bailey.Killed}
	}
	return came, ended
}

func wantCancelled(t *testing.T, ended chan error) {
	t.Helper()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestClientCancels(t *testing.T) {
	t.Parallel()
	g := yard()
	came, ended := waiting(g)
	s := connect(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-came; cancel() }()
	if _, err := s.CallTool(ctx, &sdk.CallToolParams{Name: "system_echo"}); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller got %v", err)
	}
	wantCancelled(t, ended)
	if err := s.Ping(t.Context(), nil); err != nil && !strings.Contains(err.Error(), "not supported in the new protocol") {
		t.Errorf("the connection after a cancellation: %v", err)
	}
}

func TestClientDropsMidCall(t *testing.T) {
	t.Parallel()
	g := yard()
	came, ended := waiting(g)
	c, served := serveAs(t, hasty(g))
	w := listen(t, c)
	w.hello("2025-11-25")
	w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo"}}`)
	<-came
	c.Close()
	wantCancelled(t, ended)
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestServeEndsWithItsContext checks that Serve ends with its context, even if the input has ended and open requests
// still have time.
func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(*net.UnixConn){
		"in the middle":             func(*net.UnixConn) {},
		"after the input has ended": func(c *net.UnixConn) { c.CloseWrite(); time.Sleep(50 * time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			g := yard()
			came, ended := waiting(g)
			near, far := pipe(t)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			cfg := config(g)
			cfg.Grace = time.Hour
			go func() { served <- Serve(ctx, cfg, far) }()
			w := listen(t, near)
			w.hello("2025-11-25")
			w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_echo"}}`)
			<-came
			before(near)
			cancel()
			wantCancelled(t, ended)
			select {
			case err := <-served:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Serve: %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("it goes on")
			}
		})
	}
}

func TestServeWithoutGate(t *testing.T) {
	_, far := pipe(t)
	if err := Serve(t.Context(), Config{}, far); !errors.Is(err, bailey.Internal) {
		t.Errorf("%v", err)
	}
	if _, err := far.Write([]byte("x")); err == nil {
		t.Error("the connection is still open")
	}
}

func TestClientCallsConcurrently(t *testing.T) {
	t.Parallel()
	const n = 200
	g := yard()
	var all sync.WaitGroup
	all.Add(n)
	g.do["system.echo"] = func(_ context.Context, c bailey.Call) bailey.Result {
		all.Done()
		all.Wait() // each call ends only when all calls are open at once
		return bailey.Result{Receipt: "r", Status: bailey.OK, Executed: true, Stdout: []byte(c.Input["message"].(string))}
	}
	s := connect(t, g)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			want := fmt.Sprint("message ", i)
			res, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "system_echo", Arguments: map[string]any{"message": want}})
			if err != nil || first(t, res) != want {
				t.Errorf("%d: %v %v", i, res, err)
			}
		})
	}
	wg.Wait()
}

func TestPanicIsOneAnswer(t *testing.T) {
	g := yard()
	g.do["system.echo"] = func(context.Context, bailey.Call) bailey.Result { panic("secret detail") }
	s := connect(t, g)
	_, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "system_echo"})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a panic: %v", err)
	}
	if res := callTool(t, s, "git_push", nil); !res.IsError {
		t.Error("the connection is not usable after a panic")
	}
}

// TestDescribe checks that an output schema is shown if the protocol supports it, and that a tool with another schema
// is still listed.
func TestDescribe(t *testing.T) {
	for schema, shown := range map[string]bool{`{"type":"object","required":["a"]}`: true, `{"type":"array"}`: false, `{"properties":{}}`: false, `true`: false, "": false, "{": false} {
		tool, err := convertTool("t_x", Tool{ID: "t.x", OutputSchema: json.RawMessage(schema)})
		if err != nil || (tool.OutputSchema != nil) != shown {
			t.Errorf("%s: %v, %v", schema, tool, err)
		}
	}
}

func TestListPages(t *testing.T) {
	g := &gate{}
	for i := range 25 {
		g.tools = append(g.tools, Tool{ID: bailey.CapabilityID(fmt.Sprintf("p.t%02d", (i*7)%25))})
	}
	g.tools = append(g.tools, Tool{ID: "bad.schema", InputSchema: json.RawMessage(`{"type":"string"}`)},
		Tool{ID: "bad.json", InputSchema: json.RawMessage(`{`)})
	cfg := config(g)
	cfg.Log = discard()
	s := &session{Config: cfg, page: 10}
	var got []string
	cursor := ""
	for range 5 {
		res, err := s.listTools(t.Context(), &sdk.ListToolsRequest{Params: &sdk.ListToolsParams{Cursor: cursor}})
		if err != nil {
			t.Fatal(err)
		}
		page := res.(*sdk.ListToolsResult)
		for _, tool := range page.Tools {
			got = append(got, tool.Name)
		}
		g.tools = append(g.tools, Tool{ID: "a.new"}) // comes before every cursor: shifts no page
		if cursor = page.NextCursor; cursor == "" {
			break
		}
	}
	if len(got) != 25 || got[0] != "p_t00" || got[24] != "p_t24" {
		t.Errorf("%d tools: %v", len(got), got)
	}
	for _, bad := range []string{"!", "====", "\x00"} {
		if _, err := s.listTools(t.Context(), &sdk.ListToolsRequest{Params: &sdk.ListToolsParams{Cursor: bad}}); err == nil {
			t.Errorf("cursor %q was taken", bad)
		}
	}
}

// TestClientAsksWhatWouldBeDecided checks that a dry run is a call that runs nothing, and that its answer names the
// deciding rules without their text.
func TestClientAsksWhatWouldBeDecided(t *testing.T) {
	g := yard()
	g.do["git.push"] = func(_ context.Context, c bailey.Call) bailey.Result {
		if !c.DryRun {
			t.Error("the wish for a dry run was lost")
		}
		rules := []bailey.Rule{{ID: "main-needs-human", Source: "team.cedar:12", Reason: "a push to main is a release"}}
		return bailey.Result{Receipt: "r-dry", Status: bailey.Pending, DryRun: true,
			Decision: bailey.Decision{Effect: bailey.Ask, Rules: rules, Asks: rules, Reason: "a push to main is a release", Hint: "a person must approve"}}
	}
	s := connect(t, g)
	ask := func(tool string, args any) *sdk.CallToolResult {
		r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Meta: sdk.Meta{DryRunKey: true}, Name: tool, Arguments: args})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := ask("git_push", map[string]any{})
	f := metaOf(t, r)
	if !r.IsError || f.Decision != "ask" || !f.DryRun || f.Executed || len(f.Rules) != 1 || f.Rules[0].ID != "main-needs-human" {
		t.Errorf("%+v", f)
	}
	if text := first(t, r); !strings.HasPrefix(text, "it would wait for an approval: a push to main") || !strings.Contains(text, "decided by: main-needs-human") || strings.Contains(text, "cedar") {
		t.Errorf("%q", text)
	}
	g.do["system.echo"] = func(_ context.Context, c bailey.Call) bailey.Result {
		return bailey.Result{Receipt: "r-dry2", Status: bailey.OK, DryRun: c.DryRun, Decision: bailey.Decision{Effect: bailey.Allow, Reason: "it only looks"}}
	}
	if text := first(t, ask("system_echo", map[string]any{"message": "hi"})); !strings.HasPrefix(text, "it would be allowed: it only looks") {
		t.Errorf("%q", text)
	}
}

// TestDryRunIsNotGuessed checks that a call does not run if the value of its dry-run key is not a boolean, for example
// "true" as a string.
func TestDryRunIsNotGuessed(t *testing.T) {
	g := yard()
	s := connect(t, g)
	for _, v := range []any{"true", 1, nil, map[string]any{}} {
		if r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Meta: sdk.Meta{DryRunKey: v}, Name: "system_echo", Arguments: map[string]any{"message": "hi"}}); err == nil {
			t.Errorf("%v: %+v", v, r)
		}
	}
	if calls := g.got(); len(calls) > 0 {
		t.Errorf("%d calls were made", len(calls))
	}
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Meta: sdk.Meta{DryRunKey: false}, Name: "system_echo", Arguments: map[string]any{"message": "hi"}})
	if err != nil || r.IsError || g.got()[0].DryRun {
		t.Errorf("false: %+v, %v", r, err)
	}
}
