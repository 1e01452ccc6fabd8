//lint:file-ignore SA1019 the suite asks for what newer revisions do without.

package mcp

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func fixtureCapabilities() *sdk.ServerCapabilities {
	return &sdk.ServerCapabilities{Logging: &sdk.LoggingCapabilities{},
		Extensions: map[string]any{TasksExtension: map[string]any{}}}
}

// asksFor returns a form with the given fields.
func asksFor(message, fields, required string) *sdk.ElicitParams {
	return &sdk.ElicitParams{Message: message,
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{` + fields + `},"required":[` + required +
			`]}`)}
}

// sessionFixtures send messages to their client while they run, or send it the requests of the revisions up to
// 2025-11-25.
func sessionFixtures() []fixture {
	return []fixture{
		{name: "test_tool_with_logging", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			for i, text := range []string{"Tool execution started", "Tool processing data",
				"Tool execution completed"} {
				if i > 0 {
					sleepContext(ctx, 50*time.Millisecond)
				}
				c.req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text})
			}
			return textResult("logged"), nil
		}},
		{name: "test_logging_tool", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			c.req.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: "said to whoever asked for it"})
			return textResult("logged, where it was asked for"), nil
		}},
		{name: "test_tool_with_progress", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			token := c.req.Params.GetProgressToken()
			for i, done := range []float64{0, 50, 100} {
				if i > 0 {
					sleepContext(ctx, 50*time.Millisecond)
				}
				if token != nil {
					c.req.Session.NotifyProgress(ctx,
						&sdk.ProgressNotificationParams{ProgressToken: token, Progress: done, Total: 100})
				}
			}
			return textResult("done"), nil
		}},
		{name: "test_reconnection", do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			if shut := c.req.GetExtra().CloseSSEStream; shut != nil {
				shut(sdk.CloseSSEStreamArgs{RetryAfter: 100 * time.Millisecond})
			}
			sleepContext(ctx, 200*time.Millisecond) // the client reconnects during this time
			return textResult("the stream was taken up again"), nil
		}},
		{name: "test_sampling", inputs: `"prompt":{"type":"string"}`,
			do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				r, err := c.req.Session.CreateMessage(ctx, samplingParams(c.textArg("prompt"), 100))
				if err != nil {
					return nil, err
				}
				text, _ := r.Content.(*sdk.TextContent)
				if text == nil {
					text = &sdk.TextContent{Text: "(no text)"}
				}
				return textResult("LLM response: %s", text.Text), nil
			}},
		elicitFixture("test_elicitation", `"message":{"type":"string"}`, "User response",
			`"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}`, `"username","email"`),
		elicitFixture("test_elicitation_sep1034_defaults", "", "Elicitation completed",
			`"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},`+
				`"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}`, ""),
		elicitFixture("test_elicitation_sep1330_enums", "", "Elicitation completed",
			`"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},`+
				`"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"}]},`+
				`"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},`+
				`"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},`+
				`"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"}]}}`, ""),
		{name: "test_missing_capability", do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			if caps, _ := clientCapabilities(c.req.Params.GetMeta()); caps.Sampling == nil {
				return nil, missingCapability(`{"sampling":{}}`)
			}
			return textResult("the client can sample"), nil
		}},
	}
}

func elicitFixture(name, inputs, begins, fields, required string) fixture {
	return fixture{name: name, inputs: inputs,
		do: func(ctx context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
			message := c.textArg("message")
			if message == "" {
				message = "Please fill in"
			}
			r, err := c.req.Session.Elicit(ctx, asksFor(message, fields, required))
			if err != nil {
				return nil, err
			}
			content, err := json.Marshal(r.Content)
			return textResult("%s: action=%s, content=%s", begins, r.Action, content), err
		}}
}

func samplingParams(prompt string, tokens int64) *sdk.CreateMessageParams {
	return &sdk.CreateMessageParams{MaxTokens: tokens,
		Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: prompt}}}}
}

// nameInput returns a form for a name, for the newer revisions.
func nameInput(message string) sdk.InputRequest {
	return asksFor(message, `"name":{"type":"string"}`, `"name"`)
}

// enteredField returns the text that a person entered, or "".
func enteredField(responses sdk.InputResponseMap, key, name string) string {
	r, _ := responses[key].(*sdk.ElicitResult)
	if r == nil || r.Action != "accept" {
		return ""
	}
	s, _ := r.Content[name].(string)
	return s
}

// sampledText returns the answer of a model, and whether there is one.
func sampledText(responses sdk.InputResponseMap, key string) (string, bool) {
	switch r := responses[key].(type) {
	case *sdk.CreateMessageResult:
		text, ok := r.Content.(*sdk.TextContent)
		if ok {
			return text.Text, true
		}
	case *sdk.CreateMessageWithToolsResult:
		for _, c := range r.Content {
			if text, ok := c.(*sdk.TextContent); ok {
				return text.Text, true
			}
		}
	}
	return "", false
}

// requireInput returns a result that asks for input.
func requireInput(state string, inputs sdk.InputRequestMap) (*sdk.CallToolResult, error) {
	return &sdk.CallToolResult{InputRequests: inputs, RequestState: state}, nil
}

// sealKey is the random key that authenticates request states.
var sealKey = sync.OnceValue(func() []byte { return []byte(rand.Text()) })

func sealState(state string) string {
	m := hmac.New(sha256.New, sealKey())
	m.Write([]byte(state))
	return state + "." + hex.EncodeToString(m.Sum(nil))
}

// unsealState returns a state that this process sealed.
func unsealState(sealed string) (string, error) {
	state, _, _ := strings.Cut(sealed, ".")
	if sealed == "" || !hmac.Equal([]byte(sealState(state)), []byte(sealed)) {
		return "", invalidParams("the requestState was not made here")
	}
	return state, nil
}

// inputFixtures ask for inputs, which the client sends with a repeated call.
func inputFixtures() []fixture {
	return []fixture{
		{name: "test_input_required_result_elicitation",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				if name := enteredField(c.req.Params.InputResponses, "user_name", "name"); name != "" {
					return textResult("Hello, %s!", name), nil
				}
				return requireInput("", sdk.InputRequestMap{"user_name": nameInput("What is your name?")})
			}},
		{name: "test_input_required_result_sampling",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				if text, ok := sampledText(c.req.Params.InputResponses, "capital_question"); ok {
					return textResult("The model says: %s", text), nil
				}
				return requireInput("",
					sdk.InputRequestMap{"capital_question": samplingParams("What is the capital of France?", 100)})
			}},
		{name: "test_input_required_result_list_roots",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				if r, ok := c.req.Params.InputResponses["client_roots"].(*sdk.ListRootsResult); ok {
					var uris []string
					for _, root := range r.Roots {
						uris = append(uris, root.URI)
					}
					return textResult("%d roots: %s", len(uris), strings.Join(uris, " ")), nil
				}
				return requireInput("", sdk.InputRequestMap{"client_roots": &sdk.ListRootsParams{}})
			}},
		{name: "test_input_required_result_request_state",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				if c.req.Params.InputResponses["confirm"] != nil {
					_, err := unsealState(c.req.Params.RequestState)
					return textResult("state-ok"), err
				}
				return requireInput(sealState("confirm"),
					sdk.InputRequestMap{"confirm": asksFor("Please confirm", `"ok":{"type":"boolean"}`, `"ok"`)})
			}},
		{name: "test_input_required_result_tampered_state",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				if c.req.Params.RequestState != "" {
					_, err := unsealState(c.req.Params.RequestState)
					return textResult("the state is the one that was given"), err
				}
				return requireInput(sealState("whole"),
					sdk.InputRequestMap{"confirm": asksFor("Please confirm", `"ok":{"type":"boolean"}`, `"ok"`)})
			}},
		{name: "test_input_required_result_multiple_inputs",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				in := c.req.Params.InputResponses
				greeting, ok := sampledText(in, "greeting")
				roots, has := in["client_roots"].(*sdk.ListRootsResult)
				if name := enteredField(in, "user_name", "name"); name != "" && ok && has {
					_, err := unsealState(c.req.Params.RequestState)
					return textResult("%s %s (%d roots)", greeting, name, len(roots.Roots)), err
				}
				return requireInput(sealState("all"),
					sdk.InputRequestMap{"user_name": nameInput("What is your name?"),
						"greeting": samplingParams("Generate a greeting", 50), "client_roots": &sdk.ListRootsParams{}})
			}},
		{name: "test_input_required_result_multi_round",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				in := c.req.Params.InputResponses
				if c.req.Params.RequestState == "" {
					return requireInput(sealState("one"),
						sdk.InputRequestMap{"step1": nameInput("Step 1: What is your name?")})
				}
				state, err := unsealState(c.req.Params.RequestState)
				if err != nil {
					return nil, err
				}
				name, color := enteredField(in, "step1", "name"), enteredField(in, "step2", "color")
				if known, ok := strings.CutPrefix(state, "two "); ok && color != "" {
					return textResult("%s likes %s", known, color), nil
				}
				if name == "" {
					return requireInput(sealState("one"), sdk.InputRequestMap{"step1": nameInput("Step 1: What is your name?")})
				}
				return requireInput(sealState("two "+strings.ReplaceAll(name, ".", "")),
					sdk.InputRequestMap{"step2": asksFor("Step 2: What is your favorite color?",
						`"color":{"type":"string"}`, `"color"`)})
			}},
		{name: "test_input_required_result_capabilities",
			do: func(_ context.Context, c *fixtureCall) (*sdk.CallToolResult, error) {
				caps, _ := clientCapabilities(c.req.Params.GetMeta())
				inputs := sdk.InputRequestMap{}
				if caps.Elicitation != nil {
					inputs["user_name"] = nameInput("What is your name?")
				}
				if caps.Sampling != nil {
					inputs["greeting"] = samplingParams("Generate a greeting", 50)
				}
				if len(inputs) == 0 || len(c.req.Params.InputResponses) > 0 {
					return textResult("asked what the client can answer"), nil
				}
				return requireInput("", inputs)
			}},
	}
}

// addResources adds the readable resources.
func addResources(server *sdk.Server) {
	add := func(uri, kind, text string, blob []byte) {
		server.AddResource(&sdk.Resource{URI: uri, Name: strings.TrimPrefix(uri, "test://"),
			Description: "A fixture of MCP's conformance suite", MIMEType: kind},
			func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: uri, MIMEType: kind, Text: text,
					Blob: blob}}}, nil
			})
	}
	add("test://static-text", "text/plain", "This is the content of the static text resource.", nil)
	add("test://static-binary", "image/png", "", onePixel)
	add("test://watched-resource", "text/plain", "It may change.", nil)
	server.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template",
		Description: "A fixture of MCP's conformance suite", MIMEType: "application/json"},
		func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
			text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: req.Params.URI,
				MIMEType: "application/json", Text: string(text)}}}, err
		})
}

// addPrompts adds the prompts.
func addPrompts(server *sdk.Server) {
	add := func(name string, arguments []string, messages func(args map[string]string) []sdk.Content) {
		p := &sdk.Prompt{Name: name, Description: "A fixture of MCP's conformance suite"}
		for _, a := range arguments {
			p.Arguments = append(p.Arguments, &sdk.PromptArgument{Name: a, Description: "an argument", Required: true})
		}
		server.AddPrompt(p, func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			out := &sdk.GetPromptResult{}
			for _, c := range messages(req.Params.Arguments) {
				out.Messages = append(out.Messages, &sdk.PromptMessage{Role: "user", Content: c})
			}
			return out, nil
		})
	}
	add("test_simple_prompt", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{&sdk.TextContent{Text: "This is a simple prompt for testing."}}
	})
	add("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(args map[string]string) []sdk.Content {
		return []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'",
			args["arg1"], args["arg2"])}}
	})
	add("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(args map[string]string) []sdk.Content {
		return []sdk.Content{embeddedText(args["resourceUri"], "text/plain", "Embedded resource content for testing."),
			&sdk.TextContent{Text: "Please process the embedded resource above."}}
	})
	add("test_prompt_with_image", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{picture, &sdk.TextContent{Text: "Please analyze the image above."}}
	})
	server.AddPrompt(&sdk.Prompt{Name: "test_input_required_result_prompt",
		Description: "A fixture of MCP's conformance suite"},
		func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			about := enteredField(req.Params.InputResponses, "user_context", "context")
			if about == "" {
				return &sdk.GetPromptResult{InputRequests: sdk.InputRequestMap{"user_context": asksFor("What context should the prompt use?", `"context":{"type":"string"}`, `"context"`)}}, nil
			}
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{{Role: "user",
				Content: &sdk.TextContent{Text: "In the context of " + about}}}}, nil
		})
}
