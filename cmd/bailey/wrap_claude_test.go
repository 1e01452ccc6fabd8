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

// scriptedModel answers as the model's interface does, and keeps the tools that it was offered.
func scriptedModel(t *testing.T, offered *[]string) *httptest.Server {
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Tools []struct{ Name string } }
		body, _ := io.ReadAll(r.Body)
		json.Unmarshal(body, &asked)
		mu.Lock()
		for _, tool := range asked.Tools {
			*offered = append(*offered, tool.Name)
		}
		mu.Unlock()
		message := map[string]any{"id": "m", "type": "message", "role": "assistant", "model": "scripted", "content": []any{}, "usage": map[string]int{"input_tokens": 1, "output_tokens": 1}}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []map[string]any{
			{"type": "message_start", "message": message},
			{"type": "content_block_start", "index": 0, "content_block": map[string]any{"type": "text", "text": ""}},
			{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": "said by the model"}},
			{"type": "content_block_stop", "index": 0},
			{"type": "message_delta", "delta": map[string]any{"stop_reason": "end_turn"}, "usage": map[string]int{"output_tokens": 1}},
			{"type": "message_stop"},
		} {
			b, _ := json.Marshal(e)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// TestWrapClaude: the real agent starts inside the wall, finds Bailey's server, talks to its model, and ends.
func TestWrapClaude(t *testing.T) {
	ktest.Require(t, "userns", "netns", "landlock", "claude", "git")
	var offered []string
	model := scriptedModel(t, &offered)
	dir := t.TempDir()
	project, home := filepath.Join(dir, "project"), filepath.Join(dir, "me")
	for _, d := range []string{project, home} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "bailey")
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(program, args...)
		cmd.Dir = project
		cmd.Env = append(os.Environ(), "HOME="+home, "BAILEY_HOME="+filepath.Join(dir, "home"), "BAILEY_OPERATOR=1", "ANTHROPIC_BASE_URL="+model.URL, "ANTHROPIC_API_KEY=sk-scripted-0123456789",
			"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	t.Cleanup(func() { run("gateway", "stop") })
	reach := strings.TrimPrefix(model.URL, "http://") + ",private,plain"
	if out := run("wrap", "--yes", "--egress", reach, "--", "claude", "mcp", "list"); !strings.Contains(out, "/run/bailey/bin/bailey serve - ✔ Connected") {
		t.Error(out)
	}
	if out := run("wrap", "--yes", "--egress", reach, "--", "claude", "-p", "hello"); !strings.Contains(out, "said by the model") {
		t.Error(out)
	}
	if !strings.Contains(strings.Join(offered, " "), "mcp__bailey__git_status") {
		t.Errorf("the model was offered %q", offered)
	}
}
