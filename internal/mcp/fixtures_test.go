package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// newFixtures returns a front end with only the tools, resources and prompts of MCP's conformance suite. The scenario of
// the same name in the suite describes each fixture.
func newFixtures(t *testing.T) *HTTP {
	t.Helper()
	h, err := NewHTTP(HTTPConfig{
		Admit: func(string) (Caller, error) { return Caller{}, nil },
		Enter: func(context.Context, Caller) (Config, func(), error) {
			return Config{Hide: strings.Clone}, func() {}, nil
		},
		Hide: strings.Clone,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.open = newFixtureServer
	// the suite asks for replays of a stream, which the front end does not offer
	options := sdk.StreamableHTTPOptions{MaxRequestBodyBytes: maxLine, DisableLocalhostProtection: true,
		EventStore: sdk.NewMemoryEventStore(nil)}
	server := func(r *http.Request) *sdk.Server { return sessionOf(r).server }
	h.old = sdk.NewStreamableHTTPHandler(server, &options)
	options.Stateless = true
	h.newest = sdk.NewStreamableHTTPHandler(server, &options)
	return h
}

// newFixtureServer returns the server of one session.
func newFixtureServer(t *httpSession) (*sdk.Server, error) {
	none := func(context.Context, *sdk.SubscribeRequest) error { return nil }
	server := sdk.NewServer(&sdk.Implementation{Name: "bailey-fixtures", Version: "1"}, &sdk.ServerOptions{
		Capabilities: fixtureCapabilities(),
		CompletionHandler: func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{"paris", "park",
				"party"}, Total: 3}}, nil
		},
		SubscribeHandler:   none,
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
		GetSessionID:       func() string { return t.session.name },
		SetCacheable:       func(_ context.Context, _ sdk.Request, c *sdk.Cacheable) { c.CacheScope = "private" },
	})
	for _, f := range [][]fixture{contentFixtures(), sessionFixtures(), inputFixtures(), changeFixtures(server),
		taskFixtures()} {
		for _, f := range f {
			server.AddTool(&sdk.Tool{Name: f.name, Description: "A fixture of MCP's conformance suite",
				InputSchema: json.RawMessage(f.inputSchema())}, f.toolHandler())
		}
	}
	addResources(server)
	addPrompts(server)
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			if call, ok := req.(*sdk.CallToolRequest); ok {
				if res, ok, err := t.session.fixtureTask(ctx, call); ok {
					return res, err
				}
			}
			res, err := next(ctx, method, req)
			if r, ok := res.(*sdk.InitializeResult); ok {
				r.Capabilities = withoutExtensions(r.Capabilities)
			}
			return res, err
		}
	})
	return server, t.session.offerTasks(server)
}

// fixture is a tool. inputs is either a list of schema properties with the required ones, or a whole schema.
type fixture struct {
	name   string
	inputs string
	do     func(ctx context.Context, f *fixtureCall) (*sdk.CallToolResult, error)
}

func (f fixture) inputSchema() string {
	switch {
	case f.inputs == "":
		return `{"type":"object"}`
	case f.inputs[0] == '{':
		return f.inputs
	}
	return `{"type":"object","properties":{` + f.inputs + `}}`
}

func (f fixture) toolHandler() sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		c := &fixtureCall{req: req}
		if len(req.Params.Arguments) > 0 {
			if err := json.Unmarshal(req.Params.Arguments, &c.args); err != nil {
				return nil, invalidParams("the arguments are not an object")
			}
		}
		return f.do(ctx, c)
	}
}

// fixtureCall is a call of a fixture.
type fixtureCall struct {
	req  *sdk.CallToolRequest
	args map[string]any
	task *task // nil if the call is not a task
	of   *tasks
}

func (c *fixtureCall) textArg(name string) string { s, _ := c.args[name].(string); return s }

func textResult(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// sleepContext waits for d, like a working tool. It returns false if ctx ended before.
func sleepContext(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// An image of one pixel, and an empty sound.
var (
	onePixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82")
	silence  = []byte("RIFF$\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00")
	picture  = &sdk.ImageContent{Data: onePixel, MIMEType: "image/png"}
)

func embeddedText(uri, kind, text string) *sdk.EmbeddedResource {
	return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: kind, Text: text}}
}

// constantFixture returns a fixture with a constant answer.
func constantFixture(name string, content ...sdk.Content) fixture {
	return fixture{name: name, do: func(context.Context, *fixtureCall) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: content}, nil
	}}
}

func contentFixtures() []fixture {
	return []fixture{
		constantFixture("test_simple_text", &sdk.TextContent{Text: "This is a simple text response for testing."}),
		constantFixture("test_image_content", picture),
		constantFixture("test_audio_content", &sdk.AudioContent{Data: silence, MIMEType: "audio/wav"}),
		constantFixture("test_embedded_resource",
			embeddedText("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
		constantFixture("test_multiple_content_types", &sdk.TextContent{Text: "Multiple content types test:"}, picture,
			embeddedText("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`)),
		constantFixture("test_streaming_elicitation", &sdk.TextContent{Text: "nothing is asked on this stream"}),
		{name: "test_error_handling", do: func(context.Context, *fixtureCall) (*sdk.CallToolResult, error) {
			r := textResult("This tool intentionally returns an error for testing")
			r.IsError = true
			return r, nil
		}},
		{name: "json_schema_2020_12_tool", inputs: schema2020,
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				return textResult("%v", c.args), nil
			}},
		{name: "test_x_mcp_header",
			inputs: `"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}`,
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				return textResult("region %s", c.textArg("region")), nil
			}},
		{name: "greet", inputs: `"name":{"type":"string"}`,
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				return textResult("Hello, %s!", c.textArg("name")), nil
			}},
	}
}

// schema2020 contains every JSON Schema keyword that the suite expects to get back.
const schema2020 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
	"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
	"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},
		"phone":{"type":"string"},"email":{"type":"string"}},
	"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
	"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
	"additionalProperties":false}`

// changeFixtures notify listeners of a change.
func changeFixtures(server *sdk.Server) []fixture {
	return []fixture{
		{name: "test_trigger_tool_change", do: func(context.Context, *fixtureCall) (*sdk.CallToolResult, error) {
			// adding the same tool again counts as a change
			f := constantFixture("test_simple_text",
				&sdk.TextContent{Text: "This is a simple text response for testing."})
			server.AddTool(&sdk.Tool{Name: f.name, Description: "A fixture of MCP's conformance suite", InputSchema: json.RawMessage(f.inputSchema())}, f.toolHandler())
			return textResult("the tools changed"), nil
		}},
		{name: "test_trigger_prompt_change", do: func(context.Context, *fixtureCall) (*sdk.CallToolResult, error) {
			addPrompts(server)
			return textResult("the prompts changed"), nil
		}},
	}
}

// taskFixtures are tasks for clients with the tasks extension, and tools for others.
func taskFixtures() []fixture {
	return []fixture{
		{name: "slow_compute", inputs: `"seconds":{"type":"number"},"label":{"type":"string"}`,
			do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				seconds, _ := c.args["seconds"].(float64)
				if !sleepContext(ctx, time.Duration(seconds*float64(time.Second))) {
					r := textResult("cut off")
					r.IsError = true
					return r, nil
				}
				return textResult("computed %s in %v s", c.textArg("label"), seconds), nil
			}},
		{name: "failing_job", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			sleepContext(ctx, time.Second)
			r := textResult("the job failed")
			r.IsError = true
			return r, nil
		}},
		{name: "protocol_error_job", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job broke"}
		}},
		{name: "confirm_delete", inputs: `"filename":{"type":"string"}`,
			do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				return c.askConfirmations(ctx, "confirm")
			}},
		{name: "test_tool_with_task", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			if name := enteredField(c.req.Params.InputResponses, "user_name", "name"); name != "" {
				sleepContext(ctx, 100*time.Millisecond)
				return textResult("Hello, %s!", name), nil
			}
			return requireInput(sealState("task"), sdk.InputRequestMap{"user_name": nameInput("What is your name?")})
		}},
		{name: "multi_input", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			return c.askConfirmations(ctx, "first", "second")
		}},
	}
}

// askConfirmations waits for an answer to each key.
func (c *fixtureCall) askConfirmations(ctx context.Context, keys ...string) (*sdk.CallToolResult, error) {
	if c.task == nil {
		return textResult("no hook was run"), nil
	}
	inputs, answers := sdk.InputRequestMap{}, make(chan string, len(keys))
	for _, key := range keys {
		inputs[key] = asksFor("Is it "+key+"?", `"confirm":{"type":"boolean"}`, "")
	}
	c.of.recordWaiting(c.task, "waits for its client", inputs,
		func(_ context.Context, key string, r sdk.InputResponse) bool {
			if _, ok := r.(*sdk.ElicitResult); !ok {
				return false
			}
			select {
			case answers <- key:
			default: // duplicate answer
			}
			return true
		})
	for range keys {
		select {
		case <-answers:
		case <-ctx.Done():
			r := textResult("cut off")
			r.IsError = true
			return r, nil
		}
	}
	return textResult("answered: %v", keys), nil
}

// fixtureTask answers a call that is a task. ok is false for any other call.
func (s *session) fixtureTask(ctx context.Context, req *sdk.CallToolRequest) (res sdk.Result, ok bool, err error) {
	for _, f := range taskFixtures() {
		switch {
		case f.name != req.Params.Name:
			continue
		case !hasTasksExtension(req.Params.GetMeta()) && f.name != "failing_job" && f.name != "test_tool_with_task":
			return nil, false, nil
		case !hasTasksExtension(req.Params.GetMeta()): // these exist only as tasks
			return nil, true, missingTasks()
		case f.name == "test_tool_with_task" && enteredField(req.Params.InputResponses, "user_name", "name") == "":
			return nil, false, nil // the first call asks for input
		}
		return s.tasks.runWork(ctx,
			taskWork{shown: func() {}, hide: s.Hide, do: func(ctx context.Context, t *task) (sdk.Result, error) {
				c := &fixtureCall{req: req, task: t, of: &s.tasks}
				if len(req.Params.Arguments) > 0 && json.Unmarshal(req.Params.Arguments, &c.args) != nil {
					return nil, invalidParams("the arguments are not an object")
				}
				for !s.tasks.isShown(t) && sleepContext(ctx, time.Millisecond) { // the suite requires a task even if the work takes no time
				}
				r, err := f.do(ctx, c)
				if r == nil {
					return nil, errors.Join(err)
				}
				return r, err
			}})
	}
	return nil, false, nil
}

func (l *tasks) isShown(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return t.shown
}
