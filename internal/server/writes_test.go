package server

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/ktest"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
	"bailey/internal/settings"
	"bailey/pack"
	"bailey/packs/hostile"
)

// writing allows git.commit and git.push, which the starter policy denies.
const writing = `
@id("write")
permit (principal, action in [Action::"git.commit", Action::"git.push"], resource == Target::"local")
when { context.cage == "full" && context.writes };`

// writer returns a gate whose home names yard as its workspace, and whose policy allows git to write there.
func writer(t *testing.T) (s *Server, yard string) {
	t.Helper()
	ktest.Require(t, "userns", "netns", "git", "sh")
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	return yardOf(t, catalog, writing)
}

// yardOf returns a gate with these packs, whose home names yard as its workspace, with these rules and those of the
// starter policy.
func yardOf(t *testing.T, catalog *pack.Catalog, rules string) (s *Server, yard string) {
	t.Helper()
	engine, err := policy.Load(policy.Config{Actions: policyfiles.Actions(catalog), Sources: []policy.Source{policy.Starter(), {Name: "own.cedar", Text: []byte(rules)}}})
	if err != nil {
		t.Fatal(err)
	}
	if yard, err = filepath.EvalSymlinks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s = SpineOf(t, &Server{Catalog: catalog, Rules: FixedRules(engine)})
	applied, err := gateway.OpenSettings(s.home, s.workspaces, s.redaction, settings.Applied{}, s.scribe.recordEvent, s.Log)
	if err != nil {
		t.Fatal(err)
	}
	state, err := applied.State("")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := applied.Apply(t.Context(), state.Digest, []byte("workspaces:\n  - "+yard+"\n"), settings.Applied{}); err != nil {
		t.Fatal(err)
	}
	return s, yard
}

// TestMain hides the settings of git of the person who runs the tests.
func TestMain(m *testing.M) {
	os.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	os.Exit(m.Run())
}

// try makes one call from dir.
func try(t *testing.T, s *Server, id bailey.CapabilityID, dir string, input map[string]any) bailey.Result {
	t.Helper()
	return s.Gate.Do(t.Context(), bailey.Call{Capability: id, Input: input, Door: "test", Dir: dir,
		Principal: bailey.Principal{Agent: "local"}, Session: bailey.Session{ID: bailey.NewSessionID()}})
}

// plain runs git without a gate.
func plain(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, hostile.Environ(dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestGitWrites commits and pushes through the complete gate, in the full cage.
func TestGitWrites(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s, yard := writer(t)
	repo, target := filepath.Join(yard, "a repo"), filepath.Join(yard, "a target")
	plain(t, yard, "init", "-q", "-b", "main", repo)
	plain(t, yard, "init", "-q", "--bare", "-b", "main", target)
	ktest.Write(t, filepath.Join(repo, "kept"), "one\n")
	plain(t, repo, "add", "-A")

	good := func(id bailey.CapabilityID, input map[string]any) bailey.Result {
		t.Helper()
		res := try(t, s, id, yard, input)
		if res.Status != bailey.OK {
			t.Fatalf("%s %v: %v\n%s%s", id, input, res.Err, res.Stdout, res.Stderr)
		}
		return res
	}
	commit := func(more map[string]any) {
		t.Helper()
		input := map[string]any{"repo": repo, "message": "# one\n\nmore\n"}
		for k, v := range more {
			input[k] = v
		}
		good("git.commit", input)
	}
	commit(nil)
	if got := plain(t, repo, "log", "-1", "--format=%an <%ae> %cn <%ce>%n%B"); got != "Bailey <bailey@localhost> Bailey <bailey@localhost>\n# one\n\nmore" {
		t.Errorf("%q", got)
	}
	ktest.Write(t, filepath.Join(repo, "kept"), "two\n")
	commit(map[string]any{"all": true, "author": "Ann <ann@example.org>"})
	if got := plain(t, repo, "log", "-1", "--format=%an <%ae> %cn"); got != "Ann <ann@example.org> Bailey" {
		t.Errorf("%q", got)
	}
	ktest.Write(t, filepath.Join(repo, "kept"), "three\n")
	commit(map[string]any{"paths": []any{"kept"}})

	push := map[string]any{"repo": repo, "to": target, "ref": "main"}
	if res := good("git.push", push); strings.Contains(string(res.Stderr), "error") {
		t.Errorf("a push that went well says %s", res.Stderr)
	}
	if got, want := plain(t, target, "rev-parse", "main"), plain(t, repo, "rev-parse", "main"); got != want {
		t.Errorf("the target is at %s, the repository at %s", got, want)
	}
	plain(t, repo, "commit", "-q", "--amend", "-m", "otherwise")
	if res := try(t, s, "git.push", yard, push); res.Status == bailey.OK || !strings.Contains(string(res.Stderr), "non-fast-forward") {
		t.Errorf("a push that loses commits: %v %s", res.Err, res.Stderr)
	}
	good("git.push", map[string]any{"repo": repo, "to": target, "ref": "main", "force": true})
	if got, want := plain(t, target, "rev-parse", "main"), plain(t, repo, "rev-parse", "main"); got != want {
		t.Errorf("forced, the target is at %s, the repository at %s", got, want)
	}
	for _, f := range []string{repo, target} {
		owned(t, f)
	}
}

// owned checks that all files below dir belong to the user of the test, whatever uid the cage had.
func owned(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("find", dir, "!", "-uid", strconv.Itoa(os.Geteuid())).Output()
	if err != nil || len(out) > 0 {
		t.Errorf("of another user: %s %v", out, err)
	}
}

// TestHostileWrites commits in every hostile repository, and pushes from and to each, through the complete gate. No
// program of the repository may run, and the work must be done. An attack that only the cage stops must work without
// it.
func TestHostileWrites(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	s, yard := writer(t)
	for _, r := range append(hostile.Commits(t, filepath.Join(yard, "c")), hostile.Pushes(t, filepath.Join(yard, "p"))...) {
		t.Run(strings.ReplaceAll(r.Key, "/", "|"), func(t *testing.T) {
			id, input := bailey.CapabilityID("git.commit"), map[string]any{"repo": r.Dir, "message": "x", "all": true}
			if r.Target != "" {
				id, input = "git.push", map[string]any{"repo": r.Dir, "to": r.Target, "ref": "main"}
			}
			r.Arm()
			res := try(t, s, id, r.Dir, input)
			if out := string(res.Stdout) + string(res.Stderr) + holds(t, r); took(r, out) {
				t.Errorf("%s let it through the cage:\n%s", id, out)
			}
			if done := r.Target == "" && res.ExitCode == 0 || r.Target != "" && same(t, r); res.Receipt == "" || !done && !r.Stops {
				t.Errorf("%s did not do its work: %v\n%s%s", id, res.Err, res.Stdout, res.Stderr)
			}
			if r.Wall == hostile.Cage && !freed(t, s, r, id, input) {
				t.Error("it does nothing without the cage either: the options stop it by now, say so in its table")
			}
		})
	}
}

// holds returns the content of a push target.
func holds(t *testing.T, r hostile.Repository) string {
	t.Helper()
	if r.Target == "" {
		return ""
	}
	cmd := exec.Command("git", "log", "--all", "--patch", "--no-ext-diff", "--no-textconv")
	cmd.Dir, cmd.Env = r.Target, hostile.Environ(r.Target)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// same reports whether the branch main is the same on both sides.
func same(t *testing.T, r hostile.Repository) bool {
	t.Helper()
	const format = "--format=%(objectname) %(refname)"
	return plain(t, r.Dir, "for-each-ref", format, "refs/heads/main") == plain(t, r.Target, "for-each-ref", format, "refs/heads/main")
}

// freed makes the call without a cage, and reports whether the attack had its effect.
func freed(t *testing.T, s *Server, r hostile.Repository, id bailey.CapabilityID, input map[string]any) bool {
	t.Helper()
	m, err := s.Catalog.Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	args, err := m.Render(input, map[string]string{"repo": r.Dir, "to": r.Target})
	if err != nil {
		t.Fatal(err)
	}
	job := m.Job(args, nil)
	r.Arm()
	cmd := exec.Command(job.Command, job.Args...)
	if cmd.Dir = r.Dir; r.Target != "" {
		cmd.Dir = r.Target
	}
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, job.Env...)
	out, _ := cmd.CombinedOutput()
	return took(r, string(out)+holds(t, r))
}
