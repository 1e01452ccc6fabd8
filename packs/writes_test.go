package packs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/ktest"
	"bailey/packs/hostile"
)

// written runs the call that an attack targets, without a cage. It returns all output and the later content of the
// target of a push.
func written(t *testing.T, r hostile.Repository) string {
	t.Helper()
	id, input, paths := bailey.CapabilityID("git.commit"), map[string]any{"repo": r.Dir, "message": "x", "all": true}, map[string]string{"repo": r.Dir}
	if r.Target != "" {
		id, input, paths = "git.push", map[string]any{"repo": r.Dir, "to": r.Target, "ref": "main"}, map[string]string{"repo": r.Dir, "to": r.Target}
	}
	j := job(t, id, input, paths)
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "TERM=xterm"}, j.Env...)
	r.Arm()
	return run(t, j.Dir, r.TTY, env, j.Command, j.Args...) + holds(r)
}

// holds returns the content of the target of a push.
func holds(r hostile.Repository) string {
	if r.Target == "" {
		return ""
	}
	cmd := exec.Command("git", "-c", "core.fsmonitor=false", "log", "--all", "--patch", "--no-ext-diff", "--no-textconv")
	cmd.Dir, cmd.Env = r.Target, hostile.Environ(r.Target)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// TestHostileWrites checks that each attack on a commit or a push works against plain git, and that the options of the
// packs stop those that they are documented to stop.
func TestHostileWrites(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	for _, r := range append(hostile.Commits(t, t.TempDir()), hostile.Pushes(t, t.TempDir())...) {
		t.Run(strings.ReplaceAll(r.Key, "/", "|"), func(t *testing.T) {
			t.Parallel()
			if r.Wall == hostile.Options {
				if out := written(t, r); worked(r, out) {
					t.Errorf("it got through:\n%s", out)
				}
			}
			r.Arm()
			out := run(t, r.Dir, r.TTY, hostile.Environ(filepath.Dir(r.Dir)), "git", r.Control...) + holds(r)
			if !worked(r, out) {
				t.Errorf("not live: plain git %v shows no effect:\n%q", r.Control, out)
			}
		})
	}
}

// TestRemoteIsWhatThePackPushesTo checks that the attacks rewrite the address to which the pack pushes.
func TestRemoteIsWhatThePackPushesTo(t *testing.T) {
	j := job(t, "git.push", map[string]any{"repo": "/r", "to": "/t", "ref": "main"}, map[string]string{"repo": "/r", "to": "/t"})
	if got := j.Args[len(j.Args)-2]; got != hostile.Remote {
		t.Errorf("the pack pushes to %q, the attacks know %q", got, hostile.Remote)
	}
	if j.Dir != "/t" || len(j.Hide) != 3 || j.Hide[0] != "/r/.git/config" || len(j.Exec)+len(j.Read) > 0 || j.NeedsProc {
		t.Errorf("%+v", j)
	}
}
