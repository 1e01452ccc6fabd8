package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

// TestHooksSeeWhatFailed checks that the hooks after a call also see a tool that failed, and that its failure remains.
func TestHooksSeeWhatFailed(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(s bailey.Streams) (bailey.Exit, error)
		status bailey.Status
		code   int
	}{
		"a code":     {func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{Code: 7}, nil }, bailey.Failed, 7},
		"its time":   {func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{Code: 143, TimedOut: true}, nil }, bailey.Failed, 143},
		"an error":   {func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{}, errBroken }, bailey.Failed, 0},
		"cut off":    {func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{Code: 137}, context.Canceled }, bailey.Killed, 137},
		"no failure": {func(bailey.Streams) (bailey.Exit, error) { return bailey.Exit{}, nil }, bailey.OK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
				io.WriteString(s.Stdout, "token")
				return c.end(s)
			}
			var seen Output
			w.post = func(o Output) Output { seen = o; return Output{Stdout: []byte("gone")} }
			res := w.gate().Do(t.Context(), call())
			o := w.one()
			if string(seen.Stdout) != "token" || seen.ExitCode != c.code || seen.Failed != (c.status != bailey.OK) {
				t.Errorf("the hook saw %+v", seen)
			}
			if string(res.Stdout) != "gone" || o.Status != c.status || res.Status != c.status || string(o.StdoutBody.Bytes) != "gone" {
				t.Errorf("the caller got %q, %s, the ledger %+v", res.Stdout, res.Status, o)
			}
		})
	}
}

// TestWithheld checks that output that a hook did not release is neither returned nor stored, if the hook refused, if
// it panicked, or if the tool had failed too.
func TestWithheld(t *testing.T) {
	for name, set := range map[string]func(*world){
		"said no":  func(w *world) { w.postErr = errBroken },
		"panicked": func(w *world) { w.panicAt = "post" },
		"said no to one that failed": func(w *world) {
			w.postErr = errBroken
			run := w.run
			w.run = func(l bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
				run(l, s)
				return bailey.Exit{Code: 3}, nil
			}
		},
	} {
		for _, streamed := range []bool{false, true} {
			w, in := newWorld(t), call()
			w.holds = true
			set(w)
			var out bytes.Buffer
			if streamed {
				in.Stdout, in.Stderr = &out, &out
			}
			res := w.gate().Do(t.Context(), in)
			o := w.one()
			if res.Err == nil || len(res.Stdout)+len(res.Stderr)+out.Len() > 0 || o.StdoutBody != nil || o.StderrBody != nil || !*o.Executed {
				t.Errorf("%s, streamed %v: %q %q %+v", name, streamed, res.Stdout, out.String(), o)
			}
		}
	}
}

// TestHeldOutput checks that the caller's writer gets the output only as the hooks left it, and only after them. If no
// hook is asked, it gets the output at once.
func TestHeldOutput(t *testing.T) {
	for _, holds := range []bool{true, false} {
		w, in := newWorld(t), call()
		w.holds = holds
		var out bytes.Buffer
		in.Stdout, in.Stderr = &out, io.Discard
		before := ""
		w.post = func(o Output) Output {
			before = out.String()
			o.Stdout = append(slices.Clone(o.Stdout), " SECRET"...)
			return o
		}
		res := w.gate().Do(t.Context(), in)
		o := w.one()
		early, want := "", "out [R]"
		if !holds {
			early, want = "out", "out"
		}
		if res.Err != nil || before != early || out.String() != want || string(o.StdoutBody.Bytes) != want || holds && len(res.Stdout) > 0 {
			t.Errorf("held %v: before the hook %q, then %q, the ledger %+v, %+v", holds, before, out.String(), o.StdoutBody, res)
		}
	}
	w, in := newWorld(t), call()
	w.holds = true
	in.Stdout, in.Stderr = broken{}, io.Discard
	if res := w.gate().Do(t.Context(), in); res.Err == nil {
		t.Error("output that could not be written is no error")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errBroken }

// TestHooksSeeRedactedViews checks that hooks see the redacted input, before and after the call, as the call runs with
// it.
func TestHooksSeeRedactedViews(t *testing.T) {
	w, in := newWorld(t), call()
	in.Input["word"], in.Dir = "a SECRET", "/w/SECRET"
	in.Client = "SECRET"
	w.verdict = Verdict{Effect: bailey.Allow, Input: map[string]any{"word": "another SECRET"}}
	if res := w.gate().Do(t.Context(), in); res.Err != nil || len(w.views) != 2 {
		t.Fatalf("%v, %d views", res.Err, len(w.views))
	}
	if got := fmt.Sprint(w.views); strings.Contains(got, "SECRET") {
		t.Errorf("hooks saw %s", got)
	}
	if w.views[0].Input["word"] != "a [R]" || w.views[1].Input["word"] != "another [R]" {
		t.Errorf("hooks saw %v, then %v", w.views[0].Input, w.views[1].Input)
	}
}

// TestHookCannotChangeWhatOthersDo checks that a hook cannot change the input of a call that the agent carries out
// itself, because the agent would still use its own input.
func TestHookCannotChangeWhatOthersDo(t *testing.T) {
	w, in := newWorld(t), call()
	in.Own, in.DryRun = true, true
	w.verdict = Verdict{Effect: bailey.Allow, Input: map[string]any{"word": "milder"}}
	gate := func() *Gate {
		g := w.gate()
		g.Runners[pack.Agent] = w
		return g
	}
	res := gate().Do(t.Context(), in)
	if !errors.Is(res.Err, bailey.Denied) || res.Decision.Effect != bailey.Deny || w.one().Status != bailey.Refused {
		t.Errorf("%+v", res)
	}
	w = newWorld(t)
	if res := gate().Do(t.Context(), in); res.Err != nil || !w.happened("pre") {
		t.Errorf("%+v after %v", res, w.did)
	}
}

// TestAskedHooksAreInTheReceipt checks that the receipt lists the hooks on every exit, redacted and limited in size.
// Hooks that had an effect must stay in the list.
func TestAskedHooksAreInTheReceipt(t *testing.T) {
	asked := func(effect string, n int) (list []bailey.AskedHook) {
		for range n {
			list = append(list, bailey.AskedHook{Event: "PreToolUse", Hook: 1, Program: "/SECRET/p", Status: "FullyEnforced", Effect: effect, Reason: "SECRET " + strings.Repeat("w", 4096)})
		}
		return list
	}
	w := newWorld(t)
	w.verdict = Verdict{Effect: bailey.Deny, Rule: bailey.Rule{ID: "hook:1"}, Asked: asked("blocked", 1)}
	w.gate().Do(t.Context(), call())
	if o := w.one(); len(o.Hooks) != 1 || o.Hooks[0].Effect != "blocked" || o.HooksAsked != 0 || len(o.Hooks[0].Reason) > maxAskedText+4 || strings.Contains(fmt.Sprint(o.Hooks), "SECRET") {
		t.Errorf("%+v", o.Hooks)
	}
	w = newWorld(t)
	loud := strings.Repeat("\x01", 1<<20)
	many := asked("blocked", 40)
	for i := range many {
		many[i].Program, many[i].Reason = loud, loud
	}
	w.verdict = Verdict{Rule: bailey.Rule{ID: "hook:1", Reason: "SECRET" + loud}, Asked: many}
	res := w.gate().Do(t.Context(), call())
	if text, err := json.Marshal(w.one()); err != nil || len(text) > 60<<10 {
		t.Errorf("an outcome of %d bytes fits in no slot, %v", len(text), err)
	}
	if said := fmt.Sprint(res.Err, res.Decision); strings.Contains(said, "SECRET") || len(said) > 8<<10 {
		t.Errorf("a hook said %d bytes: %.100s", len(said), said)
	}
	w = newWorld(t)
	w.verdict = Verdict{Effect: bailey.Allow, Asked: slices.Concat(asked("kept", 20), asked("changed", 1))}
	w.post = func(o Output) Output { o.Asked = asked("failed", 3); return o }
	w.postErr = errors.New("no")
	w.gate().Do(t.Context(), call())
	o := w.one()
	if len(o.Hooks) != maxAsked || o.HooksAsked != 24 || o.Hooks[maxAsked-1].Effect != "failed" || o.Hooks[maxAsked-4].Effect != "changed" {
		t.Errorf("%d of %d: %+v", len(o.Hooks), o.HooksAsked, o.Hooks)
	}
}
