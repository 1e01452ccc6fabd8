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

// TasksExtension is SEP-2663. To a client that names it with a request, a call that waits for a person, or takes longer than
// [taskAfter], answers with a task: the client asks for its end with tasks/get, gives what it is asked with tasks/update, and ends it
// with tasks/cancel. A task is its session's own, and ends with it.
const TasksExtension = "io.modelcontextprotocol/tasks"

const (
	taskAfter = 5 * time.Second  // a call that ends within this is answered plainly
	taskTTL   = 10 * time.Minute // from a task's end on
	taskPoll  = time.Second      // what a client is told to leave between two looks
	maxTasks  = 64               // of a session, with those that have ended
	maxHeld   = 16 << 20         // bytes of all of them: what was sent for one that runs, what came of one that has ended
)

// codeMissingCapability is JSON-RPC's code of MissingRequiredClientCapability (SEP-2575).
const codeMissingCapability = -32021

// tasks are those of one session. Its zero value is ready.
type tasks struct {
	running sync.WaitGroup // calls, until nothing is left of them

	mu   sync.Mutex // guards what follows, and all of each task but what never changes
	all  map[string]*task
	over bool // the session has ended: none begins any more
}

// task is a call that goes on without the request that began it, or may have to.
type task struct {
	id      string
	created time.Time
	end     context.CancelCauseFunc

	shown     bool // its client knows it: before that it counts, and nobody finds it
	size      int  // see maxHeld
	updated   time.Time
	status    string // working, input_required, completed, failed, cancelled
	message   string
	withdrawn bool
	inputs    sdk.InputRequestMap // that it waits for; replaced, never changed: answers show it
	take      taker               // of what comes for them
	result    sdk.Result
	err       *jsonrpc.Error
	asks      chan struct{} // has a word once it asks for something
	done      chan struct{} // closed once it has ended
}

// taker takes what came for an input, and says whether that is answered by it.
type taker func(ctx context.Context, key string, r sdk.InputResponse) bool

func (t *task) ended() bool {
	return t.status == "completed" || t.status == "failed" || t.status == "cancelled"
}

// begin makes room for a task of so many bytes, for which those that ended first are forgotten; nil when there is none.
func (l *tasks) begin(size int, end context.CancelCauseFunc) *task {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over || !l.room(1, size) {
		return nil
	}
	if l.all == nil {
		l.all = map[string]*task{}
	}
	now := time.Now()
	t := &task{id: "t-" + strings.ToLower(rand.Text()), created: now, updated: now, status: "working", size: size, end: end, asks: make(chan struct{}, 1), done: make(chan struct{})}
	l.all[t.id] = t
	l.running.Add(1)
	return t
}

// room forgets the tasks that ended first until there is room for so many more of so many bytes. The caller holds mu.
func (l *tasks) room(more, size int) bool {
	for {
		n, oldest := size, (*task)(nil)
		for _, t := range l.all {
			n += t.size
			if t.ended() && (oldest == nil || t.updated.Before(oldest.updated)) {
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

// show makes a task known, unless it has ended meanwhile.
func (l *tasks) show(t *task) *taskResult {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.ended() {
		return nil
	}
	t.shown = true
	r := t.brief()
	r.Type = "task"
	return r
}

// drop forgets a task that its client was never told of.
func (l *tasks) drop(t *task) {
	l.mu.Lock()
	delete(l.all, t.id)
	l.mu.Unlock()
}

// find is a task that the client was told of.
func (l *tasks) find(id string) (*task, error) {
	t := l.all[id]
	if t == nil || !t.shown || t.ended() && time.Since(t.updated) > taskTTL {
		return nil, invalidParams("this session has no such task: it ended over ten minutes ago, went with its gateway, or is another's; bailey receipts list shows its call")
	}
	return t, nil
}

// busy reports whether one has not ended.
func (l *tasks) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.all {
		if !t.ended() {
			return true
		}
	}
	return false
}

// close ends what runs and returns when nothing of it is left.
func (l *tasks) close() {
	l.mu.Lock()
	l.over = true
	for _, t := range l.all {
		t.end(gone{})
	}
	l.mu.Unlock()
	l.running.Wait()
}

// settle notes how a call ended.
func (l *tasks) settle(t *task, res sdk.Result, err error, hide func(string) string) {
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
	l.room(0, 0)
}

// ask says what a task waits for. Without inputs it waits for what is not its client's to give.
func (l *tasks) ask(t *task, message string, inputs sdk.InputRequestMap, take taker) {
	l.mu.Lock()
	if !t.ended() {
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

// works says that a task waits for nothing any more.
func (l *tasks) works(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !t.ended() {
		t.updated, t.message, t.status, t.inputs, t.take = time.Now(), "", "working", nil, nil
	}
}

// give hands on what came for a task's inputs. What was not asked is passed over.
func (l *tasks) give(ctx context.Context, t *task, raw map[string]json.RawMessage) error {
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
		return invalidParams("the inputResponses are not what was asked for")
	}
	for _, key := range slices.Sorted(maps.Keys(responses)) {
		if !take(ctx, key, responses[key]) {
			continue
		}
		l.mu.Lock()
		left := maps.Clone(t.inputs)
		delete(left, key)
		if t.updated, t.inputs = time.Now(), left; len(left) == 0 && !t.ended() {
			t.status, t.message = "working", ""
		}
		l.mu.Unlock()
	}
	return nil
}

// askedAsTask is told of a question for as long as the call waits for its answer.
func (w *wait) askedAsTask(ctx context.Context, t *task, q bailey.Question) {
	var inputs sdk.InputRequestMap
	var take taker
	if _, can := era(w.req); form(can) {
		if full, err := w.Gate.Question(ctx, w.call, q.ID); err == nil {
			if p := elicitation(full); p != nil {
				inputs = sdk.InputRequestMap{inputKey: p}
				take = func(ctx context.Context, _ string, r sdk.InputResponse) bool {
					said, _ := r.(*sdk.ElicitResult)
					if grant, counts := verdict(said, full.ID); counts {
						w.answer(ctx, full.ID, full.Digest, grant)
					}
					return false // the question's end takes it away
				}
			}
		}
	}
	w.tasks.ask(t, fmt.Sprintf("waits for a person: approval %s, open until %s", q.ID, stamp(q.Expires)), inputs, take)
	w.asked(ctx, q)
	<-ctx.Done()
	w.tasks.works(t)
}

// withoutExtensions are capabilities as the revisions before [newRevision] know them.
func withoutExtensions(c *sdk.ServerCapabilities) *sdk.ServerCapabilities {
	out := *c
	out.Extensions = nil
	return &out
}

// extends reports whether a request of the newer revisions names the tasks extension.
func extends(meta sdk.Meta) bool {
	caps, newer := capabilities(meta)
	_, named := caps.Extensions[TasksExtension]
	return newer && named
}

// asTask makes the call, and answers with a task where that takes long.
func (w *wait) asTask(ctx context.Context) (sdk.Result, error) {
	res, ok, err := w.tasks.run(ctx, taskWork{
		size: len(w.req.Params.Arguments), after: taskAfter, hide: w.Hide, shown: w.end,
		do: func(ctx context.Context, t *task) (sdk.Result, error) {
			w.call.Patience = math.MaxInt64 // until the question's own end
			w.call.Asked = func(ctx context.Context, q bailey.Question) { w.askedAsTask(ctx, t, q) }
			w.tasked = true
			return w.guarded(ctx)
		},
	})
	if ok {
		return res, err
	}
	ctx, leave, end := attended(ctx) // it waits as for a client that knows no tasks
	defer end(nil)
	defer leave()
	return w.do(ctx)
}

// taskWork is what may outlast its request.
type taskWork struct {
	size  int           // bytes that it holds
	after time.Duration // its client gets a task when it takes longer than this, or asks for something
	shown func()        // is called before the client gets one
	hide  func(string) string
	do    func(context.Context, *task) (sdk.Result, error)
}

// run answers with what work comes to, or with a task. ok is false where there is no room for one: then nothing was begun.
func (l *tasks) run(ctx context.Context, work taskWork) (res sdk.Result, ok bool, err error) {
	run, leave, end := attended(ctx)
	t := l.begin(work.size, end)
	if t == nil {
		leave()
		end(nil)
		return nil, false, nil
	}
	go func() {
		defer l.running.Done()
		defer end(nil)
		res, err := work.do(run, t)
		l.settle(t, res, err, work.hide)
	}()
	slow := time.NewTimer(work.after)
	defer slow.Stop()
	select {
	case <-t.done:
	case <-t.asks:
	case <-slow.C:
	}
	if leave() { // from here on its client's leaving is no reason to end it
		work.shown()
		if r := l.show(t); r != nil {
			return r, true, nil
		}
	}
	<-t.done
	l.drop(t)
	if t.err != nil {
		return nil, true, t.err
	}
	return t.result, true, nil
}

// guarded makes the call; what breaks in it breaks no other.
func (w *wait) guarded(ctx context.Context) (res sdk.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, w.caught("tools/call", p)
		}
	}()
	return w.do(ctx)
}

// taskParams are those of tasks/get, tasks/update and tasks/cancel.
type taskParams struct {
	sdk.ParamsBase
	ID     string                     `json:"taskId"`
	Inputs map[string]json.RawMessage `json:"inputResponses,omitempty"` // read where they were asked for: others may be anything
}

// taskResult is a task on the wire: flat, and of one that has ended with what it came to.
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

// brief is a task without what it came to. The caller holds the table's mu.
func (t *task) brief() *taskResult {
	ttl := taskTTL.Milliseconds()
	return &taskResult{Type: "complete", ID: t.id, Status: t.status, Message: t.message, Created: stampMs(t.created), Updated: stampMs(t.updated), TTL: &ttl, Poll: taskPoll.Milliseconds()}
}

func stampMs(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// taskVerb answers the methods of tasks.
func (s *session) taskVerb(verb func(context.Context, *taskParams) (*taskResult, error)) func(context.Context, *sdk.ServerSession, *taskParams) (*taskResult, error) {
	return func(ctx context.Context, _ *sdk.ServerSession, p *taskParams) (*taskResult, error) {
		switch {
		case p == nil || p.ID == "":
			return nil, invalidParams("the taskId is missing")
		case !extends(p.GetMeta()):
			return nil, missingTasks()
		}
		return verb(ctx, p)
	}
}

// missingTasks says that a client has to name the extension.
func missingTasks() error { return missing(`{"extensions":{"` + TasksExtension + `":{}}}`) }

// missing says which capabilities a client has to name.
func missing(capabilities string) error {
	return &jsonrpc.Error{Code: codeMissingCapability, Message: "the request does not name a capability of its client's that this needs: " + capabilities,
		Data: json.RawMessage(`{"requiredCapabilities":` + capabilities + `}`)}
}

func (s *session) taskGet(_ context.Context, p *taskParams) (*taskResult, error) {
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	t, err := s.tasks.find(p.ID)
	if err != nil {
		return nil, err
	}
	r := t.brief()
	r.Inputs, r.Result, r.Error = t.inputs, t.result, t.err
	return r, nil
}

// taskUpdate gives what a person said in the client.
func (s *session) taskUpdate(ctx context.Context, p *taskParams) (*taskResult, error) {
	s.tasks.mu.Lock()
	t, err := s.tasks.find(p.ID)
	if err != nil {
		s.tasks.mu.Unlock()
		return nil, err
	}
	s.tasks.mu.Unlock()
	if err := s.tasks.give(ctx, t, p.Inputs); err != nil {
		return nil, err
	}
	return &taskResult{Type: "complete"}, nil
}

// taskCancel ends a task's call; the task says so once nothing of it is left.
func (s *session) taskCancel(_ context.Context, p *taskParams) (*taskResult, error) {
	s.tasks.mu.Lock()
	defer s.tasks.mu.Unlock()
	t, err := s.tasks.find(p.ID)
	if err != nil {
		return nil, err
	}
	if !t.ended() {
		t.withdrawn = true
		t.end(context.Canceled)
	}
	return &taskResult{Type: "complete"}, nil
}

// offerTasks has a server answer for a session's tasks.
func (s *session) offerTasks(server *sdk.Server) error {
	return errors.Join(
		sdk.AddReceivingCustomMethod(server, "tasks/get", s.taskVerb(s.taskGet)),
		sdk.AddReceivingCustomMethod(server, "tasks/update", s.taskVerb(s.taskUpdate)),
		sdk.AddReceivingCustomMethod(server, "tasks/cancel", s.taskVerb(s.taskCancel)),
	)
}
