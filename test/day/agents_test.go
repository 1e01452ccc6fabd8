//go:build linux

package day

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey/internal/ktest"
	"bailey/test/scripted"
)

// An agent makes the calls of the scenario.
type agent interface {
	tools() []string                                        // offered tools, by Bailey's names
	call(tool string, input map[string]any) scripted.Answer // makes one call and returns its result
	leave()
}

// prefix is the prefix that Claude Code gives to the tools of the server "bailey".
const prefix = "mcp__bailey__"

// claude is Claude Code with a scripted model.
type claude struct {
	t       *testing.T
	u       *user
	model   *model
	cmd     *exec.Cmd
	out     *bytes.Buffer
	gone    chan error
	offered []string
	calls   int
}

// hireClaude makes Bailey configure Claude Code, and starts a conversation.
func hireClaude(t *testing.T, u *user) agent {
	ktest.Require(t, "claude", "node")
	if out, err := u.command(u.home, "claude", "--version").CombinedOutput(); err != nil {
		ktest.Missing(t, "claude", fmt.Errorf("as %s: %v: %s", u.name, err, out))
	}
	c := &claude{t: t, u: u, model: newModel(t), out: &bytes.Buffer{}, gone: make(chan error, 1)}
	c.init("--yes")
	c.cmd = u.command(u.project, "claude", "-p", "Look after this project.", "--allowedTools", "mcp__bailey")
	c.cmd.Env = append(c.cmd.Env, "ANTHROPIC_BASE_URL="+c.model.url, "ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"ENABLE_TOOL_SEARCH=false", "DISABLE_AUTOUPDATER=1")
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.gone <- c.cmd.Wait() }()
	t.Cleanup(func() { c.cmd.Process.Kill() })
	for _, name := range c.hear(patience).Tools {
		if name, ok := strings.CutPrefix(name, prefix); ok {
			c.offered = append(c.offered, name)
		}
	}
	return c
}

func (c *claude) hear(wait time.Duration) scripted.Turn {
	c.t.Helper()
	select {
	case now := <-c.model.heard:
		return now
	case err := <-c.gone:
		c.t.Fatalf("claude ended: %v\n%s", err, c.out)
	case <-time.After(wait):
		c.t.Fatal("claude says nothing")
	}
	return scripted.Turn{}
}

func (c *claude) tools() []string { return c.offered }

func (c *claude) call(tool string, input map[string]any) scripted.Answer {
	c.t.Helper()
	c.calls++
	c.model.says <- scripted.Reply{ID: fmt.Sprintf("toolu_%04d", c.calls), Tool: prefix + tool, Input: input}
	return c.hear(patienceFor(tool)).Answer
}

// init writes the configuration of Claude Code for the project, or removes it.
func (c *claude) init(flags ...string) {
	c.t.Helper()
	cmd := c.u.command(c.u.project, "bailey", append([]string{"init", "--claude-code"}, flags...)...)
	cmd.Env = append(cmd.Env, "BAILEY_OPERATOR=1") // no terminal is available
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("init %v: %v\n%s", flags, err, out)
	}
}

func (c *claude) leave() {
	c.t.Helper()
	c.model.says <- scripted.Reply{Text: "That was the day."}
	select {
	case err := <-c.gone:
		if err != nil || !strings.Contains(c.out.String(), "That was the day.") {
			c.t.Errorf("claude ended with %v\n%s", err, c.out)
		}
	case <-time.After(patience):
		c.t.Fatal("claude does not end")
	}
	c.init("--undo", "--yes")
	if left, err := os.ReadFile(filepath.Join(c.u.project, ".mcp.json")); err == nil && strings.Contains(string(left), "bailey") {
		c.t.Errorf("after --undo the project still connects: %s", left)
	}
}

// plainClient is the client of the MCP SDK, without a model. It starts `bailey serve` in a home that was not set up.
type plainClient struct {
	t       *testing.T
	session *mcp.ClientSession
}

func hireClient(t *testing.T, u *user) agent {
	client := mcp.NewClient(&mcp.Implementation{Name: "a client", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: u.command(u.project, "bailey", "serve")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &plainClient{t, session}
}

func (p *plainClient) tools() (names []string) {
	list, err := p.session.ListTools(p.t.Context(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (p *plainClient) call(tool string, input map[string]any) scripted.Answer {
	ctx, cancel := context.WithTimeout(p.t.Context(), patienceFor(tool))
	defer cancel()
	res, err := p.session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: input})
	if err != nil {
		return scripted.Answer{Text: err.Error(), Bad: true}
	}
	content, err := json.Marshal(res.Content)
	if err != nil {
		p.t.Fatal(err)
	}
	return scripted.Answer{Text: scripted.Plain(content), Bad: res.IsError}
}

func (p *plainClient) leave() { p.session.Close() }
