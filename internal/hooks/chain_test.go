package hooks

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/hook"
	"bailey/internal/ktest"
)

// adds returns a hook that appends a letter to ref.
func (y *yard) adds(t *testing.T, letter string) hook.Hook {
	ktest.Require(t, "jq")
	path := y.script(t, "adds-"+letter, fmt.Sprintf("#!/bin/sh\nexec jq -c '{systemMessage: \"%s\", hookSpecificOutput: {hookEventName: \"PreToolUse\", updatedInput: {ref: (.toolInput.ref + \"%[1]s\")}}}'\n", letter))
	return hook.Hook{Event: hook.OnPreToolUse, Argv: []string{path}, Timeout: hook.DefaultTimeout}
}

// TestChain checks that hooks run in order up to the first that blocks, each with the event as the previous one left
// it.
func TestChain(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	a, b := y.adds(t, "a"), y.adds(t, "b")
	fails, blocks := y.shell(t, "exit 9"), a
	fails.OnFailure = hook.Pass
	blocks.Argv = []string{y.script(t, "blocks", "#!/bin/sh\necho no more >&2; exit 2\n")}
	elsewhere, other := a, a
	elsewhere.Event, other.Matcher = hook.OnSessionEnd, "http.*"
	for name, c := range map[string]struct {
		hooks  []hook.Hook
		effect hook.Effect
		ref    string
		places []int
	}{
		"nobody":                {nil, hook.Kept, "", nil},
		"nobody's event":        {[]hook.Hook{elsewhere, other}, hook.Kept, "", nil},
		"in order":              {[]hook.Hook{a, elsewhere, b, other, a}, hook.Changed, "aba", []int{1, 3, 5}},
		"one fails":             {[]hook.Hook{a, fails, b}, hook.Changed, "ab", []int{1, 2, 3}},
		"one alone, which does": {[]hook.Hook{fails}, hook.Failed, "", []int{1}},
		"one blocks":            {[]hook.Hook{a, blocks, b}, hook.Blocked, "", []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			var told []Asked
			y.Tell = func(_ context.Context, a Asked) { told = append(told, a) }
			y.hooks = c.hooks
			o, all := y.Ask(t.Context(), pre(map[string]any{"ref": ""}))
			var places []int
			for _, a := range all {
				places = append(places, a.Hook)
			}
			if o.Effect != c.effect || !reflect.DeepEqual(places, c.places) || !reflect.DeepEqual(told, all) {
				t.Errorf("%+v, asked %v", o, places)
			}
			if e, ok := o.Event.(hook.PreToolUse); ok != (c.effect != hook.Blocked) || ok && e.ToolInput["ref"] != c.ref {
				t.Errorf("it goes on as %+v", o.Event)
			}
			if c.effect == hook.Blocked && (o.Reason != "no more" || o.Message != "a\nno more") {
				t.Errorf("%q %q", o.Reason, o.Message)
			}
		})
	}
}

// TestAskedAtOnce checks that events of concurrent sessions do not affect each other.
func TestAskedAtOnce(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	y.hooks = []hook.Hook{y.adds(t, "a"), y.adds(t, "b")}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			e := pre(map[string]any{"ref": fmt.Sprint(i)})
			e.ID = bailey.SessionID(fmt.Sprint("s-", i))
			o, asked := y.Ask(t.Context(), e)
			if o.Effect != hook.Changed || o.Event.(hook.PreToolUse).ToolInput["ref"] != fmt.Sprint(i, "ab") || len(asked) != 2 || asked[0].Session != e.ID {
				t.Errorf("%d: %+v", i, o)
			}
		})
	}
	all.Wait()
}

// TestGoneBefore checks that no hook is started if the caller is already gone.
func TestGoneBefore(t *testing.T) {
	y := newYard(t)
	h := y.shell(t, "exit 0")
	for _, bare := range []bool{false, true} {
		h.Unsandboxed, h.OnFailure = bare, hook.Pass
		y.hooks = []hook.Hook{h, h}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if o, all := y.Ask(ctx, pre(nil)); o.Effect != hook.Blocked || o.Event != nil || len(all) != 1 || all[0].Exit != bailey.NeverRan {
			t.Errorf("%+v %+v", o, all)
		}
	}
}

// TestToldOnce checks that a warning is reported once per session and hook, until Forget.
func TestToldOnce(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	h := y.shell(t, "head -c 2000000 /dev/zero >&2; exit 0")
	h.Unsandboxed = true
	y.hooks = []hook.Hook{h, h}
	kinds := func(s bailey.SessionID) (all []string) {
		e := pre(nil)
		e.ID = s
		_, asked := y.Ask(t.Context(), e)
		for _, a := range asked {
			for _, w := range a.Warning {
				all = append(all, fmt.Sprint(a.Hook, " ", w.Kind))
			}
		}
		return all
	}
	every := []string{"1 hook.sandbox", "1 hook.buffer", "2 hook.sandbox", "2 hook.buffer"}
	for i, step := range []struct {
		forget bool
		what   bailey.SessionID
		in     bailey.SessionID
		want   []string
	}{{in: "s-1", want: every}, {in: "s-1"}, {in: "s-2", want: every}, {forget: true, what: "s-1", in: "s-2"}, {in: "s-1", want: every}, {forget: true, in: "s-2", want: every}, {in: "s-1", want: every}} {
		if step.forget {
			y.Forget(step.what)
		}
		if got := kinds(step.in); !reflect.DeepEqual(got, step.want) {
			t.Errorf("step %d: %v, want %v", i+1, got, step.want)
		}
	}
}

// TestToldIsBounded checks that memory is limited if a hook fails with new text each time, or if there are ever more
// sessions.
func TestToldIsBounded(t *testing.T) {
	d := New(Config{})
	for i := range 3 * maxTold {
		d.newWarnings("s-1", 1, []Warning{{Kind: "hook.failed", Text: strings.Repeat("x", i)}})
		d.newWarnings(bailey.SessionID(fmt.Sprint("s-", i)), 1, []Warning{{Kind: "hook.sandbox"}})
	}
	if n, m := len(d.told), len(d.told["s-1"]); n > maxTold || m > maxTold {
		t.Errorf("%d sessions, %d warnings", n, m)
	}
}

// TestChainLeavesNothingOpen checks that resources prepared for a hook are released if it is not asked.
func TestChainLeavesNothingOpen(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	h := y.shell(t, "exit 2")
	h.Write = []string{y.home + "/state"}
	y.hooks = []hook.Hook{h, h, h}
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector would close unreferenced files
	const times = 30
	before := 0
	for i := range times + 5 {
		if i == 5 {
			before = open()
		}
		if _, all := y.Ask(t.Context(), pre(nil)); len(all) != 1 {
			t.Fatalf("%+v", all)
		}
	}
	after := open()
	// The cages of the last hooks may still be ending.
	for end := time.Now().Add(30 * time.Second); after > before+times/2 && time.Now().Before(end); after = open() {
		time.Sleep(20 * time.Millisecond)
	}
	if after > before+times/2 {
		t.Errorf("%d descriptors are open, and %d were", after, before)
	}
}
