//go:build linux

package load_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/audit"
	"bailey/internal/ktest"
	"bailey/test/scripted"
)

// TestSixClients makes calls with six third-party clients at once for the duration in BAILEY_LOAD (default 15s; 10m and
// 1h by hand, with a larger go test -timeout). The gateway is killed meanwhile: each minute in an hour, every few
// seconds in a shorter run. Each call creates a directory with a unique name. A directory that a client was told of
// must exist and be in the ledger, and every existing one must have been decided. No directory may be created twice,
// the gateway must not have grown, and no process may remain.
func TestSixClients(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a quarter of a minute: runs without -short")
	}
	length := 15 * time.Second
	if s := os.Getenv("BAILEY_LOAD"); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("BAILEY_LOAD: %v", err)
		}
	}
	ktest.Require(t, "node", "mcp-inspector-cli", "mcporter", "mcp-cli", "claude", "opencode")
	s := begin(t)
	m := s.marksYard()
	stop := make(chan struct{})
	var clients, rest sync.WaitGroup
	six := map[string]func(maker){
		"inspector": m.inspector, "mcporter": m.mcporter, "mcp-cli": m.mcpCLI, "typescript": m.typescript, "claude": m.claude, "opencode": m.opencode,
	}
	for name, run := range six {
		clients.Go(func() { run(maker{m, name, stop}) })
	}
	rest.Go(func() { s.killer(stop, min(max(length/10, 2*time.Second), time.Minute)) })
	rest.Go(func() { s.watch(stop) })
	time.Sleep(length)
	lacks := m.lacks(six)
	for end := time.Now().Add(2 * time.Minute); len(lacks) > 0 && time.Now().Before(end); lacks = m.lacks(six) {
		time.Sleep(time.Second) // agents start slowly on a busy machine
	}
	close(stop)
	clients.Wait()
	rest.Wait()
	if len(lacks) > 0 {
		t.Errorf("made nothing: %v", lacks)
	}
	s.settle()
	m.compare()
}

// marks are the directories that the calls of a test create.
type marks struct {
	*site
	made map[string]bool // names of calls, and whether the client was told that the directory was created
	n    int
	ends map[string][]bailey.Status // outcomes in the ledger, by name
}

// marksYard sets up the home for calls that create directories in its repository.
func (s *site) marksYard() *marks {
	for _, words := range [][]string{
		{"init", "--yes", s.repo}, {"pack", "install", "--dev", "testdata/marks", "--yes"}, {"policy", "init", filepath.Join(s.dir, "rules")},
	} {
		s.operator(words...)
	}
	rule, err := os.ReadFile("testdata/marks.cedar")
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "rules", "marks.cedar"), rule, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.operator("policy", "apply", filepath.Join(s.dir, "rules"), "--yes")
	return &marks{site: s, made: map[string]bool{}, ends: map[string][]bailey.Status{}}
}

func (s *site) operator(words ...string) {
	s.t.Helper()
	cmd := s.command(words...)
	cmd.Dir, cmd.Env = "", append(cmd.Env, "BAILEY_OPERATOR=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v\n%s", words, err, out)
	}
}

// next returns a new name for a call.
func (m *marks) next(client string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n++
	name := fmt.Sprintf("by-%s-%d", client, m.n)
	m.made[name] = false
	return name
}

// told records the result of a call.
func (m *marks) told(client, name, text string) {
	made := strings.Contains(text, "created directory") && strings.Contains(text, name)
	if made {
		m.count(client + " made")
	} else {
		m.count(client + " failed")
	}
	m.mu.Lock()
	m.made[name] = made
	m.mu.Unlock()
}

// compare compares the results that clients got, the existing directories and the ledger.
func (m *marks) compare() {
	segments, _ := filepath.Glob(filepath.Join(m.home, "ledger", "[0-9]*.jsonl"))
	names := map[bailey.ReceiptID]string{}
	for _, file := range segments {
		data, err := os.ReadFile(file)
		if err != nil {
			m.t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			m.entry(line, names)
		}
	}
	for name, told := range m.made {
		_, err := os.Stat(filepath.Join(m.repo, name))
		made, ends := err == nil, m.ends[name]
		switch {
		case told && !made:
			m.t.Errorf("%s was told and is not there", name)
		case told && (len(ends) != 1 || ends[0] != bailey.OK):
			m.t.Errorf("%s was told and is %v in the ledger", name, ends)
		case made && len(ends) == 0:
			m.t.Errorf("%s is there and in no ledger", name)
		}
		for _, end := range ends { // creating an existing directory again fails
			if end == bailey.Failed {
				m.t.Errorf("%s was run twice: %v", name, ends)
			}
		}
	}
}

// lacks returns the clients that have not created a directory yet.
func (m *marks) lacks(clients map[string]func(maker)) (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range clients {
		if m.did[name+" made"] == 0 {
			names = append(names, name)
		}
	}
	return names
}

func (m *marks) entry(line string, names map[bailey.ReceiptID]string) {
	var l struct {
		Entry struct {
			Kind string
			Data json.RawMessage
		}
	}
	json.Unmarshal([]byte(line), &l)
	switch l.Entry.Kind {
	case audit.KindIntent:
		var intent bailey.Intent
		var input struct{ Name string }
		if json.Unmarshal(l.Entry.Data, &intent) == nil && intent.Capability == "marks.make" && json.Unmarshal(intent.Input, &input) == nil {
			names[intent.Receipt] = input.Name
		}
	case audit.KindOutcome:
		var o bailey.Outcome
		if json.Unmarshal(l.Entry.Data, &o) == nil && names[o.Receipt] != "" {
			m.ends[names[o.Receipt]] = append(m.ends[names[o.Receipt]], o.Status)
		}
	}
}

// maker is one client of the test.
type maker struct {
	*marks
	client string
	stop   <-chan struct{}
}

func (c maker) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// program returns a command for a client's program in the project. It is killed if it takes longer than any call.
func (c maker) program(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	c.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = c.repo
	cmd.Env = append(c.env, "NO_COLOR=1", "PATH="+filepath.Dir(c.site.program)+":"+os.Getenv("PATH"))
	cmd.WaitDelay = time.Second
	return cmd
}

// each runs a program once for each call.
func (c maker) each(command func(name string) *exec.Cmd) {
	for !c.stopped() {
		name := c.next(c.client)
		out, _ := command(name).CombinedOutput() // clients differ in the exit code of a refused call
		c.told(c.client, name, string(out))
	}
}

// servers writes the configuration that most clients share, and returns its path.
func (c maker) servers() string {
	file := filepath.Join(c.dir, c.client+".json")
	// some clients pass no other variables on
	text := fmt.Appendf(nil, `{"mcpServers":{"bailey":{"command":%q,"args":["serve"],"env":{"BAILEY_HOME":%q}}}}`, c.site.program, c.home)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		c.t.Error(err)
	}
	return file
}

func (m *marks) inspector(c maker) {
	c.each(func(name string) *exec.Cmd {
		return c.program("mcp-inspector-cli", "--cli", m.program, "serve", "--method", "tools/call", "--tool-name", "marks_make", "--tool-arg", "dir="+m.repo, "--tool-arg", "name="+name)
	})
}

func (m *marks) mcporter(c maker) {
	servers := c.servers()
	c.each(func(name string) *exec.Cmd {
		return c.program("mcporter", "--config", servers, "call", "bailey.marks_make", "dir="+m.repo, "name="+name)
	})
}

func (m *marks) mcpCLI(c maker) {
	servers := c.servers()
	c.each(func(name string) *exec.Cmd {
		return c.program("mcp-cli", "--config", servers, "call-tool", "bailey:marks_make", "--args", fmt.Sprintf(`{"dir":%q,"name":%q}`, m.repo, name))
	})
}

// typescript makes some calls in one session, with the TypeScript library of the protocol.
func (m *marks) typescript(c maker) {
	at, err := exec.LookPath("mcporter")
	if err != nil {
		c.t.Error(err)
		return
	}
	dir := filepath.Join(c.dir, "typescript")
	script, err := os.ReadFile("testdata/session.mjs")
	if err == nil {
		err = os.Mkdir(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "session.mjs"), script, 0o600)
	}
	if err == nil { // npm installs libraries next to its programs
		err = os.Symlink(filepath.Dir(filepath.Dir(at)), filepath.Join(dir, "node_modules"))
	}
	if err != nil {
		c.t.Error(err)
		return
	}
	for !c.stopped() {
		cmd := c.program("node", filepath.Join(dir, "session.mjs"), m.program, "10")
		in, ierr := cmd.StdinPipe()
		out, oerr := cmd.StdoutPipe()
		if ierr != nil || oerr != nil || cmd.Start() != nil {
			c.t.Error("no node", ierr, oerr)
			return
		}
		for lines := bufio.NewScanner(out); !c.stopped(); {
			name := c.next(c.client)
			fmt.Fprintln(in, name)
			var came struct{ Name, Text string }
			if !lines.Scan() || json.Unmarshal(lines.Bytes(), &came) != nil || came.Name != name {
				c.told(c.client, name, "")
				break
			}
			c.told(c.client, name, came.Text)
			time.Sleep(100 * time.Millisecond) // this client is by far the fastest
		}
		in.Close()
		cmd.Wait()
	}
}

// perConversation is the number of calls that an agent makes before it is started again.
const perConversation = 12

// script starts a model that calls marks until the conversation is long enough.
func (c maker) script(prefix string) *httptest.Server {
	calls, asked := 0, ""
	server := httptest.NewServer(&scripted.Model{Prefix: prefix, Say: func(_ context.Context, now scripted.Turn) (scripted.Reply, bool) {
		if asked != "" && now.Answer.ID != "" {
			c.told(c.client, asked, now.Answer.Text)
		}
		asked = ""
		if calls++; calls%(perConversation+1) == 0 || c.stopped() {
			return scripted.Reply{Text: "That is all."}, true
		}
		asked = c.next(c.client)
		return scripted.Reply{ID: "toolu_" + asked, Tool: prefix + "marks_make", Input: map[string]any{"dir": c.repo, "name": asked}}, true
	}})
	c.t.Cleanup(server.CloseClientConnections)
	return server
}

// converse starts an agent repeatedly.
func (c maker) converse(command func() *exec.Cmd) {
	for !c.stopped() {
		if out, err := command().CombinedOutput(); err != nil && !c.stopped() {
			c.count(c.client + " ended otherwise")
			if len(out) > 0 {
				c.t.Logf("%s: %v: %.300s", c.client, err, out)
			}
		}
	}
}

func (m *marks) claude(c maker) {
	model, servers := c.script("mcp__bailey__"), c.servers()
	c.converse(func() *exec.Cmd {
		cmd := c.program("claude", "-p", "Make marks.", "--mcp-config", servers, "--strict-mcp-config", "--allowedTools", "mcp__bailey")
		cmd.Env = append(cmd.Env, "ANTHROPIC_BASE_URL="+model.URL, "ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ENABLE_TOOL_SEARCH=false", "DISABLE_AUTOUPDATER=1")
		return cmd
	})
}

func (m *marks) opencode(c maker) {
	model := c.script("bailey_")
	settings, err := json.Marshal(map[string]any{
		"autoupdate": false, "share": "disabled", "model": "scripted/m", "small_model": "scripted/m", "permission": map[string]any{"*": "allow"},
		"provider": map[string]any{"scripted": map[string]any{"npm": "@ai-sdk/anthropic", "options": map[string]any{"baseURL": model.URL + "/v1", "apiKey": "none"},
			"models": map[string]any{"m": map[string]any{"tool_call": true, "limit": map[string]any{"context": 100_000, "output": 1000}}}}},
		"mcp": map[string]any{"bailey": map[string]any{"type": "local", "command": []string{m.program, "serve"}}},
	})
	if err != nil {
		c.t.Error(err)
	}
	c.converse(func() *exec.Cmd {
		cmd := c.program("opencode", "run", "Make marks.")
		cmd.Env = append(cmd.Env, "OPENCODE_CONFIG_CONTENT="+string(settings), "XDG_CONFIG_HOME=", "XDG_DATA_HOME=", "XDG_CACHE_HOME=", "XDG_STATE_HOME=")
		return cmd
	})
}
