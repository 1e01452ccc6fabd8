//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
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
	"time"

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

func newModelBench(t *testing.T, start func(http.Handler) *httptest.Server) *modelBench {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &modelBench{T: t, dir: dir, project: filepath.Join(dir, "project"), program: filepath.Join(dir, "bailey")}
	m.config = filepath.Join(m.project, "config.txt")
	m.provider = &countingProvider{Model: &scripted.Model{Say: scriptedEdit(m.config, &m.read)}}
	server := start(m.provider)
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
	if c := server.Certificate(); c != nil {
		m.trust(c.Raw)
	}
	m.run("init", "--apply", "--yes")
	t.Cleanup(func() { m.run("gateway", "stop") })
	return m
}

// trust starts the gateway so that it trusts a certificate. A gateway that a client starts does not get such variables.
func (m *modelBench) trust(certificate []byte) {
	m.Helper()
	ca := filepath.Join(m.dir, "ca.pem")
	gateway := exec.Command(m.program, "gateway")
	gateway.Dir, gateway.Env = m.project, append(m.env, "SSL_CERT_FILE="+ca)
	err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600)
	if err == nil {
		err = gateway.Start()
	}
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { gateway.Process.Kill(); gateway.Wait() })
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(m.dir, "home", "gateway.sock")); err == nil || time.Now().After(deadline) {
			return
		}
	}
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

// TestTrap26ClaudeThroughModelProxy runs the real Claude Code over a base URL: the provider behind the proxy sees neither the
// secret nor the session's bearer, and an edit of a redacted line changes the file.
func TestTrap26ClaudeThroughModelProxy(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "claude", "git")
	m := newModelBench(t, httptest.NewServer)
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
	m := newModelBench(t, httptest.NewServer)
	m.env = append(m.env, "ANTHROPIC_BASE_URL="+m.url, "ANTHROPIC_API_KEY=sk-ant-never-used")
	reach := strings.TrimPrefix(m.url, "http://") + ",private,plain"
	m.check(m.run("wrap", "--yes", "--egress", reach, "--", "claude", "-p", "--allowedTools", "Read,Edit", "--", "change the port"))
}

// TestWrapModelOverTLS checks that a client in the agent jail that connects to the provider by TLS reaches the model proxy,
// under the provider's own name, and that the provider gets the key of the settings.
func TestWrapModelOverTLS(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "userns", "netns", "landlock", "curl", "git")
	m := newModelBench(t, httptest.NewTLSServer)
	reach := strings.TrimPrefix(m.url, "https://") + ",private,noSNI"
	ask := func(path, body string) string {
		return m.run("wrap", "--yes", "--egress", reach, "--", "curl", "-sS", m.url+path, "-H", "x-api-key: sk-mine", "-d", body)
	}
	if out := ask("/v1/messages", `{"model":"m","messages":[{"role":"user","content":"password=`+modelSecret+`"}]}`); !strings.Contains(out, "nothing to add") {
		t.Error(out)
	}
	if out := ask("/v1/telemetry", `{"text":"`+modelSecret+`"}`); !strings.Contains(out, "does not know POST /v1/telemetry") {
		t.Error(out)
	}
	m.provider.mu.Lock()
	defer m.provider.mu.Unlock()
	if m.provider.requests != 1 || len(m.provider.faults) > 0 {
		t.Errorf("%d requests, %q", m.provider.requests, m.provider.faults)
	}
}

// startModel starts the proxy for a session of its own, and returns its variables.
func (m *modelBench) startModel() map[string]string {
	m.Helper()
	serve := exec.Command(m.program, "model", "start", "--json")
	serve.Dir, serve.Env = m.project, m.env
	pipe, err := serve.StdoutPipe()
	if err == nil {
		err = serve.Start()
	}
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { serve.Process.Kill(); serve.Wait() })
	var served struct{ Env map[string]string }
	if err := json.NewDecoder(pipe).Decode(&served); err != nil {
		m.Fatal(err)
	}
	return served.Env
}

// ask sends a message through the proxy, and returns the answer.
func (m *modelBench) ask(env map[string]string, text string) string {
	m.Helper()
	body, err := json.Marshal(map[string]any{"model": "m", "stream": true, "tools": []any{map[string]any{"name": "Write"}},
		"messages": []any{map[string]any{"role": "user", "content": text}}})
	if err != nil {
		m.Fatal(err)
	}
	r, err := http.NewRequest("POST", env["ANTHROPIC_BASE_URL"]+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		m.Fatal(err)
	}
	r.Header.Set("X-Api-Key", env["ANTHROPIC_AUTH_TOKEN"])
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		m.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		m.Fatal(err)
	}
	return string(out)
}

// judgeCommand has the agent's hook judge a command line.
func (m *modelBench) judgeCommand(env map[string]string, command string) {
	m.Helper()
	event, err := json.Marshal(map[string]any{"hook_event_name": "PreToolUse", "tool_name": "Bash", "cwd": m.project,
		"tool_input": map[string]any{"command": command}})
	if err != nil {
		m.Fatal(err)
	}
	cmd := exec.Command(m.program, "judge", "claude-code")
	cmd.Dir, cmd.Env, cmd.Stdin = m.project, append(m.env, "BAILEY_SESSION="+env["BAILEY_SESSION"]), bytes.NewReader(event)
	if out, err := cmd.CombinedOutput(); err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
}

// TestTrap12OneTokenMap checks that the agent's hook and the model proxy share the token map of their session: the proxy
// restores a token that the hook made. It leaves the token of another session.
func TestTrap12OneTokenMap(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	ktest.Require(t, "git")
	m := newModelBench(t, httptest.NewServer)
	m.provider.Model.Say = func(_ context.Context, now scripted.Turn) (scripted.Reply, bool) {
		return scripted.Reply{ID: "toolu_1", Tool: "Write", Input: map[string]any{"file_path": m.config,
			"content": "host=[REDACTED_IPV4_1]"}}, true
	}
	own, other := m.startModel(), m.startModel()
	m.judgeCommand(own, "ping -c 1 "+modelHost)
	if out := m.ask(own, "which address?"); !strings.Contains(out, "host="+modelHost) {
		t.Errorf("the proxy did not restore what the hook hid: %s", out)
	}
	if out := m.ask(other, "which address?"); strings.Contains(out, modelHost) || !strings.Contains(out, "[REDACTED_IPV4_1]") {
		t.Errorf("another session's token was restored: %s", out)
	}
	m.ask(other, "now with 10.20.30.41") // the first address of that session
	m.judgeCommand(other, "ping -c 1 "+modelHost)
	if out := m.run("receipts", "export"); !strings.Contains(out, "[REDACTED_IPV4_2]") || strings.Contains(out, modelHost) {
		t.Errorf("the hook does not have the tokens of the proxy: %s", out)
	}
	if len(m.provider.faults) > 0 {
		t.Error(m.provider.faults)
	}
}
