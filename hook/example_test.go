package hook_test

import (
	"context"
	"fmt"
	"strings"

	"bailey/hook"
)

// A hook that prevents pushes to main and shows commits without their diffs.
func Example() {
	hook.Main(func(_ context.Context, e hook.Event) (hook.Answer, error) {
		call, ok := e.(hook.PreToolUse)
		switch {
		case !ok:
			return hook.Answer{}, nil
		case call.ToolName == "git.push" && call.ToolInput["ref"] == "main":
			return hook.Answer{Block: true, Message: "main is released: push to a branch"}, nil
		case call.ToolName == "git.show":
			call.ToolInput["patch"] = false
			return hook.Answer{Updated: call.ToolInput}, nil
		}
		return hook.Answer{}, nil
	})
}

// An author's side without Main: the input is a frame, the output is an answer and an exit code.
func ExampleDecode() {
	event, err := hook.Decode([]byte(`{"hook_event_name":"UserPromptSubmit","session_id":"s-1","cwd":"/src","prompt":"hello"}`))
	fmt.Println(event.In().ID, event.(hook.UserPromptSubmit).Prompt, err)

	answer, exit, err := hook.EncodeAnswer(event, hook.Answer{Updated: "bonjour", Message: "translated"})
	fmt.Print(string(answer), exit, " ", err, "\n")

	_, _, err = hook.EncodeAnswer(event, hook.Answer{Updated: 5})
	fmt.Println(err)
	// Output:
	// s-1 hello <nil>
	// {"systemMessage":"translated","hookSpecificOutput":{"hookEventName":"UserPromptSubmit","updatedInput":"bonjour"}}
	// 0 <nil>
	// an answer to UserPromptSubmit cannot change int
}

// The bytes of both frames, and how a host interprets them.
func ExampleInterpret() {
	event := hook.PreToolUse{Session: hook.Session{ID: "s-1", Dir: "/src"}, ToolName: "git.show", ToolInput: map[string]any{"rev": "HEAD"}}
	frame, err := hook.Encode(event)
	fmt.Print(string(frame), err, "\n")

	answer := `{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"rev":"main"}}}`
	o := hook.Interpret(event, hook.Ran{Stdout: []byte(answer)}, "")
	fmt.Println(o.Effect, o.Event.(hook.PreToolUse).ToolInput)

	o = hook.Interpret(event, hook.Ran{Exit: 2, Stderr: []byte("not today\n")}, "")
	fmt.Println(o.Effect, o.Reason)

	o = hook.Interpret(event, hook.Ran{Stdout: []byte(answer[:40])}, "")
	fmt.Println(o.Effect, o.Reason)

	o = hook.Interpret(event, hook.Ran{Stdout: []byte(strings.Replace(answer, "PreToolUse", "PostToolUse", 1))}, hook.Pass)
	fmt.Println(o.Effect, o.Reason)
	// Output:
	// {"hook_event_name":"PreToolUse","session_id":"s-1","cwd":"/src","toolName":"git.show","toolInput":{"rev":"HEAD"}}
	// <nil>
	// changed map[rev:main]
	// blocked not today
	// blocked the hook failed: the answer:1:41: it ends within the object
	// failed the hook failed: the answer:1:23: this is an answer to "PostToolUse", but the event was PreToolUse
}

func ExampleParseConfig() {
	c, err := hook.ParseConfig([]byte(`{"hooks": {"PreToolUse": [{"command": "~/hooks/check --strict", "matcher": "git.*"}]}}`), "/home/me")
	fmt.Printf("%q %v %v\n", c.Hooks[0].Argv, c.Hooks[0].Timeout, err)
	fmt.Println(len(c.For(hook.PreToolUse{ToolName: "git.push"})), len(c.For(hook.PreToolUse{ToolName: "kubectl.get"})))

	_, err = hook.ParseConfig([]byte("{\"hooks\": {\n  \"PreToolUse\": [{\"command\": \"check\", \"timeout\": 5}]}}"), "")
	fmt.Println(err)
	// Output:
	// ["/home/me/hooks/check" "--strict"] 10s <nil>
	// 1 0
	// hooks.json:2:39: a hook has no key "timeout"
}
