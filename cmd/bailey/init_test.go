//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"bailey/internal/ktest"
	"bailey/internal/localapi/apitype"
)

// TestInitOffersPolicies checks that init at a terminal offers the policies to begin with, and shows and applies the chosen
// one after a second yes. A no keeps the built-in policy and leaves no files.
func TestInitOffersPolicies(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	policy := filepath.Join(string(y.home), "policy")
	said, code := y.conversation(t, []string{"init", y.repo}, "Write this? [y/N] ", "work\n", "Apply this policy? [y/N] ", "n\n")
	if _, err := os.Stat(policy); code != apitype.ExitDenied || err == nil || !strings.Contains(said, "\n  push  work and push to branches: ") {
		t.Errorf("no: %d, %v, %s", code, err, said)
	}
	other := filepath.Join(filepath.Dir(y.repo), "other")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	said, code = y.conversation(t, []string{"init", other}, "Write this? [y/N] ", "WORK\r", "Apply this policy? [y/N] ", "y\n")
	if _, err := os.Stat(filepath.Join(policy, "work.cedar")); code != 0 || err != nil || !strings.Contains(said, "\npolicy: work, ") ||
		!strings.Contains(said, "\n  allow  change           it changes only the workspace\n") {
		t.Errorf("yes: %d, %v, %s", code, err, said)
	}
	third := filepath.Join(filepath.Dir(y.repo), "third")
	if err := os.Mkdir(third, 0o755); err != nil {
		t.Fatal(err)
	}
	if said, code = y.dialog(t, "", "y\n", "init", third); code != 0 || strings.Contains(said, "work and push") {
		t.Errorf("a home with a policy: %d, %s", code, said)
	}
}

// TestInitAsks checks that the question appears on the terminal, and that only y or yes and Enter mean yes.
func TestInitAsks(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	settings := filepath.Join(string(y.home), "settings.yaml")
	for _, c := range []struct {
		name, early, keys string
	}{
		{name: "Enter", keys: "\n"}, {name: "n", keys: "n\n"}, {name: "no", keys: "no\r"}, {name: "Escape", keys: "\x1b"}, {name: "an arrow", keys: "\x1b[A"},
		{name: "end of the input", keys: "\x04"}, {name: "something else", keys: "yep\n"}, {name: "taken back", keys: "y\x7f\n"}, {name: "not a letter", keys: "y\x00\n"},
		{name: "too long", keys: strings.Repeat("y", 5000) + "\n"},
		{name: "hung up", keys: hangUp}, {name: "interrupted", keys: interrupt}, {name: "typed ahead", early: "y\n", keys: "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, code := y.dialog(t, c.early, c.keys, "init", y.repo)
			signal := c.keys == hangUp || c.keys == interrupt
			if code != apitype.ExitDenied && !signal || code == apitype.ExitOK || c.keys == interrupt && code != 130 {
				t.Errorf("exit code %d\n%s", code, said)
			}
			if !signal && (!strings.Contains(said, `+   - "`+y.repo+`"`) || !strings.Contains(said, "nothing was changed")) {
				t.Errorf("said %s", said)
			}
			if _, err := os.Stat(settings); err == nil {
				t.Fatal("No is written as Yes")
			}
		})
	}
	if said, code := y.dialog(t, "", "Yes\n", "init", y.repo); code != apitype.ExitOK || !strings.Contains(said, "workspaces of") {
		t.Errorf("yes: %d, %s", code, said)
	}
	if text, err := os.ReadFile(settings); err != nil || !strings.Contains(string(text), y.repo) {
		t.Errorf("%s, %v", text, err)
	}
	if said, code := y.dialog(t, "", "y\n", "init", "--claude-code", y.repo); code != apitype.ExitOK || !strings.Contains(said, "claude-code: ") {
		t.Errorf("y: %d, %s", code, said)
	}
	ledger, err := os.ReadFile(filepath.Join(y.home.Ledger(), "00000001.jsonl"))
	if err != nil || !bytes.Contains(ledger, []byte(`"kind":"settings.apply"`)) || !bytes.Contains(ledger, []byte(`"operator":"terminal"`)) {
		t.Errorf("the ledger does not say that it was a terminal: %v\n%s", err, ledger)
	}
}

// TestApproveAsks checks that the complete question is on the terminal before the prompt, and that only y or yes and
// Enter grant it.
func TestApproveAsks(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	rules := filepath.Join(filepath.Dir(y.repo), "rules")
	y.must(y.program, "policy", "init", rules)
	if err := os.WriteFile(filepath.Join(rules, "dates.cedar"), []byte(asksForDates), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, code := y.dialog(t, "", "y\n", "policy", "apply", rules); code != apitype.ExitOK {
		t.Fatalf("%d, %s", code, said)
	}
	call, out := y.run(y.repo, "run", "--wait", "system.date")
	var id string
	y.await("the call to ask", func() bool {
		id, _, _ = strings.Cut(y.must(y.program, "approvals", "list"), " ")
		return strings.HasPrefix(id, "a-")
	})
	for _, keys := range []string{"\n", "\x1b", "n\n", "\x04", "sure\n"} {
		said, code := y.dialog(t, "", keys, "approve", id)
		if code != apitype.ExitDenied || !strings.Contains(said, "effect    system.date: ") || !strings.Contains(said, "\nrequires  1 answer\n") || !strings.Contains(said, "Grant this? [y/N]") {
			t.Errorf("%q: %d, %s", keys, code, said)
		}
	}
	said, code := y.conversation(t, []string{"approve", id}, "Grant this? [y/N] ", "d\n", "Grant this? [y/N] ", "y\n")
	if first, details, _ := strings.Cut(said, "Grant this? [y/N] d"); code != apitype.ExitOK || !strings.Contains(said, "approved") ||
		!strings.Contains(first, "effect    system.date: ") || strings.Contains(first, "bailey approval 1") || !strings.Contains(details, "bailey approval 1") {
		t.Errorf("y: %d, %s", code, said)
	}
	if err := call.Wait(); err != nil || !strings.Contains(out.String(), "\n20") {
		t.Errorf("%v, %s", err, out)
	}
}

// TestAgentsReachNoOperatorVerb checks that no MCP tool or method runs an operator command.
func TestAgentsReachNoOperatorVerb(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	y := newYard(t)
	cmd := y.command(y.program, "serve")
	cmd.Dir = y.repo
	var lines strings.Builder
	for i, m := range []string{
		`"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}`,
		`"tools/list"`, `"tools/call","params":{"name":"apply","arguments":{"base":"","text":"workspaces: [/tmp]"}}`,
		`"tools/call","params":{"name":"init","arguments":{}}`, `"apply","params":{"base":"","text":""}`, `"settings"`,
		`"tools/call","params":{"name":"jail.run","arguments":{"run":{"argv":["id"]}}}`, `"tools/call","params":{"name":"jail_run","arguments":{}}`,
		`"jail.run","params":{"run":{"argv":["id"],"planDigest":"d"}}`, `"cage"`,
		`"tools/call","params":{"name":"redact","arguments":{"mode":"restore"}}`, `"tools/call","params":{"name":"redact.restore","arguments":{}}`,
		`"redact","params":{"mode":"restore"}`, `"redact.restore","params":{}`, `"redactions"`,
		`"tools/call","params":{"name":"policy.apply","arguments":{"dir":""}}`, `"policy.apply","params":{"dir":""}`, `"policy.compare","params":{"dir":"/tmp"}`,
		`"tools/call","params":{"name":"resume","arguments":{}}`, `"tools/call","params":{"name":"approvals.serve","arguments":{}}`, `"approvals.serve"`, `"session"`, `"resume"`, `"kill"`, `"policy.show"`, `"budget"`,
		`"tools/call","params":{"name":"pack.install","arguments":{"path":"/tmp","dev":true}}`, `"pack.install","params":{"path":"/tmp","dev":true}`, `"pack.compare","params":{"path":"/tmp","dev":true}`,
		`"pack.trust","params":{"key":"x"}`, `"pack.untrust","params":{"name":"x"}`, `"pack.uninstall","params":{"name":"x"}`, `"pack.publish"`, `"pack.keys"`, `"packs"`,
	} {
		fmt.Fprintf(&lines, `{"jsonrpc":"2.0","id":%d,"method":%s}`+"\n", i+1, m)
	}
	cmd.Stdin = strings.NewReader(lines.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := 0
	for line := range strings.Lines(string(out)) {
		var a struct {
			ID     int             `json:"id"`
			Error  json.RawMessage `json:"error"`
			Result struct {
				IsError bool `json:"isError"`
				Tools   []struct{ Name string }
			} `json:"result"`
		}
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		answers++
		if a.ID > 2 && a.Error == nil && !a.Result.IsError {
			t.Errorf("an agent reached %s", line)
		}
		for _, tool := range a.Result.Tools {
			if slices.Contains([]string{"git", "cargo", "go", "npm", "terraform", "kubectl", "helm"}, strings.Split(tool.Name, "_")[0]) {
				continue // these tools have commands of such names, as git apply and npm init
			}
			if strings.Contains(tool.Name, "init") || strings.Contains(tool.Name, "apply") || strings.Contains(tool.Name, "settings") || strings.Contains(tool.Name, "jail") ||
				strings.Contains(tool.Name, "redact") || strings.Contains(tool.Name, "restore") || strings.Contains(tool.Name, "policy") ||
				strings.Contains(tool.Name, "kill") || strings.Contains(tool.Name, "resume") || strings.Contains(tool.Name, "budget") || strings.Contains(tool.Name, "pack") {
				t.Errorf("tool %s", tool.Name)
			}
		}
	}
	if answers != 35 {
		t.Errorf("%d answers\n%s", answers, out)
	}
	if _, err := os.Stat(filepath.Join(string(y.home), "settings.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Error("an agent wrote settings")
	}
}

// patience limits each wait of a user at a terminal.
const patience = 2 * time.Minute
