//go:build linux

package process

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey/internal/ktest"
	"bailey/internal/ktest/guestimage"
)

// addSandboxes builds bailey-host and gives the gateway an image.
func (m *team) addSandboxes() {
	m.t.Helper()
	build := exec.Command("go", "build", "-o", m.bin+"/", "../../../cmd/bailey-host")
	if out, err := build.CombinedOutput(); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
	guestimage.Put(m.t, m.home(), "debian")
	m.t.Cleanup(func() {
		stop := exec.Command(filepath.Join(m.bin, "bailey-host"), "stop")
		stop.Env = m.env()
		stop.Run()
	})
}

// apply writes settings and applies them.
func (m *team) apply(settings string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.home(), "settings.yaml"), []byte(settings), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if out, err := m.run("", "init", "--apply", "--yes"); err != nil {
		m.t.Fatalf("%v: %s", err, out)
	}
}

// teamCLI runs a command of bailey team with a token of the role.
func (m *team) teamCLI(role string, into any, args ...string) (string, error) {
	m.t.Helper()
	name := filepath.Join(m.dir, "token-"+role)
	if _, err := os.Stat(name); err != nil {
		var made struct{ Secret string }
		json.Unmarshal(m.ask("POST", m.org+"/tokens", map[string]any{"name": role, "role": role, "days": 1}), &made)
		if err := os.WriteFile(name, []byte(made.Secret), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	c := exec.CommandContext(m.t.Context(), filepath.Join(m.bin, "bailey"), append([]string{"team", "--json", "--server",
		strings.TrimSuffix(m.api, "/api/v1"), "--token-file", name}, args...)...)
	c.Env, c.Dir = m.env(), m.dir
	out, err := c.Output()
	if into != nil && err == nil {
		if err := json.Unmarshal(out, into); err != nil {
			m.t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	if exit, ok := err.(*exec.ExitError); ok {
		out = append(out, exit.Stderr...)
	}
	return string(out), err
}

type teamOperation struct {
	ID, State, Receipt string
	Result             struct{ Stdout, Error, Message string }
	Error              *struct{ Kind, Detail string }
}

// TestSandboxOfTeam creates a sandbox on an enrolled machine of sandboxes through a real server, uses it, kills the gateway
// during a command, and destroys the sandbox. The gateway's settings and policy refuse what they do not permit.
func TestSandboxOfTeam(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	ktest.Require(t, "qemu-system-x86_64")
	if err := guestimage.FindFiles(); err != nil {
		t.Skip(err)
	}
	m := newTeamOf(t, "host")
	m.addSandboxes()
	m.startGateway()
	m.eventually("the gateway connects", m.connected)
	var refused teamOperation
	if out, err := m.teamCLI("admin", nil, "sandboxes", "create", "debian"); err == nil || !strings.Contains(out, "has room") {
		t.Errorf("without the settings: %v %s", err, out)
	}
	rules := filepath.Join(m.dir, "rules")
	if out, err := m.run("", "policy", "init", rules); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ktest.Write(t, filepath.Join(rules, "team.cedar"), `@id("team-never-lists") @reason("a test")
forbid (principal == Agent::"@control-plane", action == Action::"sandbox.list", resource)
when { principal.person == "ada@example.com" && principal.roles.contains("admin") && principal.organisation != "" };
`)
	if out, err := m.run("", "policy", "apply", rules, "--yes"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m.apply("fleet: {calls: [sandbox.create, sandbox.exec, sandbox.destroy, sandbox.list]}\n")
	m.eventually("the server knows the capacity", func() bool {
		return strings.Contains(string(m.ask("GET", m.org+"/resources", nil)), `"images":["debian"]`)
	})
	if out, err := m.teamCLI("member", nil, "sandboxes", "create", "debian"); err == nil || !strings.Contains(out, "needs the role admin") {
		t.Errorf("as a member: %v %s", err, out)
	}
	var made struct {
		Operation teamOperation
		Sandbox   struct{ ID, Machine, State string }
	}
	if out, err := m.teamCLI("admin", &made, "sandboxes", "create", "debian", "--name", "team-box", "--memory", "128"); err != nil ||
		made.Sandbox.State != "running" {
		t.Fatalf("%v %s", err, out)
	}
	var ran teamOperation
	if out, err := m.teamCLI("admin", &ran, "sandboxes", "exec", made.Sandbox.ID, "--", "sh", "-c", "echo $((6*7))"); err != nil ||
		strings.TrimSpace(ran.Result.Stdout) != "42" || ran.Receipt == "" {
		t.Errorf("%v %s", err, out)
	}
	if out, err := m.teamCLI("admin", &refused, "sandboxes", "refresh", m.host); err == nil || !strings.Contains(out, "a test") {
		t.Errorf("a rule of the gateway: %v %s", err, out)
	}
	m.killDuringCommand(made.Sandbox.ID)
	if out, err := m.teamCLI("admin", nil, "sandboxes", "destroy", made.Sandbox.ID); err != nil {
		t.Errorf("%v %s", err, out)
	}
	var left struct{ Items []any }
	if out, err := m.teamCLI("member", &left, "sandboxes", "list"); err != nil || len(left.Items) != 0 {
		t.Errorf("%v %s", err, out)
	}
	if out, err := m.run("", "sandbox", "list"); err != nil || strings.Contains(out, "team-box") {
		t.Errorf("on the machine: %v %s", err, out)
	}
	m.eventually("the receipt is at the server", func() bool {
		return strings.Contains(string(m.ask("GET", m.org+"/receipts?receipt="+ran.Receipt, nil)), "sandbox.exec")
	})
}

// killDuringCommand kills the gateway while it makes a call: the outcome is unknown, and the command ran once.
func (m *team) killDuringCommand(sandbox string) {
	m.t.Helper()
	var begun teamOperation
	body := map[string]any{"command": []string{"sh", "-c", "echo x >>/ran; sleep 300"}}
	json.Unmarshal(m.ask("POST", m.org+"/sandboxes/"+sandbox+"/exec", body), &begun)
	m.eventually("the command runs", func() bool {
		var seen teamOperation
		m.teamCLI("admin", &seen, "sandboxes", "exec", sandbox, "--", "sh", "-c", "cat /ran 2>/dev/null; true")
		return strings.TrimSpace(seen.Result.Stdout) == "x"
	})
	crash(m.gateway)
	m.startGateway()
	var o teamOperation
	m.eventually("the server knows that the outcome is unknown", func() bool {
		json.Unmarshal(m.ask("GET", m.org+"/operations/"+begun.ID, nil), &o)
		return o.State == "unknown"
	})
	var seen teamOperation
	if out, err := m.teamCLI("admin", &seen, "sandboxes", "exec", sandbox, "--", "cat", "/ran"); err != nil ||
		strings.TrimSpace(seen.Result.Stdout) != "x" {
		m.t.Errorf("the command ran more than once: %v %s", err, out)
	}
}

// TestTeamCommands runs the other commands of bailey team against a real server and gateway: a source host that is not
// prepared, the list of operations, spending and budgets, which reach the gateway and stay there without the server.
func TestTeamCommands(t *testing.T) {
	t.Parallel()
	ktest.Long(t)
	m := newTeam(t)
	m.startGateway()
	m.eventually("the gateway connects", m.connected)
	if out, err := m.run("", "source", "add", "web-1", "--yes"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := m.teamCLI("admin", nil, "sources", "run", m.host, "web-1", "uptime"); err == nil || !strings.Contains(out, "do not permit") {
		t.Errorf("without the settings: %v %s", err, out)
	}
	m.apply("fleet: {calls: [source.run, source.read_file]}\n")
	var sources struct{ Items []struct{ Name, Host string } }
	m.eventually("the server knows the source host", func() bool {
		out, err := m.teamCLI("member", &sources, "sources", "list")
		if err != nil {
			t.Fatal(out)
		}
		return len(sources.Items) == 1 && sources.Items[0].Name == "web-1" && sources.Items[0].Host == m.host
	})
	if out, err := m.teamCLI("admin", nil, "sources", "run", m.host, "web-1", "uptime"); err == nil || !strings.Contains(out, "receipt") {
		t.Errorf("a host that is not prepared: %v %s", err, out)
	}
	var later, shown teamOperation
	if out, err := m.teamCLI("admin", &later, "sources", "read", m.host, "web-1", "/etc/motd", "--no-wait"); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if out, err := m.teamCLI("admin", &shown, "operations", "show", later.ID, "--wait"); err != nil || shown.State != "failed" || shown.Receipt == "" {
		t.Errorf("%v %s", err, out)
	}
	var all struct{ Items []teamOperation }
	if out, err := m.teamCLI("member", &all, "operations", "list", "--state", "failed"); err != nil || len(all.Items) < 2 {
		t.Errorf("%v %s", err, out)
	}
	kept := filepath.Join(m.home(), "team-budgets.json")
	var set struct{ ID string }
	if out, err := m.teamCLI("admin", &set, "budgets", "set", "--usd", "2.5"); err != nil || set.ID == "" {
		t.Errorf("%v %s", err, out)
	}
	m.eventually("the gateway knows the budget", func() bool {
		text, _ := os.ReadFile(kept)
		return strings.Contains(string(text), set.ID) && strings.Contains(string(text), "2500000")
	})
	for _, args := range [][]string{{"budgets", "list"}, {"spend", "--by", "person"}, {"budgets", "end", set.ID}} {
		if out, err := m.teamCLI("admin", nil, args...); err != nil {
			t.Errorf("%q: %v %s", args, err, out)
		}
	}
	m.eventually("the gateway knows that it has ended", func() bool {
		text, _ := os.ReadFile(kept)
		return !strings.Contains(string(text), set.ID)
	})
	if out, err := m.teamCLI("member", nil, "spend"); err == nil || !strings.Contains(out, "needs the role admin") {
		t.Errorf("as a member: %v %s", err, out)
	}
	if out, err := m.run("", "run", "system.echo", "-i", "message=hello"); err != nil {
		t.Errorf("afterwards: %v %s", err, out)
	}
	if strings.Contains(m.gateLog.String(), "panic") || strings.Contains(m.serverLog.String(), "panic") {
		t.Errorf("a process has a fault: %s %s", m.gateLog, m.serverLog)
	}
}
