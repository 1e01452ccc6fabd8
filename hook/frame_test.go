package hook

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
)

// TestLimitOfAFrame checks that a frame of exactly the maximum size or depth is accepted in both directions, and that a
// larger one is refused.
func TestLimitOfAFrame(t *testing.T) {
	empty := len(written(t, UserPromptSubmit{}))
	fits := UserPromptSubmit{Prompt: strings.Repeat("x", MaxFrame-empty)}
	frame := written(t, fits)
	if e, err := Decode([]byte(frame)); len(frame) != MaxFrame || err != nil || e != Event(fits) {
		t.Errorf("%d bytes: %v", len(frame), err)
	}
	fits.Prompt += "x"
	_, err := Encode(fits)
	refused(t, err, "the frame of UserPromptSubmit has more than 1048576 bytes")
	_, err = Decode([]byte(frame + " "))
	refused(t, err, "the frame has more than 1048576 bytes")
	_, err = ParseConfig([]byte(`{"hooks":{}}`+strings.Repeat(" ", MaxFrame)), "")
	refused(t, err, "hooks.json has more than 1048576 bytes")
	if o := Interpret(fits, Ran{Stdout: []byte("{}" + strings.Repeat(" ", MaxFrame-2))}, Block); o.Effect != Kept {
		t.Errorf("an answer of the most bytes: %+v", o)
	}
	for _, n := range []int{MaxFrame + 1, 100 << 20} {
		if o := Interpret(fits, Ran{Stdout: bytes.Repeat([]byte(" "), n)}, Block); o.Effect != Blocked || !strings.Contains(o.Reason, "more than 1048576 bytes") {
			t.Errorf("%d bytes: %+v", n, o)
		}
	}
}

func TestLimitOfDepth(t *testing.T) {
	deep := func(n int) PostToolUse {
		return PostToolUse{ToolName: "a.b", ToolInput: map[string]any{}, ToolResult: nest(n)}
	}
	if _, err := Decode([]byte(written(t, deep(maxDepth-1)))); err != nil { // one level is the frame itself
		t.Error(err)
	}
	_, err := Encode(deep(maxDepth))
	refused(t, err, "nested deeper than 256")
	for _, open := range []string{"[", `{"a":`} {
		_, err = Decode([]byte(`{"x":` + strings.Repeat(open, 100_000)))
		refused(t, err, "nested deeper than 256")
	}
}

func nest(n int) (v any) {
	v = "x"
	for range n {
		v = []any{v}
	}
	return v
}

func TestEncodeRefuses(t *testing.T) {
	for _, bad := range []any{math.NaN(), make(chan int)} {
		_, err := Encode(PreToolUse{ToolInput: map[string]any{"x": bad}})
		refused(t, err, "cannot be written as JSON")
	}
	if got := written(t, UserPromptSubmit{Prompt: "a\xffb"}); !strings.Contains(got, `a\ufffdb`) && !strings.Contains(got, "a\ufffdb") {
		t.Errorf("bytes that are not UTF-8: %s", got)
	}
	if got := written(t, PreToolUse{ToolName: "a.b"}); !strings.Contains(got, `"toolInput":{}`) {
		t.Errorf("no input: %s", got)
	}
}

// TestAnswersGoThrough checks that one side reads the answer that the other writes, and that an answer that does not
// fit its event is not written.
func TestAnswersGoThrough(t *testing.T) {
	fits := map[Name]any{OnUserPromptSubmit: "x", OnAssistantMessageRender: "", OnPreToolUse: map[string]any{}, OnPostToolUse: []any{"x"}}
	for _, e := range everyEvent() {
		for name, updated := range fits {
			frame, exit, err := EncodeAnswer(e, Answer{Message: "m", Updated: updated})
			if _, can := e.withUpdate(updated); !can {
				refused(t, err, "cannot change")
				continue
			}
			o := Interpret(e, Ran{Stdout: frame, Exit: exit}, "")
			if want, _ := e.withUpdate(updated); err != nil || o.Effect != Changed || o.Message != "m" || written(t, o.Event) != written(t, want) {
				t.Errorf("%s changed as %s is: %+v, %v", e.Name(), name, o, err)
			}
		}
		frame, exit, err := EncodeAnswer(e, Answer{Block: true, Message: "no", Updated: 1})
		o := Interpret(e, Ran{Stdout: frame, Exit: exit}, "")
		if err != nil || e.Name().Blocks() != (o.Effect == Blocked && o.Reason == "no") {
			t.Errorf("%s blocked: %+v, %v", e.Name(), o, err)
		}
	}
}

func everyEvent() (all []Event) {
	for _, n := range Names() {
		e, err := Decode([]byte(`{"hook_event_name":"` + n + `","prompt":"p","content":"c","toolName":"a.b","toolInput":{"k":1},"toolResult":"r"}`))
		if err != nil {
			panic(err)
		}
		all = append(all, e)
	}
	return all
}

// TestZeroValues checks that an omitted value gives no right.
func TestZeroValues(t *testing.T) {
	if (Outcome{}).Effect != Blocked || (Hook{}).Unsandboxed || (Hook{}).Network != nil || (Hook{}).Write != nil {
		t.Error("a zero value gives a right")
	}
	for _, e := range everyEvent() {
		if o := Interpret(e, Ran{Exit: 1}, "what nobody knows"); o.Effect != Blocked {
			t.Errorf("%s: an onFailure that nobody knows lets it pass", e.Name())
		}
		if o := Interpret(e, Ran{Err: &bailey.Error{Kind: bailey.Unavailable, Message: "no cage", Hint: "correct"}}, Block); o.Effect != Blocked || o.Hint != "correct" {
			t.Errorf("%s: %+v", e.Name(), o)
		}
	}
}

// TestReasonIsShort checks that a reason stays short, even if the hook's message or keys are long.
func TestReasonIsShort(t *testing.T) {
	x := strings.Repeat("x", 1<<19)
	for _, answer := range []string{`{"` + x + `":1}`, `{"` + x + `":1,"` + x + `":1}`, `{"hookSpecificOutput":{"hookEventName":"` + x + `"}}`, `{` + x} {
		if o := Interpret(everyEvent()[0], Ran{Stdout: []byte(answer)}, Block); o.Effect != Blocked || len(o.Reason) > 4*maxSaid {
			t.Errorf("%d bytes of a reason, %s", len(o.Reason), o.Effect)
		}
	}
	long := bytes.Repeat([]byte("é\xff"), 1<<20)
	for _, exit := range []int{1, 2} {
		if o := Interpret(everyEvent()[0], Ran{Exit: exit, Stderr: long}, Block); len(o.Reason) > 4*maxSaid || strings.Contains(o.Reason, "\xff") {
			t.Errorf("%d bytes of a reason", len(o.Reason))
		}
	}
}

func TestOutput(t *testing.T) {
	var o Output
	for _, n := range []int{MaxFrame - 1, 1, 0} {
		if w, err := o.Write(make([]byte, n)); w != n || err != nil {
			t.Error(w, err)
		}
	}
	if b, more := o.Kept(); len(b) != MaxFrame || more {
		t.Error(len(b), more)
	}
	if n, err := o.Write(make([]byte, 2)); n != 2 || err != nil {
		t.Error(n, err)
	}
	if b, more := o.Kept(); len(b) != MaxFrame || !more {
		t.Error(len(b), more)
	}
}

func TestMatcher(t *testing.T) {
	for _, m := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "git.push", true}, {"*", "", true}, {"*", "a/b", true}, {"git.*", "git.push", true}, {"git.*", "git", false},
		{"git.*", "xgit.push", false}, {"*.push", "git.push", true}, {"*.push", "git.pushed", false}, {"g*t*p*h", "git.push", true},
		{"g?t", "git", true}, {"g?t", "gt", false}, {"g?t", "gét", true}, {"Git", "git", false}, {"a**b", "ab", true}, {"?*", "", false},
		{strings.Repeat("*a", 100) + "b", strings.Repeat("a", 100_000), false},
	} {
		h := Hook{Event: OnPreToolUse, Matcher: m.pattern}
		if got := h.Matches(PreToolUse{ToolName: m.name}); got != m.want {
			t.Errorf("%.20q on %.20q: %v", m.pattern, m.name, got)
		}
		if h.Matches(PostToolUse{ToolName: m.name}) {
			t.Error("a hook is asked about another event")
		}
	}
}

func TestChain(t *testing.T) {
	c, err := ParseConfig([]byte(`{"hooks":{"PreToolUse":[{"command":"a","matcher":"git.*"},{"command":"/opt/b"}],"SessionStart":[{"command":"c"}],
		"PostToolUse":[{"command":"/opt/d/e","matcher":"*"}]}}`), "relative")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		e        Event
		programs string
	}{{PreToolUse{ToolName: "git.push"}, "a /opt/b"}, {PreToolUse{ToolName: "go.test"}, "/opt/b"}, {PostToolUse{}, "/opt/d/e"}, {SessionStart{}, "c"}, {SessionEnd{}, ""}} {
		var programs []string
		for _, h := range c.For(want.e) {
			programs = append(programs, h.Argv[0])
		}
		if got := strings.Join(programs, " "); got != want.programs {
			t.Errorf("%s: %s", want.e.Name(), got)
		}
	}
	var folders []string
	for _, h := range c.Hooks {
		folders = append(folders, h.Folder())
	}
	if !slices.Equal(folders, []string{"", "/opt", "", "/opt/d"}) || c.Hooks[3].Line != 2 {
		t.Errorf("folders %q, line %d", folders, c.Hooks[3].Line)
	}
	_, err = ParseConfig([]byte(`{"hooks":{"PreToolUse":[{"command":"~/a"}]}}`), "relative")
	refused(t, err, "the home directory for ~")
	_, err = ParseConfig([]byte(`{"hooks":{"PreToolUse":[{"command":"a","filesystem":{"read":["~/a"]}}]}}`), "")
	refused(t, err, "the home directory is unknown")
}

// TestFramesCostLittle checks that the number of values in a frame is limited, because a value takes a hundred times
// its bytes in memory.
func TestFramesCostLittle(t *testing.T) {
	ktest.Long(t)
	fill := func(value string) []byte {
		head, tail := `{"hook_event_name":"PostToolUse","session_id":"s-1","cwd":"/","toolName":"a.b","toolInput":{},"toolResult":[`, `0]}`
		return []byte(head + strings.Repeat(value+",", (MaxFrame-len(head)-len(tail))/(len(value)+1)) + tail)
	}
	for _, value := range []string{"{}", "[]", "0", `{"a":0}`, `""`, "[[[[]]]]"} {
		var before, after runtime.MemStats
		frame := fill(value)
		runtime.ReadMemStats(&before)
		_, err := Decode(frame)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "more than 65536 values") || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v", value, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
			t.Errorf("a frame of %s costs %d MiB", value, took>>20)
		}
	}
	list := make([]any, maxValues-10) // the frame, its members and their contents count too
	for i := range list {
		list[i] = json.Number("0")
	}
	e := PostToolUse{Session{"s-1", "/"}, "a.b", map[string]any{}, list, false}
	frame, err := Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := Decode(frame); err != nil || !reflect.DeepEqual(back, Event(e)) {
		t.Errorf("as many values as may be: %v", err)
	}
	e.ToolResult = make([]any, maxValues)
	if _, err := Encode(e); err == nil {
		t.Error("a frame is written that nobody reads")
	}
}
