//go:build linux

package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/test/scripted"
)

// TestWrapClaude checks that the real agent starts in the agent jail, finds Bailey's server, talks to its model, and
// ends.
func TestWrapClaude(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "landlock", "claude", "git")
	var offered []string
	model := httptest.NewServer(&scripted.Model{Say: func(_ context.Context, now scripted.Turn) (scripted.Reply, bool) {
		offered = append(offered, now.Tools...)
		return scripted.Reply{Text: "said by the model"}, true
	}})
	t.Cleanup(model.Close)
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
