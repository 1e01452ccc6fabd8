package packs_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"bailey"
	"bailey/internal/ktest"
	"bailey/pack"
	"bailey/packs"
	"bailey/packs/hostile"
)

// load reads the built-in packs once for all tests.
var load = sync.OnceValues(func() (*pack.Catalog, error) { return pack.LoadBuiltin(packs.FS) })

func catalog(t *testing.T) *pack.Catalog {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// job checks and renders a call as the gate does.
func job(t *testing.T, id bailey.CapabilityID, input map[string]any, paths map[string]string) bailey.Job {
	t.Helper()
	m, err := catalog(t).Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	clean, err := m.Check(input, true)
	if err != nil {
		t.Fatal(err)
	}
	args, err := m.Render(clean, paths)
	if err != nil {
		t.Fatal(err)
	}
	var places []bailey.Place
	for _, in := range m.PathInputs() {
		if p, ok := paths[in.Name]; ok {
			places = append(places, bailey.Place{Input: in.Name, Path: p})
		}
	}
	return m.Job(m.ForPerson(args, pack.GitPerson{}), places)
}

// run executes a command without a cage, in a terminal if tty is set, and returns all output.
func run(t *testing.T, dir string, tty bool, env []string, command string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir, cmd.Env = dir, env
	var out string
	if tty {
		out = inTerminal(t, cmd)
	} else {
		data, _ := cmd.CombinedOutput() // git may fail; only its effects count
		out = string(data)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s %v did not end", command, args)
	}
	return out
}

func worked(r hostile.Repository, out string) bool {
	_, err := os.Lstat(r.Marker)
	return err == nil || strings.Contains(out, hostile.Ran) || r.Leak != "" && strings.Contains(out, r.Leak)
}

// looks are the calls made on every hostile repository: all capabilities, with the inputs that make git do the most.
var looks = []struct {
	id    bailey.CapabilityID
	input map[string]any
}{
	{"git.status", nil},
	{"git.status", map[string]any{"short": true}},
	{"git.log", map[string]any{"patch": true, "stat": true}},
	{"git.log", map[string]any{"format": "fuller", "rev": "HEAD"}},
	{"git.diff", nil},
	{"git.diff", map[string]any{"staged": true}},
	{"git.diff", map[string]any{"rev": "HEAD"}},
	{"git.show", nil},
	{"git.show", map[string]any{"rev": "HEAD:file"}},
	{"git.branch-list", map[string]any{"all": true, "verbose": true}},
	{"git.diff-files", map[string]any{"paths": []any{"file", ".git/HEAD"}}},
}

func look(t *testing.T, r hostile.Repository, check func(id bailey.CapabilityID, out string)) {
	t.Helper()
	for _, l := range looks {
		input := map[string]any{"repo": r.Dir}
		for k, v := range l.input {
			input[k] = v
		}
		j := job(t, l.id, input, map[string]string{"repo": r.Dir})
		env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C", "TERM=xterm"}, j.Env...)
		r.Arm()
		check(l.id, run(t, j.Dir, r.TTY, env, j.Command, j.Args...))
	}
}

func TestHostile(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	for _, r := range hostile.Repositories(t, t.TempDir()) {
		t.Run(strings.ReplaceAll(r.Key, "/", "|"), func(t *testing.T) {
			t.Parallel()
			if r.Wall == hostile.Options {
				look(t, r, func(id bailey.CapabilityID, out string) {
					if worked(r, out) {
						t.Errorf("%s let it through:\n%s", id, out)
					}
				})
			}
			r.Arm()
			out := run(t, r.Dir, r.TTY, hostile.Environ(filepath.Dir(r.Dir)), "git", r.Control...)
			if !worked(r, out) {
				t.Errorf("not live: plain git %v shows no effect:\n%q", r.Control, out)
			}
		})
	}
}

// TestDead checks that git ignores each configuration key that is listed as dead. Otherwise an attack is missing from
// the table.
func TestDead(t *testing.T) {
	ktest.Long(t)
	ktest.Require(t, "git", "sh")
	r := hostile.Inert(t, t.TempDir())
	for _, control := range [][]string{{"status"}, {"log", "-p"}, {"diff"}, {"show"}, {"branch", "--list", "-vv"}} {
		r.Arm()
		out := run(t, r.Dir, false, hostile.Environ(filepath.Dir(r.Dir)), "git", control...)
		if worked(r, out) {
			t.Errorf("git %v obeys a key that is called dead:\n%s", control, out)
		}
	}
}

// TestGitShows checks that the options do not remove the output that users need.
func TestGitShows(t *testing.T) {
	ktest.Require(t, "git", "sh")
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir, cmd.Env = dir, hostile.Environ(dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q", "-b", "main")
	write("kept", "first\n")
	write("-dash", "x\n")
	git("add", "-A")
	git("commit", "-qm", "the first")
	write("kept", "second\n")
	write("fresh", "x\n")
	for _, c := range []struct {
		id     bailey.CapabilityID
		input  map[string]any
		want   []string
		absent string
	}{
		{"git.status", nil, []string{"On branch main", "modified:   kept", "fresh"}, ""},
		{"git.status", map[string]any{"short": "true"}, []string{" M kept", "?? fresh"}, "On branch"},
		{"git.status", map[string]any{"path": "fresh"}, []string{"fresh"}, "kept"},
		{"git.log", nil, []string{"the first", "An Author"}, "diff --git"},
		{"git.log", map[string]any{"format": "oneline", "limit": "1"}, []string{"the first"}, "An Author"},
		{"git.log", map[string]any{"path": "-dash", "patch": true}, []string{"the first", "b/-dash"}, "kept"},
		{"git.log", map[string]any{"path": "fresh"}, nil, "the first"},
		{"git.diff", nil, []string{"-first", "+second"}, "fresh"},
		{"git.diff", map[string]any{"staged": true}, nil, "second"},
		{"git.diff", map[string]any{"stat": true, "rev": "HEAD"}, []string{"1 file changed"}, "+second"},
		{"git.show", nil, []string{"the first", "+first"}, "second"},
		{"git.show", map[string]any{"rev": "HEAD:kept"}, []string{"first"}, "commit"},
		{"git.show", map[string]any{"rev": "@", "stat": true}, []string{"2 files changed"}, "+first"},
		{"git.branch-list", nil, []string{"* main"}, "the first"},
		{"git.branch-list", map[string]any{"verbose": true}, []string{"* main", "the first"}, ""},
	} {
		input := map[string]any{"repo": "."}
		for k, v := range c.input {
			input[k] = v
		}
		j := job(t, c.id, input, map[string]string{"repo": dir})
		out := run(t, j.Dir, false, append([]string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}, j.Env...), j.Command, j.Args...)
		for _, w := range c.want {
			if !strings.Contains(out, w) {
				t.Errorf("%s %v lacks %q:\n%s", c.id, c.input, w, out)
			}
		}
		if c.absent != "" && strings.Contains(out, c.absent) {
			t.Errorf("%s %v shows %q:\n%s", c.id, c.input, c.absent, out)
		}
	}
}

func TestBase(t *testing.T) {
	ktest.Require(t, "date", "printf")
	for _, message := range []string{"hi", "-n", "--help", "%s %d \\n", "@/etc/passwd", "", "a\nb", "http://x"} {
		j := job(t, "system.echo", map[string]any{"message": message}, nil)
		if out := run(t, t.TempDir(), false, nil, j.Command, j.Args...); out != message+"\n" {
			t.Errorf("echo %q = %q", message, out)
		}
	}
	j := job(t, "system.date", nil, nil)
	out := run(t, t.TempDir(), false, []string{"TZ=Asia/Tokyo"}, j.Command, j.Args...)
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(out))
	if err != nil || time.Since(at).Abs() > time.Minute {
		t.Errorf("date = %q, %v", out, err)
	}
	if m, _ := catalog(t).Lookup("system.date"); m == nil {
		t.Error("no system.date")
	} else if _, err := m.Check(map[string]any{"format": "%d; id"}, true); err == nil {
		t.Error("date takes any format")
	}
}

// TestGitCapabilitiesShareTheirWalls checks that all git capabilities have the same protective options and environment.
func TestGitCapabilitiesShareTheirWalls(t *testing.T) {
	var first bailey.Job
	for _, id := range []bailey.CapabilityID{"git.status", "git.log", "git.diff", "git.show", "git.branch-list"} {
		j := job(t, id, map[string]any{"repo": "."}, map[string]string{"repo": "/r"})
		end := slices.IndexFunc(j.Args, func(a string) bool { return slices.Contains([]string{"status", "log", "diff", "show", "branch"}, a) })
		j.Args = j.Args[:end]
		if first.Args == nil {
			first = j
		}
		if !reflect.DeepEqual(first.Args, j.Args) || !reflect.DeepEqual(first.Env, j.Env) {
			t.Errorf("%s differs from git.status:\n%q\n%q\n%q\n%q", id, j.Args, first.Args, j.Env, first.Env)
		}
		if j.Dir != "/r" || len(j.Exec) > 0 || len(j.Read) > 0 || j.NeedsProc {
			t.Errorf("%s asks for more than the repository: %+v", id, j)
		}
	}
}

func TestGitRefuses(t *testing.T) {
	c := catalog(t)
	for _, x := range []struct {
		id    bailey.CapabilityID
		input map[string]any
	}{
		{"git.log", map[string]any{"limit": "x"}},
		{"git.log", map[string]any{"limit": 0}},
		{"git.log", map[string]any{"limit": "1000001"}},
		{"git.log", map[string]any{"options": []any{"--output=x"}}},
		{"git.log", map[string]any{"options": []any{"--author"}}},
		{"git.log", map[string]any{"options": []any{"-n5x"}}},
		{"git.log", map[string]any{"options": []any{"main"}}},
		{"git.log", map[string]any{"diff": []any{"--ext-diff"}}},
		{"git.reflog", map[string]any{"words": []any{"expire"}}}, // git would change the reflog
		{"git.reflog", map[string]any{"words": []any{"delete", "HEAD@{1}"}}},
		{"git.merge", map[string]any{"revs": []any{"main"}, "options": []any{"--strategy=evil"}}},
		{"git.grep", map[string]any{"options": []any{"-O"}}},
		{"git.log", map[string]any{"foo": "1"}},
		{"git.log", map[string]any{"rev": "--output=x"}},
		{"git.log", map[string]any{"rev": "-p"}},
		{"git.log", map[string]any{"rev": ":(attr:x)y"}},
		{"git.log", map[string]any{"rev": "a b"}},
		{"git.log", map[string]any{"rev": ""}},
		{"git.log", map[string]any{"format": "%G?"}},
		{"git.diff", map[string]any{"path": "../x"}},
		{"git.diff", map[string]any{"path": "a/../../x"}},
		{"git.diff", map[string]any{"path": "/etc/passwd"}},
		{"git.diff", map[string]any{"path": ":(top)x"}},
		{"git.diff", map[string]any{"path": "a\x1b[2J"}},
		{"git.show", map[string]any{"rev": "HEAD\x00"}},
		{"git.status", map[string]any{"repo": ""}},
		{"git.status", map[string]any{"repo": nil}},
	} {
		input := map[string]any{"repo": "."}
		for k, v := range x.input {
			input[k] = v
		}
		m, err := c.Lookup(x.id)
		if err != nil {
			t.Fatal(err)
		}
		clean, err := m.Check(input, true)
		if err == nil {
			t.Errorf("%s takes %v as %v", x.id, x.input, clean)
		} else if bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%s %v: %v is %v", x.id, x.input, err, bailey.KindOf(err))
		}
	}
}
