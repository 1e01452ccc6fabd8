//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"bailey/internal/ktest"
)

// scripted answers /v1/messages as the API does: it has the agent use these tools one after the other, and keeps what came of each.
type scripted struct {
	uses []map[string]any // name, input

	mu   sync.Mutex
	came map[string]string // by id
}

func (m *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var got struct {
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct{ Content json.RawMessage }
	}
	if json.Unmarshal(body, &got) != nil || !strings.HasSuffix(r.URL.Path, "/v1/messages") {
		http.Error(w, "{}", http.StatusNotFound)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, message := range got.Messages {
		var blocks []struct {
			ID      string `json:"tool_use_id"`
			Content json.RawMessage
		}
		json.Unmarshal(message.Content, &blocks)
		for _, b := range blocks {
			if b.ID != "" {
				m.came[b.ID] = string(b.Content)
			}
		}
	}
	block, delta, why := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": "done"}, "end_turn"
	if n := len(m.came); n < len(m.uses) && len(got.Tools) > 0 {
		input, _ := json.Marshal(m.uses[n]["input"])
		block = map[string]any{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": m.uses[n]["name"], "input": map[string]any{}}
		delta, why = map[string]any{"type": "input_json_delta", "partial_json": string(input)}, "tool_use"
	}
	envelope := map[string]any{"id": "msg", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "stop_reason": nil, "stop_sequence": nil,
		"usage": map[string]int{"input_tokens": 1, "output_tokens": 1}}
	if !got.Stream {
		envelope["content"], envelope["stop_reason"] = []any{map[string]any{"type": "text", "text": "done"}}, "end_turn"
		json.NewEncoder(w).Encode(envelope)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range []map[string]any{
		{"type": "message_start", "message": envelope},
		{"type": "content_block_start", "index": 0, "content_block": block},
		{"type": "content_block_delta", "index": 0, "delta": delta},
		{"type": "content_block_stop", "index": 0},
		{"type": "message_delta", "delta": map[string]any{"stop_reason": why, "stop_sequence": nil}, "usage": map[string]int{"output_tokens": 1}},
		{"type": "message_stop"},
	} {
		b, _ := json.Marshal(e)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
	}
}

// TestClaudeIsHooked: Claude Code itself, with the hook and a scripted model, does what is allowed and neither what is asked (nobody
// is there) nor what is denied. What it did is seen by what is there afterwards.
func TestClaudeIsHooked(t *testing.T) {
	ktest.Require(t, "claude", "node", "git")
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin, project, home := filepath.Join(top, "bin"), filepath.Join(top, "project"), filepath.Join(top, "me")
	for _, dir := range []string{bin, project, home} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, content string) map[string]any {
		return map[string]any{"name": "Write", "input": map[string]any{"file_path": name, "content": content}}
	}
	shell := func(line string) map[string]any {
		return map[string]any{"name": "Bash", "input": map[string]any{"command": line, "description": "x"}}
	}
	m := &scripted{came: map[string]string{}, uses: []map[string]any{
		file(filepath.Join(project, "allowed"), "x"), file(filepath.Join(home, "outside"), "x"), file(filepath.Join(project, ".git", "hooks", "pre-commit"), "x"),
		shell("echo hi > redirected"), shell("touch asked"), shell("touch denied && bailey approve a-1"), shell("git status"),
		file("~/tilde", "x"), file(" "+filepath.Join(home, "blank"), "x"), shell("tools/nice cat allowed"), // as Claude Code reads paths, and a program of the project's own
		shell("cd docs && git status"), // a repository to git
	}}
	for name, text := range map[string]string{"tools/nice": "#!/bin/sh\ntouch ran\n", "docs/HEAD": "ref: refs/heads/main\n", "docs/objects/x": "", "docs/refs/x": "",
		"docs/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = touch watched\n"} {
		if err := os.MkdirAll(filepath.Join(project, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(project, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	env := append(os.Environ(), "HOME="+home, "BAILEY_HOME="+filepath.Join(home, ".bailey"), "PATH="+bin+":"+os.Getenv("PATH"), "ANTHROPIC_BASE_URL="+server.URL,
		"ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1")
	run := func(dir string, more []string, name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = dir, append(env[:len(env):len(env)], more...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "bailey"), ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bailey := filepath.Join(bin, "bailey")
	run(project, nil, "git", "init", "-q")
	run(project, []string{"BAILEY_OPERATOR=1"}, bailey, "init", "--claude-code", "--yes")
	t.Cleanup(func() { run(project, []string{"BAILEY_OPERATOR=1"}, bailey, "gateway", "stop") })
	said := run(project, nil, "claude", "-p", "go")
	if len(m.came) != len(m.uses) {
		t.Fatalf("%d of %d tools used: %v\n%s", len(m.came), len(m.uses), m.came, said)
	}
	for name, want := range map[string]bool{
		filepath.Join(project, "allowed"): true, filepath.Join(project, "redirected"): true, filepath.Join(home, "outside"): false,
		filepath.Join(project, ".git/hooks/pre-commit"): false, filepath.Join(project, "asked"): false, filepath.Join(project, "denied"): false,
		filepath.Join(home, "tilde"): false, filepath.Join(home, "blank"): false, filepath.Join(project, "ran"): false, filepath.Join(project, "docs", "watched"): false,
	} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", name, err == nil, want)
		}
	}
	for n, want := range map[int]string{1: "outside the workspaces", 5: "operator-verb", 6: "No commits yet"} {
		if got := m.came[fmt.Sprintf("toolu_%d", n)]; !strings.Contains(got, want) {
			t.Errorf("%v came to %s, want %s", m.uses[n], got, want)
		}
	}
}
