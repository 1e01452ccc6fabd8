package gate

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

func of(id bailey.CapabilityID, input map[string]any) bailey.Call {
	c := call()
	c.Capability, c.Input = id, input
	return c
}

// TestStdinText checks that the tool reads exactly the checked text, and that it gets no standard input if none is
// given.
func TestStdinText(t *testing.T) {
	for given, want := range map[string]string{"b\na\n": "b\na\n", "": "", "absent": "unread"} {
		w, in := newWorld(t), map[string]any{"stdin": given}
		if given == "absent" {
			in = nil
		}
		w.stdin = new(string)
		*w.stdin = "unread"
		if res := w.gate().Do(t.Context(), of("t.sort", in)); res.Err != nil || *w.stdin != want {
			t.Errorf("%q: read %q, %v", given, *w.stdin, res.Err)
		}
	}
}

// TestStdinIsBound checks that the answer of a person binds the standard input of the tool.
func TestStdinIsBound(t *testing.T) {
	w := newWorld(t)
	ask(w)
	var q bailey.Question
	w.answer = func(asked bailey.Question) bailey.Answer { q = asked; return bailey.Answer{} }
	long := strings.Repeat("x", 1<<20) + "SECRET"
	w.gate().Do(t.Context(), of("t.sort", map[string]any{"stdin": long}))
	if len(q.Inputs) != 1 || q.Inputs[0].Value.Reveal() != `"`+long+`"` || len(q.Inputs[0].Text) > previewShown+100 || !strings.Contains(q.Inputs[0].Text, "truncated here") {
		t.Errorf("%d inputs, %.40q of %d bytes", len(q.Inputs), q.Inputs[0].Text, len(q.Inputs[0].Text))
	}
}

// TestStdinOfAStep checks that a step is asked about separately if its command line does not show its standard input.
func TestStdinOfAStep(t *testing.T) {
	w := newWorld(t)
	var asked []bailey.Question
	w.decide = func(_ int, r bailey.Request) bailey.Decision {
		if r.Capability == "t.sort" && len(r.Approvals) == 0 {
			return bailey.Decision{Effect: bailey.Ask, Asks: []bailey.Rule{{ID: "p", Digest: "d"}}, Policy: "p"}
		}
		return bailey.Decision{Effect: bailey.Allow, Policy: "p"}
	}
	given := w.answer
	w.answer = func(q bailey.Question) bailey.Answer { asked = append(asked, q); return given(q) }
	w.stdin = new(string)
	res := w.gate().Do(t.Context(), workflow("sorting"))
	if res.Err != nil || *w.stdin != "hello" || len(asked) != 1 || asked[0].Call != "t.sort" || asked[0].Inputs[0].Text != `"hello"` {
		t.Errorf("%v, read %q, asked %+v", res.Err, *w.stdin, asked)
	}
}

// TestStdinFile checks that the opened descriptor is read and that the file is not a place in the cage. If a person was
// asked, the tool must read the content of that time.
func TestStdinFile(t *testing.T) {
	in := map[string]any{"stdin": "/data", "dir": "/repo"}
	w := newWorld(t)
	w.stdin, w.below = new(string), map[string]bool{".git": true}
	res := w.gate().Do(t.Context(), of("t.feed", in))
	if res.Err != nil || *w.stdin != "what the file holds" || !w.happened("read /real/data") {
		t.Errorf("read %q, %v, %v", *w.stdin, res.Err, w.did)
	}
	if len(w.jobs) != 1 || len(w.jobs[0].Places) != 1 || w.jobs[0].Places[0].Input != "dir" || w.jobs[0].Dir != "/real/repo" {
		t.Errorf("%+v", w.jobs)
	}
	if o := w.one(); !slices.Contains(o.Paths, "/real/data") {
		t.Errorf("the receipt has %v", o.Paths)
	}

	w = newWorld(t)
	ask(w)
	w.stdin, w.below = new(string), map[string]bool{".git": true}
	frozen := func(p bailey.Place) (*bailey.Frozen, error) {
		if p.Input != "stdin" {
			return nil, nil
		}
		f, err := os.CreateTemp(t.TempDir(), "")
		if err == nil {
			_, err = f.WriteString("what it held")
		}
		return &bailey.Frozen{File: f, Size: 12, SHA256: bailey.NewSecret("d")}, err
	}
	var q bailey.Question
	w.freeze, w.answer = frozen, func(asked bailey.Question) bailey.Answer {
		q = asked
		return bailey.Answer{Granted: []bailey.RuleID{asked.Rules[0].ID}}
	}
	in["stdin"] = "/repo/below" // even if it is inside another place
	res = w.gate().Do(t.Context(), of("t.feed", in))
	if *w.stdin != "what it held" || w.happened("read /real/repo/below") || len(q.Files) != 1 || q.Files[0].Input != "stdin" {
		t.Errorf("read %q, asked about %+v, %v", *w.stdin, q.Files, res.Err)
	}

	w = newWorld(t)
	w.readErr, w.below = errBroken, map[string]bool{".git": true}
	if res := w.gate().Do(t.Context(), of("t.feed", in)); !errors.Is(res.Err, errBroken) || res.Executed {
		t.Errorf("what cannot be read: %+v", res)
	}
}

// TestValidators checks that the requirements of a manifest are checked before any decision.
func TestValidators(t *testing.T) {
	whole := map[string]any{"stdin": "/data", "dir": "/repo"}
	for name, c := range map[string]struct {
		set  func(w *world)
		in   map[string]any
		want string
		kind bailey.Kind
	}{
		"nothing there":  {nil, whole, "input /dir does not contain .git, and t.feed requires it", bailey.Invalid},
		"not given":      {nil, map[string]any{"stdin": "/data"}, "input /dir does not contain .git", bailey.Invalid},
		"no stdin":       {func(w *world) { w.below = map[string]bool{".git": true} }, map[string]any{"dir": "/repo"}, "input /stdin is missing", bailey.Invalid},
		"a denied word":  {func(w *world) { w.below = map[string]bool{".git": true} }, map[string]any{"stdin": "/data", "dir": "/repo", "word": "evil"}, "which t.feed never passes", bailey.Denied},
		"is not visible": {func(w *world) { w.hasErr = errBroken }, whole, "broken", ""},
	} {
		w := newWorld(t)
		if c.set != nil {
			c.set(w)
		}
		res := w.gate().Do(t.Context(), of("t.feed", c.in))
		if res.Err == nil || !strings.Contains(res.Err.Error(), c.want) || c.kind != "" && (bailey.KindOf(res.Err) != c.kind || bailey.HintOf(res.Err) == "") || w.happened("decide") || w.happened("plan") {
			t.Errorf("%s: %v after %v", name, res.Err, w.did)
		}
	}
}

// TestWorkspace checks that a call without a path runs in the workspace, and that policy and the receipt name it.
func TestWorkspace(t *testing.T) {
	w := newWorld(t)
	var r bailey.Request
	w.decide = func(_ int, asked bailey.Request) bailey.Decision {
		r = asked
		return bailey.Decision{Effect: bailey.Allow}
	}
	res := w.gate().Do(t.Context(), of("t.sort", nil))
	if res.Err != nil || r.Dir != "/real" || len(r.Paths) != 0 || r.Writes || w.jobs[0].Dir != "/real" || len(w.jobs[0].Places) != 1 || w.jobs[0].Places[0].Write {
		t.Errorf("%v, %+v, %+v", res.Err, r, w.jobs)
	}
	if o := w.one(); o.Cwd != "/real" || !slices.Contains(o.Paths, "/real") {
		t.Errorf("%+v", o)
	}
	w = newWorld(t)
	w.placeErr = &bailey.Error{Kind: bailey.Denied, Message: "no"}
	if res := w.gate().Do(t.Context(), of("t.sort", nil)); res.Status != bailey.Refused || w.happened("plan") {
		t.Errorf("without a workspace: %+v", res)
	}
}

// TestPromise checks that an output that does not match the declared schema is an error with the text, and that the
// receipt says so.
func TestPromise(t *testing.T) {
	for name, c := range map[string]struct{ stdout, structured, want string }{
		"what was promised": {`{"a": 1}`, `{"a":1}`, ""},
		"another type":      {`{"a":"x"}`, "", `the output does not match outputSchema: /a: "x" is not an integer`},
		"no JSON":           {`a=1`, "", "it is not JSON"},
		"nothing":           {``, "", "it is not JSON"},
		"cut":               {`{"a":1}` + strings.Repeat(" ", bailey.OutputCap), "", "the output was truncated at 1048576 bytes"},
		"a secret":          {`{"a":1,"b":"SECRET"}`, `{"a":1,"b":"[R]"}`, ""},
		"one in escapes":    {`{"a":1,"b":"SECRE\u0054"}`, `{"a":1,"b":"[R]"}`, ""},
	} {
		for _, streamed := range []bool{false, true} {
			w, in := newWorld(t), of("t.json", nil)
			w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
				_, err := io.WriteString(s.Stdout, c.stdout)
				return bailey.Exit{}, err
			}
			var out strings.Builder
			if streamed {
				in.Stdout = &out
			}
			res := w.gate().Do(t.Context(), in)
			text := masked(c.stdout[:min(len(c.stdout), bailey.OutputCap)]).(string)
			if got := string(res.Stdout) + out.String(); got != text {
				t.Errorf("%s: the text is %.40q", name, got)
			}
			if string(res.Structured) != c.structured || !res.Promised {
				t.Errorf("%s: structured %s", name, res.Structured)
			}
			if o := w.one(); c.want == "" && (res.Err != nil || o.Status != bailey.OK) {
				t.Errorf("%s: %v", name, res.Err)
			} else if c.want != "" && (bailey.KindOf(res.Err) != bailey.ToolFailed || !strings.Contains(res.Err.Error(), c.want) ||
				!strings.Contains(bailey.HintOf(res.Err), "its effects are done") || o.Status != bailey.Failed || !strings.Contains(o.Reason, c.want) || !*o.Executed) {
				t.Errorf("%s: %v (%s), %+v", name, res.Err, bailey.HintOf(res.Err), o)
			}
			if cut := "request less at once with limit"; (res.Narrow == cut) != (name == "cut") || name == "cut" && !strings.Contains(bailey.HintOf(res.Err), cut) {
				t.Errorf("%s: narrow %q", name, res.Narrow)
			}
		}
	}
	w := newWorld(t)
	w.run = exits(bailey.Exit{Code: 3})
	if res := w.gate().Do(t.Context(), of("t.json", nil)); !strings.Contains(res.Err.Error(), "exited with code 3") {
		t.Errorf("a tool that failed is judged by what it wrote: %v", res.Err)
	}
	w = newWorld(t)
	w.run = func(_ bailey.Lent, s bailey.Streams) (bailey.Exit, error) {
		_, err := io.WriteString(s.Stdout, `{"a":1}`)
		return bailey.Exit{}, err
	}
	w.post = func(o Output) Output { o.Stdout = []byte(`{"a":"SECRET"}`); return o }
	if res := w.gate().Do(t.Context(), of("t.json", nil)); res.Structured != nil || !strings.Contains(res.Err.Error(), `"[R]" is not an integer`) {
		t.Errorf("what a hook made of it is not judged: %v", res.Err)
	}
}

// TestNoRunner checks that a call without a runner does not run, and that the error gives the reason.
func TestNoRunner(t *testing.T) {
	for _, id := range []bailey.CapabilityID{"t.apart", "t.bare"} {
		w := newWorld(t)
		res := w.gate().Do(t.Context(), of(id, nil))
		if bailey.KindOf(res.Err) != bailey.Unavailable || !strings.Contains(res.Err.Error(), "requires isolation") || bailey.HintOf(res.Err) == "" || res.Executed || w.happened("plan") {
			t.Errorf("%s: %+v", id, res)
		}
	}
}

// TestUncagedIsSaid checks that a decision about a call without a cage is made knowingly. Policy must see a waiver,
// that the call may write, and the kind of cage. A person must see it in the question, also for a step of a workflow.
func TestUncagedIsSaid(t *testing.T) {
	for id, want := range map[bailey.CapabilityID]string{"t.bare": "runs without a jail, readOnly, readOnly", "t.opening": "one: t.bare: bare, without a jail"} {
		w := newWorld(t)
		w.bare = true
		ask(w)
		var seen []bailey.Request
		decide := w.decide
		w.decide = func(n int, r bailey.Request) bailey.Decision {
			if r.Capability == "t.bare" {
				seen = append(seen, r)
			}
			return decide(n, r)
		}
		var asked []string
		given := w.answer
		w.answer = func(q bailey.Question) bailey.Answer {
			asked = append(asked, q.Impact)
			for _, a := range q.Argv {
				asked = append(asked, a.Text)
			}
			return given(q)
		}
		c := w.gate().Config
		c.Runners = map[pack.Isolation]bailey.Runner{pack.Open: w}
		g, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if res := g.Do(t.Context(), of(id, nil)); res.Err != nil || !slices.Contains(asked, want) {
			t.Errorf("%s: %v, asked %q", id, res.Err, asked)
		}
		for _, r := range seen {
			if !slices.Equal(r.Waivers, []string{"isolation"}) || !r.Writes || r.Cage != "none" {
				t.Errorf("%s: policy sees %+v", id, r)
			}
		}
		if len(seen) == 0 {
			t.Errorf("%s: policy was not asked", id)
		}
	}
}

// TestCutBehindAHook checks that if a hook makes the output longer than the limit, it is cut and marked as cut.
func TestCutBehindAHook(t *testing.T) {
	w := newWorld(t)
	w.post = func(o Output) Output {
		o.Stdout = []byte(strings.Repeat(" ", bailey.OutputCap) + "x")
		return o
	}
	res := w.gate().Do(t.Context(), call())
	if !res.Truncated || len(res.Stdout) != bailey.OutputCap || !w.one().Truncated {
		t.Errorf("truncated %v, %d bytes, %v", res.Truncated, len(res.Stdout), res.Err)
	}
}
