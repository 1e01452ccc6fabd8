package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// door is what receipts say about calls that came this way.
const door = "mcp"

// call hands a tools/call to the gate, whatever it names.
func (s *session) call(ctx context.Context, req *sdk.CallToolRequest) (sdk.Result, error) {
	name, raw := req.Params.Name, req.Params.Arguments
	if s.Listed > 0 && (name == searchTool || name == viaTool) && s.named(ctx)[name] == "" { // a capability of that name is itself
		if name == searchTool {
			return s.search(ctx, req)
		}
		var err error
		if name, raw, err = meant(raw); err != nil {
			return nil, err
		}
	}
	input, err := arguments(raw)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	dry, asked := req.Params.GetMeta()[DryRunKey]
	if _, plain := dry.(bool); asked && !plain { // who meant true must not get a run
		return nil, invalidParams("_meta " + DryRunKey + " is true or false")
	}
	patience, err := s.patience(req.Params.GetMeta())
	if err != nil {
		return nil, err
	}
	w := &wait{session: s, req: req, call: bailey.Call{
		Capability: s.capability(ctx, name),
		Input:      input,
		Principal:  s.Principal,
		Session:    s.Session,
		Door:       door,
		Dir:        s.Dir,
		Client:     client(req.ClientInfo()),
		DryRun:     dry == true,
		Patience:   patience,
	}}
	w.call.Asked = w.asked
	defer w.end()
	if patience > 0 && !w.call.DryRun && extends(req.Params.GetMeta()) {
		return w.asTask(ctx)
	}
	ctx, leave, end := attended(ctx)
	defer end(nil)
	defer leave()
	return w.do(ctx)
}

// do makes the call. A client that is to ask its person itself gets the question first; the call waits when it comes
// again, or when the client is not to ask. Whatever is asked, it is one question, and the call runs once.
func (w *wait) do(ctx context.Context) (sdk.Result, error) {
	resumed, err := w.resume(ctx)
	if err != nil {
		return nil, err
	}
	newer, can := era(w.req)
	w.elicit = form(can) && !newer
	call := w.call
	first := form(can) && newer && !resumed && call.Patience > 0 && !call.DryRun && !w.tasked
	name := "" // before the gate has it
	if first {
		call.Patience, name = 0, callDigest(call)
	}
	r := w.Gate.Do(ctx, call)
	if first && r.Status == bailey.Pending {
		if in := w.input(ctx, r, name); in != nil {
			return in, nil
		}
		r = w.Gate.Do(ctx, w.call)
	}
	out := render(r, w.question(ctx, r))
	if newer {
		out.Type = "complete"
	}
	return out, nil
}

// question is the one that a call waits for; nil when it waits for none.
func (w *wait) question(ctx context.Context, r bailey.Result) *Question {
	if r.Status != bailey.Pending || r.Approval == "" || r.DryRun {
		return nil
	}
	q, err := w.Gate.Question(ctx, w.call, r.Approval)
	if err != nil { // settled meanwhile
		return nil
	}
	return &q
}

// gone is why a call is cut off whose caller is not there any more. It is a cancellation.
type gone struct{}

func (gone) Error() string        { return "the caller went away" }
func (gone) Is(target error) bool { return target == context.Canceled }

// attended ends with ctx and says why in words, until leave, which reports whether ctx had not ended before. The SDK's own cause is
// how the connection ended, such as io.EOF: a receipt would call that a failure of the tool.
func attended(ctx context.Context) (out context.Context, leave func() bool, end context.CancelCauseFunc) {
	out, end = context.WithCancelCause(context.WithoutCancel(ctx))
	leave = context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			end(cause)
			return
		}
		end(gone{})
	})
	return out, leave, end
}

// capability resolves a tool's name: first as it was listed, so that a name means what its caller saw. For one that calls and never
// lists, which may be a client that a new gateway took over, the list of its first call counts as that: to make one looks at every program there is.
func (s *session) capability(ctx context.Context, name string) bailey.CapabilityID {
	if id, ok := s.named(ctx)[name]; ok {
		return id
	}
	listed, _ := s.visible(ctx)
	if id, ok := listed[name]; ok {
		return id
	}
	return guess(name, listed)
}

// named are the tools as last listed, or as they are now where none were.
func (s *session) named(ctx context.Context) map[string]bailey.CapabilityID {
	s.mu.Lock()
	names := s.names
	s.mu.Unlock()
	if names != nil {
		return names
	}
	listed, _ := s.visible(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = listed
	}
	return s.names
}

// visible asks the gate for what the principal may see.
func (s *session) visible(ctx context.Context) (map[string]bailey.CapabilityID, map[bailey.CapabilityID]Tool) {
	tools, ids := map[bailey.CapabilityID]Tool{}, []bailey.CapabilityID{}
	for _, t := range s.Gate.Tools(ctx, s.Principal) {
		tools[t.ID] = t
		ids = append(ids, t.ID)
	}
	return names(ids), tools
}

// list answers tools/list in the order of names, so that a page begins where the last one ended even if
// tools came or went in between. The cursor is the last name seen.
func (s *session) list(ctx context.Context, req *sdk.ListToolsRequest) (sdk.Result, error) {
	after := ""
	if req.Params != nil && req.Params.Cursor != "" {
		b, err := base64.RawURLEncoding.DecodeString(req.Params.Cursor)
		if err != nil || len(b) == 0 {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of ours"}
		}
		after = string(b)
	}
	listed, tools := s.visible(ctx)
	s.mu.Lock()
	s.names = listed
	s.mu.Unlock()
	res := &sdk.ListToolsResult{Tools: []*sdk.Tool{}, Cacheable: sdk.Cacheable{CacheScope: "private"}}
	shown := slices.Sorted(maps.Keys(listed))
	if s.over(listed) {
		shown = shown[:s.Listed]
		if after == "" {
			res.Tools = beyond(listed)
		}
	}
	for _, name := range shown {
		if name <= after {
			continue
		}
		t, err := describe(name, tools[listed[name]])
		if err != nil {
			s.Log.Warn("a tool is not listed", "capability", listed[name], "err", err)
			continue
		}
		if len(res.Tools) == s.page {
			last := res.Tools[s.page-1].Name
			res.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(last))
			break
		}
		res.Tools = append(res.Tools, t)
	}
	return res, nil
}

// describe writes a tool down as the protocol has it. One schema that is none would make agents refuse
// the whole list.
func describe(name string, t Tool) (*sdk.Tool, error) {
	schema := t.InputSchema
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil || string(top["type"]) != `"object"` {
		return nil, fmt.Errorf("the input schema of %s is not one of type object", t.ID)
	}
	tool := &sdk.Tool{
		Name: name, Title: string(t.ID), Description: t.Description, InputSchema: schema,
		Annotations: &sdk.ToolAnnotations{
			ReadOnlyHint: t.ReadOnly, DestructiveHint: &t.Destructive,
			IdempotentHint: t.Idempotent, OpenWorldHint: &t.OpenWorld,
		},
	}
	if top = nil; json.Unmarshal(t.OutputSchema, &top) == nil && string(top["type"]) == `"object"` {
		tool.OutputSchema = t.OutputSchema
	}
	return tool, nil
}

// client is what a client says of itself: context, never identity.
func client(info *sdk.Implementation) string {
	switch {
	case info == nil:
		return ""
	case info.Version == "":
		return printable(info.Name, 128)
	}
	return printable(info.Name, 96) + "/" + printable(info.Version, 31)
}

func notOffered(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("%q is not offered here", method)}
}

// caught turns a panic into an answer: one session's bad luck must not end every other session.
func (s *session) caught(method string, p any) error {
	s.Log.Error("a request broke", "method", method, "panic", p, "stack", string(debug.Stack()))
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the gate broke on this request; its log says how"}
}
