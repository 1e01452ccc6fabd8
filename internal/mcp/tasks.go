package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// TasksExtension is SEP-2663. If a client names it in a request, a call that waits for a person, or takes longer than
// [taskAfter], is answered with a task. The client polls its result with tasks/get, provides input with tasks/update,
// and ends it with tasks/cancel. A task belongs to its session and ends with it.
const TasksExtension = "io.modelcontextprotocol/tasks"

const (
	taskAfter = 5 * time.Second  // a call that ends within this time gets a normal answer
	taskTTL   = 10 * time.Minute // lifetime of an ended task
	taskPoll  = time.Second      // polling interval for clients
	maxTasks  = 64               // for each session, including ended ones
	maxHeld   = 16 << 20         // bytes of all tasks: arguments of running ones, results of ended ones
)

// codeMissingCapability is the JSON-RPC error code MissingRequiredClientCapability (SEP-2575).
const codeMissingCapability = -32021

// tasks contains the tasks of one session. The zero value is ready.
type tasks struct {
	running sync.WaitGroup // calls that have not ended completely

	mu   sync.Mutex // guards the fields below, and the changing fields of each task
	all  map[string]*task
	over bool // the session has ended and accepts no new task
}

// task is a call that may continue after the request that began it.
type task struct {
	id      string
	created time.Time
	end     context.CancelCauseFunc

	shown     bool // the client knows the task; before that, find does not return it
	size      int  // see maxHeld
	updated   time.Time
	status    string // working, input_required, completed, failed, cancelled
	message   string
	withdrawn bool
	inputs    sdk.InputRequestMap // required inputs; replaced and never changed, because answers refer to them
	take      responseHandler     // handles the responses to inputs
	result    sdk.Result
	err       *jsonrpc.Error
	asks      chan struct{} // signalled when the task asks for something
	done      chan struct{} // closed when the task has ended
}

// responseHandler handles the response to an input and reports whether the input is answered.
type responseHandler func(ctx context.Context, key string, r sdk.InputResponse) bool

func (t *task) hasEnded() bool {
	return t.status == "completed" || t.status == "failed" || t.status == "cancelled"
}

// addTask adds a task of size bytes and removes the tasks that ended first if room is needed. It returns nil if there is
// not enough room.
func (l *tasks) addTask(size int, end context.CancelCauseFunc) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || !l.ensureCapacity(1, size) {
		return nil
	}
	if l.all == nil {
		l.all = map[string]*task{}
	}
	now := time.Now()
	t := &task{id: "t-" + strings.ToLower(rand.Text()), created: now, updated: now, status: "working", size: size,
		end: end, asks: make(chan struct{}, 1), done: make(chan struct{})}
	l.all[t.id] = t
	l.running.Add(1)
	return t
}

// ensureCapacity removes the tasks that ended first until there is room for more tasks with size bytes. The caller must hold mu.
func (l *tasks) ensureCapacity(more, size int) bool {
	for {
		n, oldest := size, (*task)(nil)
		for _, t := range l.all {
			n += t.size
			if t.hasEnded() && (oldest == nil || t.updated.Before(oldest.updated)) {
				oldest = t
			}
		}
		switch {
		case oldest != nil && (len(l.all)+more > maxTasks || n > maxHeld || time.Since(oldest.updated) > taskTTL):
			delete(l.all, oldest.id)
		default:
			return len(l.all)+more <= maxTasks && n <= maxHeld
		}
	}
}

// publishTask makes a task visible to the client. It returns nil if the task has already ended.
func (l *tasks) publishTask(t *task) *taskResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.hasEnded() {
		return nil
	}
	t.shown = true
	r := t.statusResult()
	r.Type = "task"
	return r
}

// removeTask removes a task that the client does not know.
func (l *tasks) removeTask(t *task) {
	l.mu.Lock()
	delete(l.all, t.id)
	l.mu.Unlock()
}

// findTask returns a task that the client knows. The caller must hold mu.
func (l *tasks) findTask(id string) (*task, error) {
	t := l.all[id]
	if t == nil || !t.shown || t.hasEnded() && time.Since(t.updated) > taskTTL {
		return nil, invalidParams("this session has no such task: it ended over ten minutes ago, ended with its gateway, or belongs to another session; bailey receipts list shows its call")
	}
	return t, nil
}

// hasRunning reports whether a task has not ended.
func (l *tasks) hasRunning() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.all {
		if !t.hasEnded() {
			return true
		}
	}
	return false
}

// endAll ends all running tasks and returns when they have ended completely.
func (l *tasks) endAll() {
	l.mu.Lock()
	l.over = true
	for _, t := range l.all {
		t.end(disconnectedError{})
	}
	l.mu.Unlock()
	l.running.Wait()
}

// storeResult stores the result of a call.
func (l *tasks) storeResult(t *task, res sdk.Result, err error, hide func(string) string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.updated, t.message, t.inputs, t.take, t.size = time.Now(), "", nil, nil, 0
	a, _ := res.(*answer)
	if a != nil {
		for _, c := range a.Content {
			if text, ok := c.(*sdk.TextContent); ok {
				t.size += len(text.Text)
			}
		}
	}
	switch {
	case err != nil:
		t.status, t.err = "failed", &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: hide(err.Error())}
		if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
			t.err.Code = e.Code
		}
	case t.withdrawn && (a == nil || a.IsError):
		t.status, t.size = "cancelled", 0
	default:
		t.status, t.result = "completed", res
	}
	close(t.done)
	l.ensureCapacity(0, 0)
}

// recordWaiting records that a task waits. If inputs is empty, it waits for something that its client cannot provide.
func (l *tasks) recordWaiting(t *task, message string, inputs sdk.InputRequestMap, take responseHandler) {
	l.mu.Lock()
	if !t.hasEnded() {
		t.updated, t.message = time.Now(), message
		if len(inputs) > 0 {
			t.status, t.inputs, t.take = "input_required", inputs, take
		}
	}
	l.mu.Unlock()
	select {
	case t.asks <- struct{}{}:
	default:
	}
}

// recordWorking records that a task no longer waits.
func (l *tasks) recordWorking(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.hasEnded() {
		t.updated, t.message, t.status, t.inputs, t.take = time.Now(), "", "working", nil, nil
	}
}

// provideInputs passes on the responses for a task's inputs. It ignores responses that were not requested.
func (l *tasks) provideInputs(ctx context.Context, t *task, raw map[string]json.RawMessage) error {
	l.mu.Lock()
	inputs, take := t.inputs, t.take
	l.mu.Unlock()
	asked := maps.Clone(raw)
	maps.DeleteFunc(asked, func(key string, _ json.RawMessage) bool { return inputs[key] == nil })
	text, err := json.Marshal(asked)
	var responses sdk.InputResponseMap
	if err == nil {
		err = json.Unmarshal(text, &responses)
	}
	if err != nil {
		return invalidParams("the inputResponses do not match the request")
	}
	for _, key := range slices.Sorted(maps.Keys(responses)) {
		if !take(ctx, key, responses[key]) {
			continue
		}
		l.mu.Lock()
		left := maps.Clone(t.inputs)
		delete(left, key)
		if t.updated, t.inputs = time.Now(), left; len(left) == 0 && !t.hasEnded() {
			t.status, t.message = "working", ""
		}
		l.mu.Unlock()
	}
	return nil
}

// askedAsTask shows a question in the task until the call no longer waits for its answer.
func (w *waitingCall) askedAsTask(ctx context.Context, t *task, q bailey.Question) {
	var inputs sdk.InputRequestMap
	var take responseHandler
	if _, can := elicitationSupport(w.req); canShowForms(can) {
		if full, err := w.Gate.Question(ctx, w.call, q.ID); err == nil {
			if p := elicitationRequest(full); p != nil {
				inputs = sdk.InputRequestMap{inputKey: p}
				take = func(ctx context.Context, _ string, r sdk.InputResponse) bool {
					said, _ := r.(*sdk.ElicitResult)
					w.submitAnswer(ctx, full.ID, full.Digest, parseVerdict(said, full.ID))
					return false // removed when the question ends
				}
			}
		}
	}
	w.tasks.recordWaiting(t, fmt.Sprintf("waits for a person: approval %s, open until %s", q.ID, formatTime(q.Expires)),
		inputs, take)
	w.reportWaiting(ctx, q)
	<-ctx.Done()
	w.tasks.recordWorking(t)
}

// withoutExtensions returns the capabilities in the form of the revisions before [newRevision].
func withoutExtensions(c *sdk.ServerCapabilities) *sdk.ServerCapabilities {
	out := *c
	out.Extensions = nil
	return &out
}

// hasTasksExtension reports whether a request of the newer revisions names the tasks extension.
func hasTasksExtension(meta sdk.Meta) bool {
	caps, newer := clientCapabilities(meta)
	_, named := caps.Extensions[TasksExtension]
	return newer && named
}

// asTask makes the call. If the call waits for a person or takes long, asTask answers with a task.
func (w *waitingCall) asTask(ctx context.Context) (sdk.Result, error) {
	res, ok, err := w.tasks.runWork(ctx, taskWork{
		size: len(w.req.Params.Arguments), after: taskAfter, hide: w.Hide, shown: w.stopProgress,
		do: func(ctx context.Context, t *task) (sdk.Result, error) {
			w.call.Patience = math.MaxInt64 // until the question itself expires
			w.call.Asked = func(ctx context.Context, q bailey.Question) { w.askedAsTask(ctx, t, q) }
			w.tasked = true
			return w.runCallSafely(ctx)
		},
	})
	if ok {
		return res, err
	}
	ctx, leave, end := detachableContext(ctx) // wait as for a client without tasks
	defer end(nil)
	defer leave()
	return w.runCall(ctx)
}

// taskWork is work that may outlast its request.
type taskWork struct {
	size  int           // bytes that it uses
	after time.Duration // time until the client gets a task; sooner if the work asks for something
	shown func()        // called before the client gets a task
	hide  func(string) string
	do    func(context.Context, *task) (sdk.Result, error)
}

// runWork returns the result of work, or a task. ok is false if there was no room for a task; the work is not started then.
func (l *tasks) runWork(ctx context.Context, work taskWork) (res sdk.Result, ok bool, err error) {
	run, leave, end := detachableContext(ctx)
	t := l.addTask(work.size, end)
	if t == nil {
		leave()
		end(nil)
		return nil, false, nil
	}
	go func() {
		defer l.running.Done()
		defer end(nil)
		res, err := work.do(run, t)
		l.storeResult(t, res, err, work.hide)
	}()
	slow := time.NewTimer(work.after)
	defer slow.Stop()
	select {
	case <-t.done:
	case <-t.asks:
	case <-slow.C:
	}
	if leave() { // from here on the work continues if the client disconnects
		work.shown()
		if r := l.publishTask(t); r != nil {
			return r, true, nil
		}
	}
	<-t.done
	l.removeTask(t)
	if t.err != nil {
		return nil, true, t.err
	}
	return t.result, true, nil
}

// runCallSafely makes the call and turns a panic into an error.
func (w *waitingCall) runCallSafely(ctx context.Context) (res sdk.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, w.panicError("tools/call", p)
		}
	}()
	return w.runCall(ctx)
}

// taskParams are the params of tasks/get, tasks/update and tasks/cancel.
type taskParams struct {
	sdk.ParamsBase
	ID string `json:"taskId"`
	// decoded only if they were requested; others may have any form
	Inputs map[string]json.RawMessage `json:"inputResponses,omitempty"`
}

// taskResult is a task on the wire. It is flat, and contains the result if the task has ended.
type taskResult struct {
	sdk.ResultBase
	Type    string              `json:"resultType"`
	ID      string              `json:"taskId,omitempty"`
	Status  string              `json:"status,omitempty"`
	Message string              `json:"statusMessage,omitempty"`
	Created string              `json:"createdAt,omitempty"` // RFC 3339
	Updated string              `json:"lastUpdatedAt,omitempty"`
	TTL     *int64              `json:"ttlMs,omitempty"`
	Poll    int64               `json:"pollIntervalMs,omitempty"`
	Inputs  sdk.InputRequestMap `json:"inputRequests,omitempty"`
	Result  sdk.Result          `json:"result,omitempty"`
	Error   *jsonrpc.Error      `json:"error,omitempty"`
}

// statusResult returns a task without its result. The caller must hold tasks.mu.
func (t *task) statusResult() *taskResult {
	ttl := taskTTL.Milliseconds()
	return &taskResult{Type: "complete", ID: t.id, Status: t.status, Message: t.message,
		Created: formatTimeMs(t.created), Updated: formatTimeMs(t.updated), TTL: &ttl, Poll: taskPoll.Milliseconds()}
}

func formatTimeMs(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// taskVerb adapts a task method to the SDK. It checks the params and finds the task.
func (s *session) taskVerb(verb func(context.Context, *task, *taskParams) (*taskResult,
	error)) func(context.Context, *sdk.ServerSession, *taskParams) (*taskResult, error) {
	return func(ctx context.Context, _ *sdk.ServerSession, p *taskParams) (*taskResult, error) {
		switch {
		case p == nil || p.ID == "":
			return nil, invalidParams("the taskId is missing")
		case !hasTasksExtension(p.GetMeta()):
			return nil, missingTasks()
		}
		s.tasks.mu.Lock()
		t, err := s.tasks.findTask(p.ID)
		s.tasks.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return verb(ctx, t, p)
	}
}

// missingTasks returns the error for a client that does not name the extension.
func missingTasks() error { return missingCapability(`{"extensions":{"` + TasksExtension + `":{}}}`) }

// missingCapability returns an error with the capabilities that a client must name.
func missingCapability(capabilities string) error {
	return &jsonrpc.Error{Code: codeMissingCapability,
		Message: "the request does not declare a client capability that this needs: " + capabilities,
		Data:    json.RawMessage(`{"requiredCapabilities":` + capabilities + `}`)}
}

func (s *session) taskGet(_ context.Context, t *task, _ *taskParams) (*taskResult, error) {
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	r := t.statusResult()
	r.Inputs, r.Result, r.Error = t.inputs, t.result, t.err
	return r, nil
}

// taskUpdate passes on the answer that a person gave in the client.
func (s *session) taskUpdate(ctx context.Context, t *task, p *taskParams) (*taskResult, error) {
	return &taskResult{Type: "complete"}, s.tasks.provideInputs(ctx, t, p.Inputs)
}

// taskCancel ends the call of a task. The status changes when the call has ended completely.
func (s *session) taskCancel(_ context.Context, t *task, _ *taskParams) (*taskResult, error) {
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	if !t.hasEnded() {
		t.withdrawn = true
		t.end(context.Canceled)
	}
	return &taskResult{Type: "complete"}, nil
}

// offerTasks registers the task methods of a session at its server.
func (s *session) offerTasks(server *sdk.Server) error {
	return errors.Join(
		sdk.AddReceivingCustomMethod(server, "tasks/get", s.taskVerb(s.taskGet)),
		sdk.AddReceivingCustomMethod(server, "tasks/update", s.taskVerb(s.taskUpdate)),
		sdk.AddReceivingCustomMethod(server, "tasks/cancel", s.taskVerb(s.taskCancel)),
	)
}
