package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/internal/agenthook"
	"bailey/internal/localapi/apitype"
)

// TestJudgeFailsClosed checks that the answer is never allow if no gateway runs, whatever standard input contains.
func TestJudgeFailsClosed(t *testing.T) {
	t.Setenv("BAILEY_HOME", filepath.Join(t.TempDir(), "no", "such", "place"))
	good := `{"hook_event_name":"PreToolUse","cwd":"/w","tool_name":"Bash","tool_input":{"command":"git status"}}`
	for _, in := range []string{"", "null", "[]", "{}", good[:40], strings.Replace(good, "PreToolUse", "Stop", 1), strings.Replace(good, "tool_name", "Tool_Name", 1),
		strings.Replace(good, `"git status"`, "1", 1), strings.Replace(good, `"/w"`, `"w"`, 1), strings.Replace(good, `{"command"`, `["command"`, 1),
		strings.Replace(good, "status", "\xff", 1), good + "x", good + strings.Repeat(" ", maxEvent)} {
		if _, err := readEvent(strings.NewReader(in)); err == nil {
			t.Errorf("%.80q is read", in)
		}
		var out bytes.Buffer
		a := &App{Stdin: strings.NewReader(in), Stdout: &out, Stderr: io.Discard}
		if err := a.judgeClaude(context.Background(), judgePatience); err != nil || !strings.Contains(out.String(), `"permissionDecision":"deny"`) {
			t.Errorf("%.80q: %v %s", in, err, out.String())
		}
	}
	e, err := readEvent(strings.NewReader(good))
	if err != nil || e.Input["command"] != "git status" || e.Tool != "Bash" || e.Dir != "/w" {
		t.Errorf("%+v %v", e, err)
	}
}

// TestJudgeReadsInputsOfServers checks that an input of an MCP tool may have any type, also if a tool of the agent has a
// text of that name.
func TestJudgeReadsInputsOfServers(t *testing.T) {
	t.Parallel()
	in := `{"hook_event_name":"PreToolUse","cwd":"/w","tool_name":"TOOL","tool_input":{"command":["ls","/"],"path":"/x"}}`
	e, err := readEvent(strings.NewReader(strings.Replace(in, "TOOL", "mcp__bailey__sandbox_exec", 1)))
	if err != nil || e.Input["command"] != "" || e.Input["path"] != "/x" {
		t.Errorf("%+v %v", e, err)
	}
	if _, err := readEvent(strings.NewReader(strings.Replace(in, "TOOL", "Bash", 1))); err == nil {
		t.Error("Bash with a command that is a list is read")
	}
}

// TestJudgeAnswersInTime checks that a slow decision becomes a deny. If the agent stopped waiting for its hook, it
// would decide on its own.
func TestJudgeAnswersInTime(t *testing.T) {
	in, hold := io.Pipe()
	defer hold.Close()
	var out bytes.Buffer
	a := &App{Stdin: in, Stdout: &out, Stderr: io.Discard}
	if err := a.judgeClaude(context.Background(), time.Millisecond); err != nil || !strings.Contains(out.String(), `"permissionDecision":"deny"`) || !strings.Contains(out.String(), "in time") {
		t.Errorf("%v %s", err, out.String())
	}
}

// TestJudgeCannotAnswer checks that if the answer cannot be written, the exit code is 2, which Claude Code treats as a
// deny.
func TestJudgeCannotAnswer(t *testing.T) {
	var said bytes.Buffer
	a := &App{Stdin: strings.NewReader("{}"), Stdout: full{}, Stderr: &said}
	if err := a.judgeClaude(context.Background(), judgePatience); err != Exit(apitype.ExitInput) || said.Len() == 0 {
		t.Errorf("%v %q", err, said.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestClaudeAnswer(t *testing.T) {
	for _, v := range []agenthook.Verdict{{}, {Silent: true}, {Reason: "no"}} {
		b, err := json.Marshal(claudeAnswer(v))
		if err != nil || bytes.Contains(b, []byte("allow")) {
			t.Errorf("%+v: %s %v", v, b, err)
		}
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"hook_event_name":"PreToolUse","cwd":"/w","tool_name":"Bash","tool_input":{"command":"git status"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := readEvent(bytes.NewReader(data))
		if err == nil && (e.Tool == "" || !filepath.IsAbs(e.Dir)) {
			t.Errorf("%q: %+v", data, e)
		}
	})
}
