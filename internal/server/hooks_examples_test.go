//go:build linux

package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/hook"
	"bailey/internal/hooks"
	"bailey/internal/jail"
	"bailey/internal/ktest"
	"bailey/internal/settings"
)

// TestHookExamples runs the programs of examples/hooks in the cages that hooks.json defines. The settings allow them
// access to a model and a chat server on this machine.
func TestHookExamples(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "python3", "sh", "jq", "go")
	var told []string
	outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chat" {
			b, _ := io.ReadAll(r.Body)
			told = append(told, string(b))
			return
		}
		io.WriteString(w, `{"choices":[{"message":{"content":"Show the changes"}}]}`)
	}))
	defer outside.Close()
	t.Setenv("MODEL_URL", outside.URL+"/model")
	t.Setenv("NOTIFY_URL", outside.URL+"/chat")
	to, err := bailey.ParseEndpoint(strings.TrimPrefix(outside.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	open := to
	open.Private, open.Plain = true, true
	ask := exampleHooks(t, to, settings.Network{Endpoints: []settings.Reach{{Endpoint: open}}})

	in := hook.Session{ID: "s-1", Dir: "/src"}
	if o, _ := ask(hook.UserPromptSubmit{Session: in, Prompt: "Zeig die Änderungen"}); o.Effect != hook.Changed || o.Event.(hook.UserPromptSubmit).Prompt != "Show the changes" {
		t.Errorf("the translator: %+v", o)
	}
	result := hook.PostToolUse{Session: in, ToolName: "git.log", ToolInput: map[string]any{}, ToolResult: map[string]any{"stdout": "see /home/alice/x", "stderr": "", "exitCode": json.Number("1")}, IsError: true}
	o, asked := ask(result)
	if got, _ := json.Marshal(o.Event.(hook.PostToolUse).ToolResult); o.Effect != hook.Changed || string(got) != `{"exitCode":1,"stderr":"","stdout":"see ~/x"}` || len(asked) != 2 {
		t.Errorf("the redactor: %+v, %s", o, got)
	}
	if o, _ := ask(hook.SessionEnd{Session: in}); o.Effect != hook.Kept {
		t.Errorf("the notifier: %+v", o)
	}
	if got := strings.Join(told, " "); got != `{"text":"git.log failed in session s-1"} {"text":"session s-1 ended"}` {
		t.Errorf("the chat was told %s", got)
	}

	ask = exampleHooks(t, to, settings.Network{})
	if o, _ := ask(hook.UserPromptSubmit{Session: in, Prompt: "Zeig die Änderungen"}); o.Effect != hook.Failed || len(told) != 2 {
		t.Errorf("what settings do not open was reached: %+v", o)
	}
}

// exampleHooks installs the examples as a user would, and returns a function that runs them. to replaces the hosts in
// their file.
func exampleHooks(t *testing.T, to bailey.Endpoint, said settings.Network) func(hook.Event) (hook.Outcome, []hooks.Asked) {
	t.Helper()
	home, err := os.MkdirTemp("/tmp", "bailey-examples-") // the user of the cages can reach it, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(home, "hooks"), os.DirFS("../../examples/hooks")); err != nil {
		t.Fatal(err)
	}
	// The user of the cages must be able to execute them, whatever the umask.
	for _, name := range []string{"translate/translate.py", "paths/paths.sh"} {
		if err := os.Chmod(filepath.Join(home, "hooks", name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(home, "hooks", "notify", "notify"), "../../examples/hooks/notify")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../../examples/hooks/hooks.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := hook.ParseConfig(text, home)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Hooks {
		if len(c.Hooks[i].Network) > 0 {
			c.Hooks[i].Network = []bailey.Endpoint{to}
		}
	}
	j, err := jail.New(jail.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	chain := NewChain(hooks.Config{Applied: func() hook.Config { return c }, Cages: j}, EgressPlanner{Settings: func() settings.Network { return said }}, nil, func() []string { return nil })
	return func(e hook.Event) (hook.Outcome, []hooks.Asked) {
		o, asked := chain.Ask(context.Background(), e)
		for _, a := range asked {
			if a.Status != hooks.FullyEnforced && a.Status != hooks.PartiallyEnforced && len(said.Endpoints) > 0 {
				t.Errorf("%s ran %s: %s", a.Program, a.Status, a.Reason)
			}
		}
		return o, asked
	}
}
