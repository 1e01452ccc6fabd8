package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/agenthook"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// maxSessionName limits the name of an agent's session, in bytes.
const maxSessionName = 256

// maxEvent is the maximum size of a hook event, in bytes.
const maxEvent = 1 << 20

func (a *App) judgeVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "judge", Short: "Answer the hook of an agent before it uses a tool"}
	cmd.AddCommand(&cobra.Command{
		Use: "claude-code", Short: "Answer the hooks PreToolUse and SessionEnd of Claude Code", Args: cobra.NoArgs,
		Long: `Read the tool use that Claude Code plans from stdin, decide it, and answer allow, ask or deny on stdout.
Each decision has a receipt. Any error is answered with deny and a hint; if that is not possible,
the exit code is 2, which Claude Code also treats as deny. The decisions belong to the session of
$BAILEY_SESSION, whose tokens the model proxy and the MCP server use, too. docs/hooked.md is the guide.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.judgeClaude(cmd.Context(), judgePatience) },
	})
	return cmd
}

// judgePatience is well below the limit of one minute after which Claude Code gives up on a hook and applies its own
// rules.
const judgePatience = 30 * time.Second

func (a *App) judgeClaude(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := a.inTime(ctx, a.judgeStdin)
	if err != nil {
		v = agenthook.Verdict{Reason: "Bailey: " + err.Error()}
		if hint := bailey.HintOf(err); hint != "" {
			v.Reason += "; " + hint
		}
	}
	if err := a.Print(claudeAnswer(v)); err != nil {
		fmt.Fprintln(a.Stderr, v.Reason)
		return Exit(apitype.ExitInput)
	}
	return nil
}

// inTime returns when ctx ends, even if decide still reads or waits: the process is about to end.
func (a *App) inTime(ctx context.Context, decide func(context.Context) (agenthook.Verdict, error)) (agenthook.Verdict, error) {
	type answer struct {
		verdict agenthook.Verdict
		err     error
	}
	said := make(chan answer, 1)
	go func() {
		v, err := decide(ctx)
		said <- answer{v, err}
	}()
	select {
	case one := <-said:
		return one.verdict, one.err
	case <-ctx.Done():
		return agenthook.Verdict{}, bailey.Unavailable.New("the request was not decided in time",
			"try again; run bailey doctor to find the fault")
	}
}

func (a *App) judgeStdin(ctx context.Context) (v agenthook.Verdict, err error) {
	e, err := readEvent(a.Stdin)
	if err != nil {
		return v, err
	}
	c, err := a.Client()
	if err != nil {
		return v, err
	}
	if e.ended {
		_, err := apitype.EndAgentSession.Ask(ctx, c, apitype.AgentSession{Session: e.Session})
		return agenthook.Verdict{Silent: true}, err
	}
	c.Progress = nil
	call := apitype.ToolCall{Tool: e.Tool, Dir: e.Dir, Input: map[string]any{}, Shim: installedShim(), Session: e.Session}
	for k, value := range e.Input {
		call.Input[k] = value
	}
	v, err = apitype.JudgeToolCall.AskInSession(ctx, c, call)
	if errors.Is(err, localapi.ErrUnreachable) && bailey.HintOf(err) == "" {
		err = bailey.Unavailable.New(err.Error(), "run bailey doctor to find the fault")
	}
	if v.Line != "" { // Claude Code replaces the whole input
		v.Input = e.whole
		v.Input["command"], _ = json.Marshal(v.Line) // cannot fail: it is a string
	}
	return v, err
}

// hookEvent is an event of Claude Code.
type hookEvent struct {
	agenthook.Event
	whole map[string]json.RawMessage // the complete input of the tool
	ended bool                       // the session has ended
}

// readEvent reads a PreToolUse event. It ignores unknown keys, because Claude Code adds new ones. From the input of the
// tool it keeps only the keys in [agenthook.Inputs]; their values must be strings.
func readEvent(r io.Reader) (e hookEvent, err error) {
	bad := func(why string) (hookEvent, error) {
		return hookEvent{}, bailey.Invalid.New("the hook's input "+why,
			"run bailey doctor; Claude Code and bailey may be incompatible")
	}
	data, err := io.ReadAll(io.LimitReader(r, maxEvent+1))
	switch {
	case err != nil:
		return bad("cannot be read: " + err.Error())
	case len(data) > maxEvent:
		return bad(fmt.Sprintf("is more than %d bytes", maxEvent))
	case !utf8.Valid(data):
		return bad("is not UTF-8")
	}
	var top, input map[string]json.RawMessage // maps, because Go matches the keys of structs case-insensitively
	if err := json.Unmarshal(data, &top); err != nil {
		return bad("is not JSON: " + err.Error())
	}
	var name string
	if json.Unmarshal(top["hook_event_name"], &name) == nil && name == "SessionEnd" {
		e.ended = true
		if json.Unmarshal(top["session_id"], &e.Session) != nil || e.Session == "" || len(e.Session) > maxSessionName {
			return bad("has no session_id")
		}
		return e, nil
	}
	for _, f := range []struct {
		key string
		to  any
	}{{"hook_event_name", &name}, {"tool_name", &e.Tool}, {"cwd", &e.Dir}, {"tool_input", &input}} {
		if json.Unmarshal(top[f.key], f.to) != nil {
			return bad("has no " + f.key)
		}
	}
	if raw, ok := top["session_id"]; ok && (json.Unmarshal(raw, &e.Session) != nil || len(e.Session) > maxSessionName) {
		return bad("has a session_id that is not a short text")
	}
	switch {
	case name != "PreToolUse":
		return bad("is not a PreToolUse event")
	case e.Tool == "" || !filepath.IsAbs(e.Dir):
		return bad("lacks the tool or the directory")
	}
	e.Input, e.whole = map[string]string{}, input
	for _, key := range agenthook.Inputs {
		var v *string
		raw, ok := input[key]
		if ok && json.Unmarshal(raw, &v) != nil {
			if strings.HasPrefix(e.Tool, "mcp__") {
				continue // an input of a server's tool, which only has the same name
			}
			return bad("has a " + key + " that is not text")
		}
		if v != nil {
			e.Input[key] = *v
		}
	}
	return e, nil
}

// claudeAnswer returns a verdict in the format of Claude Code. An empty object leaves the decision to the rules of
// Claude Code.
func claudeAnswer(v agenthook.Verdict) any {
	if v.Silent {
		return struct{}{}
	}
	type specific struct {
		Event    string `json:"hookEventName"`
		Decision string `json:"permissionDecision"`
		Reason   string `json:"permissionDecisionReason"`
		// replaces the input
		Input map[string]json.RawMessage `json:"updatedInput,omitempty"`
	}
	return struct {
		Specific specific `json:"hookSpecificOutput"`
	}{specific{"PreToolUse", v.Effect.String(), v.Reason, v.Input}}
}
