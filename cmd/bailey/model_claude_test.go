//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"bailey/internal/ktest"
	"bailey/test/scripted"
)

const (
	modelSecret = "kd83hHsk29xlPq0w"
	modelHost   = "10.20.30.40"
	modelKey    = "sk-ant-key-of-the-provider-0123456789"
)

// countingProvider stands behind the model proxy. It looks for what must not arrive there.
type countingProvider struct {
	*scripted.Model
	mu       sync.Mutex
	requests int
	faults   []string
}

func (c *countingProvider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.mu.Lock()
	c.requests++
	header := fmt.Sprint(r.Header)
	for _, bad := range []string{modelSecret, modelHost, "bs-"} {
		if strings.Contains(string(body), bad) || strings.Contains(header, bad) {
			c.faults = append(c.faults, fmt.Sprintf("%s %s has %q", r.Method, r.URL, bad))
		}
	}
	if r.Header.Get("X-Api-Key") != modelKey {
		c.faults = append(c.faults, fmt.Sprintf("%s %s has the key %q", r.Method, r.URL, r.Header.Get("X-Api-Key")))
	}
	c.mu.Unlock()
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.Model.ServeHTTP(w, r)
}

// scriptedEdit has the agent read a file with a secret and an address, and change the line with the address. read gets what
// the model was told of the file.
func scriptedEdit(config string, read *string) func(context.Context, scripted.Turn) (scripted.Reply, bool) {
	address := regexp.MustCompile(`\[REDACTED_IPV4_\d+\]`)
	step := 0
	return func(_ context.Context, now scripted.Turn) (scripted.Reply, bool) {
		step++
		switch step {
		case 1:
			return scripted.Reply{ID: "toolu_1", Tool: "Read", Input: map[string]any{"file_path": config}}, true
		case 2:
			*read = now.Answer.Text
			token := address.FindString(now.Answer.Text)
			return scripted.Reply{ID: "toolu_2", Tool: "Edit", Input: map[string]any{"file_path": config,
				"old_string": "host=" + token + ":1", "new_string": "host=" + token + ":2"}}, true
		}
		return scripted.Reply{Text: "done: " + now.Answer.Text}, true
	}
}

// modelBench is a home whose settings name a provider that the test serves.
type modelBench struct {
	*testing.T
	dir, project, program, config string
	env                           []string
	provider                      *countingProvider
	url                           string
	read                          string
}

func newModelBench(t *testing.T) *modelBench {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &modelBench{T: t, dir: dir, project: filepath.Join(dir, "project"), program: filepath.Join(dir, "bailey")}
	m.config = filepath.Join(m.project, "config.txt")
	m.provider = &countingProvider{Model: &scripted.Model{Say: scriptedEdit(m.config, &m.read)}}
	server := httptest.NewServer(m.provider)
	t.Cleanup(server.Close)
	m.url = server.URL
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(dir, "home")
	for _, step := range []func() error{
		func() error { return os.Symlink(self, m.program) },
		func() error { return os.MkdirAll(filepath.Join(dir, "me"), 0o700) },
		func() error { return os.MkdirAll(m.project, 0o700) },
		func() error { return os.MkdirAll(home, 0o700) },
		func() error {
			return os.WriteFile(m.config, []byte("password="+modelSecret+"\nhost="+modelHost+":1\n"), 0o600)
		},
		func() error { return os.WriteFile(filepath.Join(dir, "key"), []byte(modelKey), 0o600) },
		func() error {
			return os.WriteFile(filepath.Join(home, "settings.yaml"), []byte("workspaces: []\nmodel:\n  wrap: true\n  providers:\n    - {name: anthropic, url: \""+
				m.url+"\", keyFile: "+filepath.Join(dir, "key")+"}\n"), 0o600)
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	m.env = append(os.Environ(), "HOME="+filepath.Join(dir, "me"), "BAILEY_HOME="+home, "BAILEY_OPERATOR=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ANTHROPIC_API_KEY=", "ANTHROPIC_AUTH_TOKEN=")
	m.run("init", "--apply", "--yes")
	t.Cleanup(func() { m.run("gateway", "stop") })
	return m
}

func (m *modelBench) run(args ...string) string {
	m.Helper()
	return m.runProgram(m.program, nil, args...)
}

func (m *modelBench) runProgram(program string, env []string, args ...string) string {
	m.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = m.project, append(m.env, env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// check examines what the model was told, what it received, what became of the file, and the receipts.
func (m *modelBench) check(out string) {
	m.Helper()
	m.provider.mu.Lock()
	defer m.provider.mu.Unlock()
	if m.provider.requests < 3 || len(m.provider.faults) > 0 {
		m.Errorf("%d requests, %q", m.provider.requests, m.provider.faults)
	}
	if !strings.Contains(m.read, "[REDACTED_PASSWORD_") {
		m.Errorf("the model was told %q", m.read)
	}
	text, err := os.ReadFile(m.config)
	if want := "password=" + modelSecret + "\nhost=" + modelHost + ":2\n"; err != nil || string(text) != want {
		m.Errorf("the file is %q, %v; the agent said %q", text, err, out)
	}
	var page struct {
		Records []struct {
			Outcome struct {
				Status string `json:"outcome"`
				Model  struct{ Tools []string }
			}
		} `json:"records"`
	}
	if err := json.Unmarshal([]byte(m.run("model", "log", "--json")), &page); err != nil {
		m.Fatal(err)
	}
	tools := ""
	for _, r := range page.Records {
		if r.Outcome.Status != "ok" {
			m.Errorf("a request ended as %q", r.Outcome.Status)
		}
		tools += strings.Join(r.Outcome.Model.Tools, " ") + " "
	}
	if !strings.Contains(tools, "Read") || !strings.Contains(tools, "Edit") {
		m.Errorf("the receipts name the tools %q", tools)
	}
}

// TestClaudeThroughModelProxy runs the real Claude Code over a base URL: the provider behind the proxy sees neither the
// secret nor the session's bearer, and an edit of a redacted line changes the file.
func TestClaudeThroughModelProxy(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "claude", "git")
	m := newModelBench(t)
	serve := exec.Command(m.program, "model", "start", "--json")
	serve.Dir, serve.Env = m.project, m.env
	pipe, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { serve.Process.Kill(); serve.Wait() })
	var served struct{ Env map[string]string }
	if err := json.NewDecoder(pipe).Decode(&served); err != nil {
		t.Fatal(err)
	}
	var env []string
	for name, value := range served.Env {
		env = append(env, name+"="+value)
	}
	m.check(m.runProgram("claude", env, "-p", "--allowedTools", "Read,Edit", "--", "change the port"))
}

// TestWrapClaudeThroughModelProxy does the same in the agent jail, where the agent has neither the key nor the bearer.
func TestWrapClaudeThroughModelProxy(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "landlock", "claude", "git")
	m := newModelBench(t)
	m.env = append(m.env, "ANTHROPIC_BASE_URL="+m.url, "ANTHROPIC_API_KEY=sk-ant-never-used")
	reach := strings.TrimPrefix(m.url, "http://") + ",private,plain"
	m.check(m.run("wrap", "--yes", "--egress", reach, "--", "claude", "-p", "--allowedTools", "Read,Edit", "--", "change the port"))
}
