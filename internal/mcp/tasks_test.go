package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

const taskMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// onWire is a task, or another answer, as a client reads it.
type onWire struct {
	Result struct {
		ResultType, TaskID, Status, StatusMessage, CreatedAt, LastUpdatedAt string
		TTLMs                                                               *int64
		Content                                                             []struct{ Text string }
		Task                                                                json.RawMessage
		Result                                                              *struct {
			IsError bool
			Content []struct{ Text string }
			Meta    map[string]any `json:"_meta"`
		}
		Error         *struct{ Code int }
		InputRequests map[string]struct{ Method string }
	}
	Error *struct {
		Code int
		Data json.RawMessage
	}
}

// task sends a method with its params and a client's capabilities.
func (w *wire) task(method, params string) (r onWire) {
	w.t.Helper()
	got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `,` + taskMeta + `}}`)
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		w.t.Fatalf("%s: %v", got, err)
	}
	return r
}

func (w *wire) get(id string) onWire { return w.task("tasks/get", `"taskId":"`+id+`"`) }

// inTime runs a test with a simulated clock.
func inTime(t *testing.T, g Gate, test func(t *testing.T, w *wire)) {
	synctest.Test(t, func(t *testing.T) { test(t, raw(t, g)) })
}

// TestTaskOfACallThatWaits checks that a call that needs approval becomes a task at once, asks through it, and runs
// once.
func TestTaskOfACallThatWaits(t *testing.T) {
	for _, answer := range []string{"yes", "no"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAsker()
			w := raw(t, a)
			made := w.task("tools/call", `"name":"system_date","arguments":{}`).Result
			if made.ResultType != "task" || !strings.HasPrefix(made.TaskID, "t-") || made.Status != "input_required" || made.CreatedAt == "" || made.LastUpdatedAt == "" || made.TTLMs == nil || made.Task != nil || made.Content != nil || made.InputRequests != nil {
				t.Fatalf("%+v", made)
			}
			time.Sleep(3 * DefaultPatience) // a client without tasks would have been told to call again by now
			got := w.get(made.TaskID).Result
			if got.ResultType != "complete" || got.Status != "input_required" || got.InputRequests[inputKey].Method != "elicitation/create" || !strings.Contains(got.StatusMessage, "approval a-1") || got.Result != nil {
				t.Fatalf("%+v", got)
			}
			for name, said := range map[string]string{"nothing": `{}`, "another key": `{"x":{"action":"accept","content":{"a-1":"yes"}}}`, "another question": `{"approval":{"action":"accept","content":{"a-2":"yes"}}}`} {
				if r := w.task("tasks/update", `"taskId":"`+made.TaskID+`","inputResponses":`+said); r.Error != nil || a.runs() != 0 {
					t.Errorf("%s: %+v", name, r)
				}
			}
			if r := w.task("tasks/update", `"taskId":"`+made.TaskID+`","inputResponses":{"approval":{"action":"accept","content":{"a-1":"`+answer+`"}}}`); r.Error != nil || r.Result.ResultType != "complete" || r.Result.TaskID != "" {
				t.Fatalf("%+v", r)
			}
			synctest.Wait()
			got = w.get(made.TaskID).Result
			if got.Status != "completed" || got.InputRequests != nil || got.StatusMessage != "" || got.Result == nil || got.Result.IsError != (answer == "no") || a.asked != 1 || a.runs() != map[string]int{"yes": 1}[answer] {
				t.Fatalf("%+v: %+v, ran %d times", got, got.Result, a.runs())
			}
			if answer == "yes" && got.Result.Content[0].Text != "today" {
				t.Errorf("%+v", got.Result)
			}
			if r := w.task("tasks/cancel", `"taskId":"`+made.TaskID+`"`); r.Error != nil || w.get(made.TaskID).Result.Status != "completed" {
				t.Errorf("an end was withdrawn: %+v", r)
			}
			time.Sleep(taskTTL + time.Second)
			if r := w.get(made.TaskID); r.Error == nil || r.Error.Code != -32602 {
				t.Errorf("after its time: %+v", r)
			}
		})
	}
}

// TestTaskOfASlowCall checks that a call that ends soon is answered directly, that a slow call becomes a task, and that
// a call that panics has failed.
func TestTaskOfASlowCall(t *testing.T) {
	g := yard()
	long, breaks := taskAfter-time.Millisecond, false
	g.do["system.echo"] = func(ctx context.Context, c bailey.Call) bailey.Result {
		time.Sleep(long)
		if breaks {
			panic("secret detail")
		}
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: []byte("done"), Decision: bailey.Decision{Effect: bailey.Allow}}
	}
	inTime(t, g, func(t *testing.T, w *wire) {
		if r := w.task("tools/call", `"name":"system_echo"`).Result; r.ResultType != "complete" || r.TaskID != "" || r.Content[0].Text != "done" {
			t.Fatalf("soon: %+v", r)
		}
		long = time.Minute
		r := w.task("tools/call", `"name":"system_echo"`).Result
		if r.ResultType != "task" || r.Status != "working" {
			t.Fatalf("late: %+v", r)
		}
		time.Sleep(long)
		if r := w.get(r.TaskID).Result; r.Status != "completed" || r.Result.Content[0].Text != "done" || r.Result.Meta[ResultKey] == nil {
			t.Errorf("late: %+v", r)
		}
		breaks = true
		id := w.task("tools/call", `"name":"system_echo"`).Result.TaskID
		time.Sleep(long)
		if r := w.get(id).Result; r.Status != "failed" || r.Error == nil || r.Error.Code != -32603 || r.Result != nil {
			t.Errorf("broken: %+v", r)
		}
		if r := w.task("tools/call", `"name":"system_echo","_":0`); r.Result.ResultType != "task" {
			t.Errorf("after that: %+v", r)
		}
	})
}

// TestTaskCancel checks that a cancelled task ends its call, and that its status changes only after the call is over.
func TestTaskCancel(t *testing.T) {
	g := yard()
	ending := make(chan error, 1)
	g.do["system.echo"] = func(ctx context.Context, _ bailey.Call) bailey.Result {
		<-ctx.Done()
		ending <- context.Cause(ctx)
		time.Sleep(time.Second) // the cage takes a moment
		return bailey.Result{Receipt: "r-k", Status: bailey.Killed, Err: &bailey.Error{Kind: bailey.ToolFailed, Message: "ended"}}
	}
	inTime(t, g, func(t *testing.T, w *wire) {
		id := w.task("tools/call", `"name":"system_echo"`).Result.TaskID
		if r := w.task("tasks/cancel", `"taskId":"`+id+`"`); r.Error != nil || r.Result.ResultType != "complete" || r.Result.Status != "" {
			t.Fatalf("%+v", r)
		}
		if err := <-ending; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if s := w.get(id).Result.Status; s != "working" {
			t.Errorf("before its end: %s", s)
		}
		time.Sleep(2 * time.Second)
		if r := w.get(id).Result; r.Status != "cancelled" || r.Result != nil || r.Error != nil {
			t.Errorf("after its end: %+v", r)
		}
	})
}

// TestTasksEndWithTheirSession checks that no task outlives its connection, and that none begins while the connection
// ends.
func TestTasksEndWithTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := yard()
		left := 0
		g.do["system.echo"] = func(ctx context.Context, _ bailey.Call) bailey.Result {
			<-ctx.Done()
			time.Sleep(time.Second)
			if errors.Is(context.Cause(ctx), context.Canceled) {
				left++
			}
			return bailey.Result{Receipt: "r-k", Status: bailey.Killed}
		}
		near, far := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- Serve(t.Context(), config(g), far) }()
		w := listen(t, near)
		w.task("tools/call", `"name":"system_echo"`)
		near.Close()
		<-served
		if left != 1 {
			t.Errorf("the connection ended before its call: %d", left)
		}
	})
}

// TestTasksAreForThoseWhoKnowThem checks that a client that does not name the extension gets no task and none of its
// methods, and that no client gets a task of another session.
func TestTasksAreForThoseWhoKnowThem(t *testing.T) {
	a := newAsker()
	synctest.Test(t, func(t *testing.T) {
		w := raw(t, a)
		id := w.task("tools/call", `"name":"system_date"`).Result.TaskID
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			for name, params := range map[string]string{"unknown": `"taskId":"t-none"`, "none": `"x":1`, "a number": `"taskId":1`} {
				if r := w.task(method, params); r.Error == nil || r.Error.Code != -32602 && r.Error.Code != -32600 {
					t.Errorf("%s, %s: %+v", method, name, r)
				}
			}
			got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{"taskId":"` + id + `",` + newMeta + `}}`)
			if !strings.Contains(got, "-32021") || !strings.Contains(got, `"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`) {
				t.Errorf("%s by who knows none: %s", method, got)
			}
		}
		for _, method := range []string{"tasks/list", "tasks/result"} {
			if r := w.task(method, `"taskId":"`+id+`"`); r.Error == nil || r.Error.Code != -32601 {
				t.Errorf("%s: %+v", method, r)
			}
		}
		if r := raw(t, a).get(id); r.Error == nil || r.Error.Code != -32602 {
			t.Errorf("another session's: %+v", r)
		}
		if got := w.ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"system_date",` + newMeta + `}}`); strings.Contains(got, "taskId") {
			t.Errorf("a task for who knows none: %s", got)
		}
		if r := w.task("tools/call", `"name":"system_date","_":{}`); r.Result.ResultType != "task" {
			t.Errorf("%+v", r)
		}
	})
}

// TestTasksAreBounded checks that a call beyond the limit of tasks waits as it does for a client without the extension.
func TestTasksAreBounded(t *testing.T) {
	g := yard()
	endless := fmt.Sprint(time.Duration(math.MaxInt64)) // the patience of a task's call
	var release chan struct{}                           // made inside the bubble of the clock
	g.do["system.echo"] = func(ctx context.Context, c bailey.Call) bailey.Result {
		if c.Input["n"] == json.Number("0") {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: []byte(fmt.Sprint(c.Patience))}
	}
	inTime(t, g, func(t *testing.T, w *wire) {
		release = make(chan struct{})
		var ids []string
		for range maxTasks {
			ids = append(ids, w.task("tools/call", `"name":"system_echo","arguments":{"n":0}`).Result.TaskID)
		}
		if r := w.task("tools/call", `"name":"system_echo","arguments":{"n":1}`).Result; r.ResultType != "complete" || r.Content[0].Text == endless {
			t.Errorf("one more: %+v", r)
		}
		close(release)
		synctest.Wait()
		if r := w.task("tools/call", `"name":"system_echo","arguments":{"n":1}`).Result; r.ResultType != "complete" || r.Content[0].Text != endless {
			t.Errorf("when they have ended: %+v", r)
		}
		there := 0
		for _, id := range ids {
			if w.get(id).Error == nil {
				there++
			}
		}
		if there != maxTasks-1 {
			t.Errorf("%d of them are kept", there)
		}
	})
}

// TestTasksAreBoundedInBytes checks that the inputs of running tasks and the results of others stay within the limit of
// a session. The task that ended first must be forgotten first.
func TestTasksAreBoundedInBytes(t *testing.T) {
	ktest.Long(t)
	g := yard()
	out := strings.Repeat("x", 1<<20)
	g.do["system.echo"] = func(ctx context.Context, c bailey.Call) bailey.Result {
		if c.Patience == math.MaxInt64 { // the call of a task
			time.Sleep(5 * time.Minute)
		}
		return bailey.Result{Receipt: "r-ok", Status: bailey.OK, Executed: true, Stdout: []byte(out)}
	}
	inTime(t, g, func(t *testing.T, w *wire) {
		var ids []string
		big := `"name":"system_echo","arguments":{"message":"` + strings.Repeat("y", 900<<10) + `"}`
		for {
			r := w.task("tools/call", big).Result
			if r.ResultType != "task" {
				break
			}
			ids = append(ids, r.TaskID)
		}
		if n := len(ids); n < 10 || n*900<<10 > maxHeld {
			t.Errorf("%d tasks of 900 KiB", n)
		}
		time.Sleep(6 * time.Minute)
		kept := 0
		for i, id := range ids {
			if r := w.get(id); r.Error == nil {
				if kept++; len(r.Result.Result.Content[0].Text) != len(out) {
					t.Errorf("%d: %+v", i, r.Result.Status)
				}
			} else if kept > 0 {
				t.Errorf("%d was forgotten, and an older one was not", i)
			}
		}
		if kept == 0 || kept*len(out) > maxHeld {
			t.Errorf("%d of %d are kept", kept, len(ids))
		}
	})
}
