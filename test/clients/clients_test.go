//go:build linux

// Package clients connects third-party MCP clients to `bailey serve` as their documentation says, and makes calls with
// them. If a client is not installed, its test is skipped and names it.
package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
)

// clients are programs from npm. The output of each must contain every text of its steps.
var clients = []struct {
	name  string
	files map[string]string // its configuration files in the project; %s is the installed program
	init  string            // the flag of bailey init that writes the configuration
	steps []step
}{
	{"mcp-inspector-cli", nil, "", []step{
		{[]string{"--cli", "%s", "serve", "--method", "tools/list"}, []string{`"git_log"`, `"system_echo"`}},
		{[]string{"--cli", "%s", "serve", "--method", "tools/call", "--tool-name", "git_log", "--tool-arg", "repo=."}, []string{"the first commit"}},
		{[]string{"--cli", "%s", "serve", "--method", "tools/call", "--tool-name", "git_log", "--tool-arg", "repo=/etc"}, []string{" is outside the workspace ", `"isError": true`}},
	}},
	{"mcporter", map[string]string{"mcporter.json": servers}, "", []step{
		{[]string{"--config", "mcporter.json", "list", "bailey"}, []string{"git_log", " tools"}},
		{[]string{"--config", "mcporter.json", "call", "bailey.git_log", "repo=.", "limit=3"}, []string{"the first commit"}},
		{[]string{"--config", "mcporter.json", "call", "bailey.git_log", "repo=/etc"}, []string{" is outside the workspace ", `"hint"`}},
	}},
	{"mcp-cli", map[string]string{"servers.json": servers}, "", []step{
		{[]string{"--config", "servers.json", "call-tool", "bailey:git_log", "--args", `{"repo":"."}`}, []string{"the first commit"}},
		{[]string{"--config", "servers.json", "call-tool", "bailey:git_log", "--args", `{"repo":"/etc"}`}, []string{" is outside the workspace "}},
	}},
	// opencode has no command that calls a tool without a model: it connects and lists.
	{"opencode", nil, "--opencode", []step{
		{[]string{"mcp", "list"}, []string{"bailey", "connected"}},
	}},
}

type step struct {
	args  []string
	tells []string
}

// servers is the configuration that most clients share.
const servers = `{"mcpServers":{"bailey":{"command":"%s","args":["serve"]}}}`

func TestClients(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "userns", "netns", "git", "go")
	p := newProject(t)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			ktest.Require(t, c.name)
			for name, text := range c.files {
				if err := os.WriteFile(filepath.Join(p.dir, name), fmt.Appendf(nil, text, p.program), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.init != "" {
				cmd := p.command(p.program, "init", c.init, "--yes")
				cmd.Env = append(cmd.Env, "BAILEY_OPERATOR=1")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("init %s: %v\n%s", c.init, err, out)
				}
			}
			for _, s := range c.steps {
				p.step(t, c.name, s)
			}
		})
	}
}

// project is a repository with one commit, a home and an installed program.
type project struct {
	dir, program string
	env          []string
}

func newProject(t *testing.T) *project {
	t.Helper()
	if testing.Short() {
		t.Skip("installs the program: runs without -short")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	me := filepath.Join(root, "me")
	p := &project{dir: filepath.Join(me, "project"), program: filepath.Join(me, "bin", "bailey")}
	p.env = append(os.Environ(), "HOME="+me, "BAILEY_HOME=", "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "XDG_CACHE_HOME=", "XDG_STATE_HOME=",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b", "NO_COLOR=1")
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	install := exec.Command("go", "install", "-trimpath", "-buildvcs=false", "./cmd/bailey")
	install.Dir, install.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOBIN="+filepath.Dir(p.program))
	for _, cmd := range []*exec.Cmd{install, p.command("git", "init", "-q"), p.command("git", "commit", "-q", "--allow-empty", "-m", "the first commit")} {
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	t.Cleanup(func() { // waits, because a gateway that still writes would prevent the removal of the home
		if out, err := p.command(p.program, "gateway", "stop").CombinedOutput(); err != nil {
			t.Errorf("bailey gateway stop: %v\n%s", err, out)
		}
	})
	return p
}

func (p *project) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	return cmd
}

// step runs a client once. Clients differ in the exit code of a refused call, so only the output is checked.
func (p *project) step(t *testing.T, name string, s step) {
	t.Helper()
	var args []string
	for _, a := range s.args {
		args = append(args, strings.ReplaceAll(a, "%s", p.program))
	}
	out, err := p.command(name, args...).CombinedOutput()
	for _, tell := range s.tells {
		if !strings.Contains(string(out), tell) {
			t.Errorf("%s %v (%v) does not tell %q: %s", name, args, err, tell, out)
		}
	}
}
