package server

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"bailey"
	"bailey/internal/gate"
	"bailey/internal/ktest"
	"bailey/internal/mcp"
	"bailey/pack"
)

// deskPack has two tools with isolation none. One of them is declared read-only.
const deskPack = `
name: desk
version: 1.0.0
description: tools of the desktop
capabilities:
  - name: sh
    description: run a line
    risk: high
    sideEffectClass: mutating
    reversibility: reversible
    isolation: none
    timeout: 1s
    backend: {type: subprocess, command: bash, args: [-c, "{{ input.line }}"], cwdFromInput: dir, env: {DECLARED: here}}
    inputSchema: {type: object, required: [dir, line], properties: {dir: {type: string, format: path}, line: {type: string, x-bailey: {allow: [lines]}}}}
  - name: look
    description: look at something
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: none
    backend: {type: subprocess, command: ls}
`

const (
	wideRule = `@id("wide") permit (principal, action, resource);`
	openRule = `@id("open") permit (principal, action, resource) when { ["isolation"].containsAll(context.waivers) };`
)

// newDesk returns a gate whose home names yard as its workspace, with these rules and those of the starter policy.
func newDesk(t *testing.T, rules string) (s *Server, yard string) {
	t.Helper()
	ktest.Require(t, "bash")
	catalog, err := pack.Load(fstest.MapFS{"desk/pack.yaml": {Data: []byte(deskPack)}})
	if err != nil {
		t.Fatal(err)
	}
	return yardOf(t, catalog, rules)
}

// forgetful is a policy that ignores the waivers of a call. A gate with it violates the invariant.
type forgetful struct{ gate.Policy }

func (f forgetful) Decide(r bailey.Request) bailey.Decision {
	r.Waivers = nil
	return f.Policy.Decide(r)
}

// TestAttackUncaged checks that a tool with isolation none runs only if a rule waives isolation explicitly. The waiver
// check of the policy must be the reason: without it, the same call has all rights of its user.
func TestAttackUncaged(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for name, c := range map[string]struct {
		rules  string
		broken bool
		runs   bool
	}{
		"the starter":                            {"", false, false},
		"a permit for everything":                {wideRule, false, false},
		"one by the kind of the cage":            {`@id("kind") permit (principal, action, resource) when { context.cage == "none" && context.writes };`, false, false},
		"one that waives something else":         {wideRule + `@id("exec") permit (principal, action, resource) when { ["fs.exec"].containsAll(context.waivers) };`, false, false},
		"one that forbids another":               {wideRule + `@id("no") @reason("x") forbid (principal, action, resource) when { context.waivers.contains("fs.exec") };`, false, false},
		"one that names it":                      {openRule, false, true},
		"one that names it, forbidden":           {openRule + `@id("never") @reason("x") forbid (principal, action, resource) when { context.waivers.contains("isolation") };`, false, false},
		"one that names it, all of it forbidden": {openRule + `@id("none") @reason("x") forbid (principal, action in Action::"waives:isolation", resource);`, false, false},
		"the check taken out":                    {wideRule, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, yard := newDesk(t, c.rules)
			if c.broken {
				whole := s.Gate.Config
				whole.Policy = forgetful{whole.Policy}
				g, err := gate.New(whole)
				if err != nil {
					t.Fatal(err)
				}
				s.Gate = g
			}
			mark := filepath.Join(t.TempDir(), "mark") // in no workspace
			res := try(t, s, "desk.sh", yard, map[string]any{"dir": ".", "line": "echo out >" + mark + "; pwd"})
			_, err := os.Stat(mark)
			if res.Executed != c.runs || (err == nil) != c.runs || res.Cage == nil || res.Cage.Kind != "none" || res.Cage.Enforced || res.Cage.Layers != nil {
				t.Fatalf("%v, executed %v, mark %v, cage %+v\n%s", res.Err, res.Executed, err, res.Cage, res.Stderr)
			}
			if c.runs && strings.TrimSpace(string(res.Stdout)) != yard {
				t.Errorf("it ran in %q", res.Stdout)
			}
			if !c.runs && (bailey.KindOf(res.Err) != bailey.Denied || bailey.HintOf(res.Err) == "") {
				t.Errorf("%v (%s)", res.Err, bailey.HintOf(res.Err))
			}
		})
	}
}

// TestUncagedKeepsWhatNeedsNoCage checks a tool without a cage in the complete gate. It must get no environment of the
// gateway, its output must be truncated, and after its timeout no process of its session may remain.
func TestUncagedKeepsWhatNeedsNoCage(t *testing.T) {
	ktest.Long(t)
	t.Setenv("BAILEY_TEST_OUTSIDE", "seen")
	s, yard := newDesk(t, openRule)
	sh := func(line string) bailey.Result {
		return try(t, s, "desk.sh", yard, map[string]any{"dir": ".", "line": line})
	}
	res := sh("env")
	if out := string(res.Stdout); res.Err != nil || !strings.Contains(out, "DECLARED=here\n") || strings.Contains(out, "BAILEY_") || strings.Contains(out, os.Getenv("PATH")+"\n") {
		t.Errorf("%v\n%s", res.Err, out)
	}
	if res := sh("head -c 3000000 /dev/zero"); !res.Truncated || len(res.Stdout) > bailey.OutputCap {
		t.Errorf("%v, %d bytes, cut %v", res.Err, len(res.Stdout), res.Truncated)
	}
	begun := time.Now()
	res = sh("trap '' TERM; set -m; sleep 300 & echo $!; (trap '' TERM; sleep 300) & echo $!; wait; sleep 300")
	pids := strings.Fields(string(res.Stdout))
	if bailey.KindOf(res.Err) != bailey.ToolFailed || !strings.Contains(res.Err.Error(), "timed out") || len(pids) != 2 || time.Since(begun) > 20*time.Second {
		t.Fatalf("%v, %q after %v", res.Err, pids, time.Since(begun))
	}
	for _, word := range pids {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		stat := func() string { b, _ := os.ReadFile("/proc/" + word + "/stat"); return string(b) }
		for i := 0; syscall.Kill(pid, 0) != syscall.ESRCH && !strings.Contains(stat(), ") Z "); i++ {
			if i == 100 {
				syscall.Kill(pid, syscall.SIGKILL)
				t.Errorf("process %d outlives its call: %s", pid, stat())
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if res := try(t, s, "desk.sh", yard, map[string]any{"dir": string(s.home), "line": "ls"}); bailey.KindOf(res.Err) != bailey.Denied || res.Executed {
		t.Errorf("it runs in Bailey's home: %v", res.Err)
	}
	if err := os.WriteFile(filepath.Join(yard, "named"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if res := try(t, s, "desk.look", t.TempDir(), nil); res.Err != nil || string(res.Stdout) != "named\n" {
		t.Errorf("it runs elsewhere than in the workspace that somebody named: %v, %q", res.Err, res.Stdout)
	}
}

// TestUncagedIsListed checks that a tool without a cage is offered to agents only if a rule may allow it, and that its
// description says so.
func TestUncagedIsListed(t *testing.T) {
	for rules, listed := range map[string]bool{"": false, wideRule: false, openRule: true} {
		s, _ := newDesk(t, rules)
		tools := mcpBackend{s: s}.Tools(t.Context(), bailey.Principal{Agent: "local"})
		i := slices.IndexFunc(tools, func(tool mcp.Tool) bool { return tool.ID == "desk.look" })
		if (i >= 0) != listed {
			t.Errorf("%q: %+v", rules, tools)
		}
		if i >= 0 && (tools[i].Description != "look at something\n\nIt runs without a jail, with all rights of its user." || tools[i].ReadOnly) {
			t.Errorf("%+v", tools[i])
		}
	}
}
