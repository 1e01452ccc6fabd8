package hooks

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"bailey/hook"
	"bailey/internal/jail"
	"bailey/internal/ktest"
)

// A yard is a home directory with hooks, and a real jail.
type yard struct {
	*Dispatcher
	home  string
	hooks []hook.Hook
}

const folder = "hooks"

func newYard(t testing.TB) *yard {
	t.Helper()
	return newYardWithin(t, 0)
}

// newYardWithin is newYard with this time between SIGTERM and SIGKILL; zero is the default.
func newYardWithin(t testing.TB, grace time.Duration) *yard {
	t.Helper()
	if os.Getenv("BAILEY_HOOKS_LESSER") == "" {
		ktest.Require(t, "userns", "netns")
	}
	home, err := os.MkdirTemp("/var/tmp", "bailey-hooks-") // must be neither below a cage's own /tmp nor below its home
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	os.Chmod(home, 0o755)
	j, err := jail.New(jail.Config{Mask: []string{filepath.Join(home, ".ssh")}, Grace: grace})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{".ssh", folder, "state"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	y := &yard{home: home}
	y.Dispatcher = New(Config{
		Applied: func() hook.Config { return hook.Config{Hooks: y.hooks} },
		Cages:   j, Bare: jail.Uncaged{Grace: grace},
		Environ: func() []string {
			return []string{"HOME=" + home, "USER=somebody", "SECRET=of the user's", "LISTED=passes"}
		},
		Private: func() []string { return []string{home, filepath.Join(home, ".ssh")} },
	})
	return y
}

// script writes a program, which must begin with a #! line, and returns its path.
func (y *yard) script(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(y.home, folder, name)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// shell returns a PreToolUse hook that runs a shell script.
func (y *yard) shell(t testing.TB, text string) hook.Hook {
	t.Helper()
	name := strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
	return hook.Hook{Event: hook.OnPreToolUse, Argv: []string{y.script(t, name, "#!/bin/sh\n"+text)}, Timeout: hook.DefaultTimeout}
}

func pre(input map[string]any) hook.PreToolUse {
	return hook.PreToolUse{Session: hook.Session{ID: "s-1", Dir: "/src"}, ToolName: "git.push", ToolInput: input}
}

func (y *yard) try(t testing.TB, h hook.Hook) (hook.Outcome, Asked) {
	t.Helper()
	y.hooks = []hook.Hook{h}
	o, all := y.Ask(t.Context(), pre(map[string]any{"ref": "main"}))
	if len(all) != 1 {
		t.Fatalf("%d hooks were asked, and not one", len(all))
	}
	return o, all[0]
}

// inMidst calls try with a timeout that should end while the hook runs. If the hook had not come far enough, as on a
// busy machine, it doubles the timeout.
func inMidst(t testing.TB, try func(timeout time.Duration) (begun bool)) {
	t.Helper()
	for timeout := 150 * time.Millisecond; timeout < 20*time.Second; timeout *= 2 {
		if try(timeout) {
			return
		}
	}
	t.Error("no hook came as far before its time was up")
}

// alive returns the processes with this argument, seen from outside.
func alive(t testing.TB, word string) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(files) == 0 {
		t.Fatal("no process to be seen", err)
	}
	for _, f := range files {
		line, _ := os.ReadFile(f) // may have ended
		if slices.Contains(strings.Split(string(line), "\x00"), word) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// comes waits until a file exists.
func comes(t testing.TB, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s never came", path)
}
