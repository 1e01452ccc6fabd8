//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/test/scripted"
)

// TestClaudeIsHooked runs the real Claude Code with the hook and a scripted model. Only allowed tools may run. A tool
// that needs approval must not, because no approver is present. The test examines the resulting files.
func TestClaudeIsHooked(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
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
	file := func(name, content string) scripted.Reply {
		return scripted.Reply{Tool: "Write", Input: map[string]any{"file_path": name, "content": content}}
	}
	shell := func(line string) scripted.Reply {
		return scripted.Reply{Tool: "Bash", Input: map[string]any{"command": line, "description": "x"}}
	}
	uses := []scripted.Reply{
		file(filepath.Join(project, "allowed"), "x"), file(filepath.Join(home, "outside"), "x"), file(filepath.Join(project, ".git", "hooks", "pre-commit"), "x"),
		shell("echo hi > redirected"), shell("dd of=asked < /dev/null"), shell("touch denied && bailey approve a-1"), shell("git status"),
		// Paths as Claude Code reads them, and a program from the project.
		file("~/tilde", "x"), file(" "+filepath.Join(home, "blank"), "x"), shell("tools/nice cat allowed"),
		shell("cd docs && git status"), // git takes docs for a repository
		// A line that runs as a capability, in its jail, with the output and the exit code of the tool.
		// Its cache is empty, and a busy machine needs more than the two minutes after which Claude Code goes on without.
		{Tool: "Bash", Input: map[string]any{"command": "go test -v ./... 2>&1 | tail -n 50", "description": "x", "timeout": 590_000}},
		shell("go vet ./..."),
		{Tool: "Read", Input: map[string]any{"file_path": filepath.Join(home, "go/pkg/mod/m@v1/m.go")}},
		{Tool: "Read", Input: map[string]any{"file_path": filepath.Join(home, ".claude/.credentials.json")}},
		shell("mkdir -p made/x && touch made/x/y && sed -n 1p allowed"),
	}
	var came []string // the result of each use
	m := &scripted.Model{Say: func(_ context.Context, now scripted.Turn) (scripted.Reply, bool) {
		if now.Answer.ID != "" {
			came = append(came, now.Answer.Text)
		}
		if len(came) == len(uses) {
			return scripted.Reply{Text: "done"}, true
		}
		next := uses[len(came)]
		next.ID = fmt.Sprintf("toolu_%d", len(came))
		return next, true
	}}
	for name, text := range map[string]string{"tools/nice": "#!/bin/sh\ntouch ran\n", "docs/HEAD": "ref: refs/heads/main\n", "docs/objects/x": "", "docs/refs/x": "",
		"go.mod":                     "module example.org/m\n\ngo 1.24\n",
		"m_test.go":                  "package m\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestJail(t *testing.T) {\n\t_, err := os.Stat(" + strconv.Quote(home) + ")\n\tt.Log(\"outside:\", err)\n}\n",
		"../me/go/pkg/mod/m@v1/m.go": "package m // a dependency\n", "../me/.claude/.credentials.json": `{"token":"sesame-open"}`,
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
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "bailey-shim"), "../bailey-shim").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bailey, kept := filepath.Join(bin, "bailey"), filepath.Join(top, "kept")
	if err := os.Link(bailey, kept); err != nil {
		t.Fatal(err)
	}
	run(project, nil, "git", "init", "-q")
	run(project, []string{"BAILEY_OPERATOR=1"}, bailey, "init", "--claude-code", "--yes")
	t.Cleanup(func() { run(project, []string{"BAILEY_OPERATOR=1"}, kept, "gateway", "stop") })
	said := run(project, nil, "claude", "-p", "go")
	if len(came) != len(uses) {
		t.Fatalf("%d of %d tools used: %v\n%s", len(came), len(uses), came, said)
	}
	for name, want := range map[string]bool{
		filepath.Join(project, "allowed"): true, filepath.Join(project, "redirected"): true, filepath.Join(project, "made/x/y"): true, filepath.Join(home, "outside"): false,
		filepath.Join(project, ".git/hooks/pre-commit"): false, filepath.Join(project, "asked"): false, filepath.Join(project, "denied"): false,
		filepath.Join(home, "tilde"): false, filepath.Join(home, "blank"): false, filepath.Join(project, "ran"): false, filepath.Join(project, "docs", "watched"): false,
	} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: there %v, want %v", name, err == nil, want)
		}
	}
	for n, want := range map[int]string{1: "outside the workspaces", 5: "operator-verb", 6: "No commits yet",
		11: "outside: stat " + home + ": no such file", 12: "", 13: "a dependency", 14: "contains the agent's credentials"} {
		if got := came[n]; !strings.Contains(got, want) {
			t.Errorf("%v came to %s, want %s", uses[n].Input, got, want)
		}
	}
	// If the program is missing, cannot be started or crashes, no tool may run either, even if Claude Code was told to
	// skip permissions. Claude Code then reports that the hook failed.
	secret := filepath.Join(home, "secret")
	if err := os.WriteFile(secret, []byte("sesame-open"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"gone":          func() error { return nil },
		"no program":    func() error { return os.WriteFile(bailey, []byte("x"), 0o644) },
		"crashes":       func() error { return os.WriteFile(bailey, []byte("#!/bin/sh\nkill -SEGV $$\n"), 0o755) },
		"says yes at 1": func() error { return os.WriteFile(bailey, []byte("#!/bin/sh\nexit 1\n"), 0o755) },
	} {
		os.Remove(bailey)
		if err := change(); err != nil {
			t.Fatal(err)
		}
		came, uses = nil, []scripted.Reply{{Tool: "Read", Input: map[string]any{"file_path": secret}}, shell("touch " + filepath.Join(project, "through"))}
		// Without IS_SANDBOX, Claude Code refuses this flag to root.
		run(project, []string{"IS_SANDBOX=1"}, "claude", "--dangerously-skip-permissions", "-p", "go")
		if _, err := os.Stat(filepath.Join(project, "through")); err == nil || len(came) != 2 || strings.Contains(strings.Join(came, ""), "sesame-open") {
			t.Errorf("%s: it went through: %v", name, came)
		}
		os.Remove(filepath.Join(project, "through"))
	}
}
