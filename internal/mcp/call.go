package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// frontendName is the name of this front end in receipts.
const frontendName = "mcp"

// handleToolCall passes a tools/call to the gate, whatever tool it names.
func (s *session) handleToolCall(ctx context.Context, req *sdk.CallToolRequest) (sdk.Result, error) {
	name, raw := req.Params.Name, req.Params.Arguments
	// unless a capability has this name
	if s.Listed > 0 && (name == searchTool || name == callToolName) && s.listedNames(ctx)[name] == "" {
		if name == searchTool {
			return s.searchCapabilities(ctx, req)
		}
		var err error
		if name, raw, err = parseIndirectCall(raw); err != nil {
			return nil, err
		}
	}
	input, err := decodeArguments(raw)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
	}
	dry, asked := req.Params.GetMeta()[DryRunKey]
	// a malformed value, for example "true" as text, must not cause a real run
	if _, plain := dry.(bool); asked && !plain {
		return nil, invalidParams("_meta " + DryRunKey + " must be true or false")
	}
	patience, err := s.callPatience(req.Params.GetMeta())
	if err != nil {
		return nil, err
	}
	w := &waitingCall{session: s, req: req, call: bailey.Call{
		Capability: s.resolveCapability(ctx, name),
		Input:      input,
		Principal:  s.Principal,
		Session:    s.Session,
		Door:       frontendName,
		Dir:        s.Dir,
		Client:     clientLabel(req.ClientInfo()),
		DryRun:     dry == true,
		Patience:   patience,
	}}
	w.call.Asked = w.reportWaiting
	defer w.stopProgress()
	if each := s.eachOf(w.call); each != nil {
		values, calls, err := each.splitCalls(w.call)
		if err != nil {
			return nil, err
		}
		ctx, leave, end := detachableContext(ctx)
		defer end(nil)
		defer leave()
		return w.runEach(ctx, values, calls), nil
	}
	if patience > 0 && !w.call.DryRun && hasTasksExtension(req.Params.GetMeta()) {
		return w.asTask(ctx)
	}
	ctx, leave, end := detachableContext(ctx)
	defer end(nil)
	defer leave()
	return w.runCall(ctx)
}

// runCall makes the call. If the client must ask its person itself, do first returns the question to the client. The call
// waits when the client repeats it, or if the client must not ask. In each case there is only one question, and the
// call runs once.
func (w *waitingCall) runCall(ctx context.Context) (sdk.Result, error) {
	resumed, err := w.resumeCall(ctx)
	if err != nil {
		return nil, err
	}
	newer, can := elicitationSupport(w.req)
	w.elicit = canShowForms(can) && !newer
	call := w.call
	first := canShowForms(can) && newer && !resumed && call.Patience > 0 && !call.DryRun && !w.tasked
	name := "" // computed before the gate gets the input
	if first {
		call.Patience, name = 0, callDigest(call)
	}
	r := w.Gate.Do(ctx, call)
	if first && r.Status == bailey.Pending {
		if in := w.requestInput(ctx, r, name); in != nil {
			return in, nil
		}
		r = w.Gate.Do(ctx, w.call)
	}
	out := renderResult(r, w.openQuestion(ctx, r))
	if newer {
		out.Type = "complete"
	}
	return out, nil
}

// openQuestion returns the open question of a pending call, or nil.
func (w *waitingCall) openQuestion(ctx context.Context, r bailey.Result) *Question {
	if r.Status != bailey.Pending || r.Approval == "" || r.DryRun {
		return nil
	}
	q, err := w.Gate.Question(ctx, w.call, r.Approval)
	if err != nil { // answered or expired in the meantime
		return nil
	}
	return &q
}

// disconnectedError is the cancellation cause of a call whose caller has disconnected.
type disconnectedError struct{}

func (disconnectedError) Error() string        { return "the caller disconnected" }
func (disconnectedError) Is(target error) bool { return target == context.Canceled }

// detachableContext returns a context that ends together with ctx, but with a readable cause, until leave is called. leave
// reports whether ctx had not ended before. The SDK uses the end of the connection as the cause, such as io.EOF, which
// a receipt would report as a failure of the tool.
func detachableContext(ctx context.Context) (out context.Context, leave func() bool, end context.CancelCauseFunc) {
	out, end = context.WithCancelCause(context.WithoutCancel(ctx))
	leave = context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
			end(cause)
			return
		}
		end(disconnectedError{})
	})
	return out, leave, end
}

// resolveCapability resolves the name of a tool. It first uses the last list that the client got, so a name keeps its meaning
// for the client. If a client calls without listing, for example after a new gateway has taken it over, the list from
// its first call is used. The list is cached, because building it examines every program.
func (s *session) resolveCapability(ctx context.Context, name string) bailey.CapabilityID {
	if id, ok := s.listedNames(ctx)[name]; ok {
		return id
	}
	listed, _ := s.visibleTools(ctx)
	if id, ok := listed[name]; ok {
		return id
	}
	return guessCapability(name, listed)
}

// listedNames returns the tools as last listed. If the client has not listed them, it returns the current ones.
func (s *session) listedNames(ctx context.Context) map[string]bailey.CapabilityID {
	s.mu.Lock()
	names := s.names
	s.mu.Unlock()
	if names != nil {
		return names
	}
	listed, _ := s.visibleTools(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = listed
	}
	return s.names
}

// visibleTools returns the tools that the principal may see.
func (s *session) visibleTools(ctx context.Context) (map[string]bailey.CapabilityID, map[bailey.CapabilityID]Tool) {
	list := s.Gate.Tools(ctx, s.Principal)
	each := map[bailey.CapabilityID]*Each{}
	for _, t := range list {
		if t.Each != nil {
			each[t.ID] = t.Each
		}
	}
	s.mu.Lock()
	s.each = each
	s.mu.Unlock()
	return nameTools(list)
}

// nameTools returns the names of the tools, and the tools by their ids.
func nameTools(list []Tool) (map[string]bailey.CapabilityID, map[bailey.CapabilityID]Tool) {
	tools, ids := map[bailey.CapabilityID]Tool{}, []bailey.CapabilityID{}
	for _, t := range list {
		tools[t.ID] = t
		ids = append(ids, t.ID)
	}
	return assignNames(ids), tools
}

// listTools answers tools/list in the order of names. A page begins after the last name of the previous page, even if tools
// were added or removed in between. The cursor is that last name.
func (s *session) listTools(ctx context.Context, req *sdk.ListToolsRequest) (sdk.Result, error) {
	after := ""
	if req.Params != nil && req.Params.Cursor != "" {
		b, err := base64.RawURLEncoding.DecodeString(req.Params.Cursor)
		if err != nil || len(b) == 0 {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is invalid"}
		}
		after = string(b)
	}
	listed, tools := s.visibleTools(ctx)
	s.mu.Lock()
	s.names = listed
	s.mu.Unlock()
	res := &sdk.ListToolsResult{Tools: []*sdk.Tool{}, Cacheable: sdk.Cacheable{CacheScope: "private"}}
	shown := slices.Sorted(maps.Keys(listed))
	if s.exceedsListLimit(listed) {
		shown = shown[:s.Listed]
		if after == "" {
			res.Tools = searchAndCallTools(listed)
		}
	}
	for _, name := range shown {
		if name <= after {
			continue
		}
		t, err := convertTool(name, tools[listed[name]])
		if err != nil {
			s.Log.Warn("cannot list a tool", "capability", listed[name], "err", err)
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

// convertTool returns a tool in the form of the protocol. It refuses an invalid schema, because agents would refuse the
// whole list.
func convertTool(name string, t Tool) (*sdk.Tool, error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(t.inputSchema(), &top); err != nil || string(top["type"]) != `"object"` {
		return nil, fmt.Errorf("the input schema of %s is not one of type object", t.ID)
	}
	tool := &sdk.Tool{
		Name: name, Title: string(t.ID), Description: t.Description, InputSchema: t.inputSchema(),
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

// clientLabel returns the self-description of a client. It is context and never identity.
func clientLabel(info *sdk.Implementation) string {
	switch {
	case info == nil:
		return ""
	case info.Version == "":
		return printableText(info.Name, 128)
	}
	return printableText(info.Name, 96) + "/" + printableText(info.Version, 31)
}

func notOffered(method string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("%q is not available here", method)}
}

// panicError turns a panic into an error answer, so that it does not end other sessions.
func (s *session) panicError(method string, p any) error {
	s.Log.Error("a request failed", "method", method, "panic", p, "stack", string(debug.Stack()))
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the gate failed on this request; see its log"}
}

// DefaultPatience is the time that a call waits for an answer. The client of the TypeScript SDK gives up after 60 s.
// After DefaultPatience the call is pending, and the same call resumes it.
const DefaultPatience = 45 * time.Second

// PatienceKey is the member of a tools/call's _meta for a shorter waiting time, in milliseconds. 0 means no waiting.
const PatienceKey = "bailey/patienceMs"

// beat is the interval of progress messages for a client with a progress token whose call waits.
const beat = 10 * time.Second

// Question is an open question in the form of this front end.
type Question struct {
	bailey.Question
	// Local means that this client may be asked, and that its unsigned answer is sufficient.
	Local bool
	// Session means that an answer can count for the rest of the session.
	Session bool
}

// callPatience returns the waiting time of a call.
func (s *session) callPatience(meta sdk.Meta) (time.Duration, error) {
	most := s.Patience
	if most == 0 {
		most = DefaultPatience
	}
	v, said := meta[PatienceKey]
	if !said {
		return most, nil
	}
	ms, ok := v.(float64)
	if n, num := v.(json.Number); num {
		var err error
		ms, err = n.Float64()
		ok = err == nil
	}
	if !ok || ms < 0 || ms != math.Trunc(ms) {
		return 0, invalidParams("_meta " + PatienceKey + " must be a whole number of milliseconds, 0 or more")
	}
	if ms >= float64(most/time.Millisecond) {
		return most, nil
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// waitingCall is a call that may wait for a person.
type waitingCall struct {
	*session
	req    *sdk.CallToolRequest
	call   bailey.Call
	elicit bool // the server can ask the client with a request
	tasked bool // the call is a task, whose status shows the question

	mu   sync.Mutex // guards over; held while a notification is sent
	over bool       // the call is answered, so no more progress is sent
}

// reportWaiting is called when a question is open. It returns when the call no longer waits.
func (w *waitingCall) reportWaiting(ctx context.Context, q bailey.Question) {
	if w.elicit {
		go w.askClient(ctx, q.ID)
	}
	token := w.req.Params.GetProgressToken()
	if token == nil {
		return
	}
	tick := time.NewTicker(w.beat)
	defer tick.Stop()
	for since := time.Now(); ; {
		w.sendProgress(ctx, token, time.Since(since), q)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// sendProgress tells the client that its call waits. Without progress a client could give up.
func (w *waitingCall) sendProgress(ctx context.Context, token any, waited time.Duration, q bailey.Question) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || ctx.Err() != nil {
		return
	}
	err := w.req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
		ProgressToken: token, Progress: waited.Seconds(), Total: w.call.Patience.Seconds(),
		Message: fmt.Sprintf("waits for a person: approval %s, open until %s", q.ID, formatTime(q.Expires)),
	})
	if err != nil {
		w.Log.Debug("a client receives no progress of its call", "question", q.ID, "err", err)
	}
}

// stopProgress must be called before the call is answered, because the protocol allows no progress after that.
func (w *waitingCall) stopProgress() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
