package hooks

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey/hook"
	"bailey/internal/ktest"
)

// both asks a failing hook with every value of onFailure.
func (y *yard) both(t *testing.T, h hook.Hook, e hook.Event, reason string) {
	t.Helper()
	for _, wrong := range y.wrong(t, h, e, reason) {
		t.Error(wrong)
	}
}

// wrong returns the errors that both reports.
func (y *yard) wrong(t *testing.T, h hook.Hook, e hook.Event, reason string) (all []string) {
	t.Helper()
	complain := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	h.Event = e.Name()
	ways := map[hook.OnFailure]hook.Effect{hook.Block: hook.Blocked, hook.Pass: hook.Failed, "": hook.Failed}
	if h.Event == hook.OnPreToolUse {
		ways[""] = hook.Blocked
	}
	for f, want := range ways {
		h.OnFailure = f
		y.hooks = []hook.Hook{h}
		y.Forget("")
		o, asked := y.Ask(t.Context(), e)
		if o.Effect != want || len(asked) != 1 || !strings.Contains(o.Reason, reason) {
			complain("onFailure %q at %s: %s %.300q, %d asked; want %s because of %q", f, h.Event, o.Effect, o.Reason, len(asked), want, reason)
			continue
		}
		switch warned := strings.Contains(fmt.Sprint(asked[0].Warning), "hook.failed"); {
		case want == hook.Blocked && (o.Event != nil || warned):
			complain("onFailure %q: it goes on: %.100v %.300q", f, o.Event, asked[0].Warning)
		case want == hook.Failed && (fmt.Sprint(o.Event) != fmt.Sprint(e) || !warned):
			complain("onFailure %q: it does not go on as it was, or nobody is warned: %.100v %.300q", f, o.Event, asked[0].Warning)
		}
	}
	return all
}

// TestAbuse checks that if a hook does not answer, onFailure decides, and the reason names the fault.
func TestAbuse(t *testing.T) {
	ktest.Long(t)
	y := newYardWithin(t, 100*time.Millisecond)
	begun := filepath.Join(y.home, "state", "begun")
	for name, c := range map[string]struct{ text, reason string }{
		"hangs":                   {"printf x >> " + begun + "; sleep 600", "it timed out"},
		"hangs deaf":              {"trap '' TERM; printf x >> " + begun + "; while :; do sleep 1; done", "it timed out"},
		"floods":                  {"head -c 104857600 /dev/zero", "more than 1048576 bytes"},
		"floods stderr":           {"head -c 104857600 /dev/zero >&2; exit 7", "ended with code 7"},
		"exits early":             {"exit 9", "ended with code 9"},
		"closes stdin":            {"exec 0<&-; sleep 0.1; exit 9", "ended with code 9"},
		"is killed":               {"kill -9 $$", "ended with code 137"},
		"half a frame":            {`printf '{"continue":'`, "the answer"},
		"a frame of 100 MB":       {`printf '{"systemMessage":"'; head -c 104857600 /dev/zero | tr '\0' x; printf '"}'`, "more than 1048576 bytes"},
		"two frames":              {`echo '{}'; echo '{}'`, "the answer"},
		"no UTF-8":                {`printf '{"systemMessage":"\377"}'`, "UTF-8"},
		"another event's answer":  {`echo '{"hookSpecificOutput":{"hookEventName":"SessionStart"}}'`, "SessionStart"},
		"another event's change":  {`echo '{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedOutput":"x"}}'`, "updatedOutput"},
		"an unknown key":          {`echo '{"decision":"allow"}'`, "decision"},
		"what it may not execute": {"cp /bin/true /tmp/true; /tmp/true || exit 5", "ended with code 5"},
	} {
		t.Run(name, func(t *testing.T) {
			h := y.shell(t, c.text+"\n")
			if !strings.HasPrefix(name, "hangs") {
				y.both(t, h, pre(map[string]any{"ref": "main"}), c.reason)
				return
			}
			h.Write = []string{filepath.Dir(begun)}
			inMidst(t, func(timeout time.Duration) bool {
				os.Remove(begun)
				h.Timeout = timeout
				wrong := y.wrong(t, h, pre(map[string]any{"ref": "main"}), c.reason)
				if text, _ := os.ReadFile(begun); string(text) != "xxx" {
					return false
				}
				for _, wrong := range wrong {
					t.Error(wrong)
				}
				return true
			})
		})
	}
	h := y.shell(t, "exit 9")
	y.both(t, h, hook.PostToolUse{ToolName: "git.push", ToolResult: "done"}, "ended with code 9")
}

// TestForks checks, in a cage only, that a forking hook exhausts only its own cage, and that none of its processes
// remains.
func TestForks(t *testing.T) {
	ktest.Require(t, "python3")
	y := newYard(t)
	word := "forks-" + filepath.Base(y.home)
	path := y.script(t, "forks", `#!/usr/bin/env python3
import os, sys, time
n = 0
try:
    while n < 1000:
        if os.fork() == 0:
            time.sleep(600)
        n += 1
except OSError:
    sys.exit(7)
sys.exit(0)
`)
	h := hook.Hook{Argv: []string{path, word}, Timeout: hook.DefaultTimeout}
	y.both(t, h, pre(nil), "ended with code 7")
	if left := alive(t, word); len(left) > 0 {
		t.Errorf("%d live on", len(left))
	}
}

// TestFrameIsNotRead checks that a hook need not read its input, even if the frame is longer than a pipe.
func TestFrameIsNotRead(t *testing.T) {
	y := newYard(t)
	long := pre(map[string]any{"text": strings.Repeat("x", 900<<10)})
	for name, text := range map[string]string{"closes it": "exec 0<&-; sleep 0.1; echo '{}'", "ends at once": "exit 0", "reads a byte": "head -c 1 >/dev/null; echo '{}'", "reads it": `test $(wc -c) -gt 900000`} {
		for _, bare := range []bool{false, true} {
			h := y.shell(t, text)
			h.Unsandboxed = bare
			y.hooks = []hook.Hook{h}
			if o, all := y.Ask(t.Context(), long); o.Effect != hook.Kept {
				t.Errorf("%s, without a cage %v: %s %s %v", name, bare, o.Effect, o.Reason, all[0].Exit)
			}
		}
	}
}

// TestFrameIsTooLong checks that no hook is started if the event does not fit into a frame.
func TestFrameIsTooLong(t *testing.T) {
	ktest.Long(t)
	y := newYard(t)
	mark := filepath.Join(y.home, "state", "ran")
	h := y.shell(t, "echo > "+mark)
	h.Unsandboxed = true
	y.both(t, h, hook.UserPromptSubmit{Prompt: strings.Repeat("x", 100<<20)}, "cannot run it")
	if _, err := os.Stat(mark); err == nil {
		t.Error("it was started")
	}
}

// TestNoProgram checks that a program that cannot be started is a failure like any other.
func TestNoProgram(t *testing.T) {
	y := newYard(t)
	plain := y.script(t, "plain", "#!/bin/sh\n")
	os.Chmod(plain, 0o644)
	for name, argv := range map[string]string{
		"a directory": filepath.Join(y.home, folder, "sub"), "nothing": filepath.Join(y.home, folder, "none"), "no name of a program": "no-such-program-here",
		"not executable": plain, "no interpreter": y.script(t, "lost", "#!/no/such/interpreter\n"), "no first line": y.script(t, "text", "echo\n"),
	} {
		os.MkdirAll(filepath.Join(y.home, folder, "sub"), 0o755)
		for _, bare := range []bool{false, true} {
			t.Run(fmt.Sprint(name, bare), func(t *testing.T) {
				y.both(t, hook.Hook{Argv: []string{argv}, Unsandboxed: bare, Timeout: hook.DefaultTimeout}, pre(nil), "cannot run it")
			})
		}
	}
}

// TestReplacedWhileRunning checks that if its program is replaced, a running hook is unaffected and the next event uses
// the new one.
func TestReplacedWhileRunning(t *testing.T) {
	ktest.Long(t)
	for name, replace := range map[string]func(path, text string) error{
		"renamed over": func(path, text string) error {
			if err := os.WriteFile(path+".new", []byte(text), 0o755); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
		"written over": func(path, text string) error { return os.WriteFile(path, []byte(text), 0o755) },
		"removed":      func(path, text string) error { return os.Remove(path) },
	} {
		t.Run(name, func(t *testing.T) {
			y := newYard(t)
			state := filepath.Join(y.home, "state")
			h := y.shell(t, fmt.Sprintf(`echo > %s/began; until [ -e %[1]s/go ]; do sleep 0.01; done; echo '{"systemMessage":"the old one"}'`, state)+"\n")
			h.Write = []string{state}
			y.hooks = []hook.Hook{h}
			done := make(chan hook.Outcome, 1)
			go func() {
				o, _ := y.Ask(context.Background(), pre(nil))
				done <- o
			}()
			comes(t, filepath.Join(state, "began"))
			if err := replace(h.Argv[0], "#!/bin/sh\necho '{\"systemMessage\":\"the new one\"}'\n"); err != nil {
				t.Fatal(err)
			}
			os.WriteFile(filepath.Join(state, "go"), nil, 0o644)
			if o := <-done; o.Effect != hook.Kept || o.Message != "the old one" {
				t.Errorf("%+v", o)
			}
			o, _ := y.Ask(t.Context(), pre(nil))
			if name == "removed" && o.Effect != hook.Blocked || name != "removed" && o.Message != "the new one" {
				t.Errorf("the next: %+v", o)
			}
		})
	}
}
