package server

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/ktest"
	"bailey/packs"
)

// pushing returns an office with a repository src whose branch is one commit ahead of the bare repository to.
func pushing(t *testing.T) (o *office, src, to string, push func(more map[string]any) bailey.Result) {
	t.Helper()
	ktest.Require(t, "git")
	o = officeOf(t, packs.FS)
	src, to = filepath.Join(o.dir, "src"), filepath.Join(o.dir, "to")
	plain(t, o.dir, "init", "-q", "-b", "main", src)
	commitOf(t, src, "one")
	plain(t, o.dir, "clone", "-q", "--bare", src, to)
	commitOf(t, src, "two")
	return o, src, to, func(more map[string]any) bailey.Result {
		input := map[string]any{"repo": src, "to": to, "ref": "main"}
		for k, v := range more {
			input[k] = v
		}
		return o.call("git.push", input)
	}
}

func commitOf(t *testing.T, dir, message string) string {
	t.Helper()
	plain(t, dir, "commit", "-q", "--allow-empty", "-m", message)
	return plain(t, dir, "rev-parse", "main")
}

func argvOf(q bailey.Question) string {
	var argv []string
	for _, a := range q.Argv {
		argv = append(argv, a.Value.Reveal())
	}
	return strings.Join(argv, " ")
}

// TestAttackPushAfterTheSecondLook moves the branch after the last run of the preview. The shown commit must be pushed,
// and the question must contain it in the arguments.
func TestAttackPushAfterTheSecondLook(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	for _, force := range []bool{false, true} {
		o, src, to, push := pushing(t)
		granted := plain(t, src, "rev-parse", "main")
		var evil string
		o.before = func() { evil = commitOf(t, src, "evil") }
		res := push(map[string]any{"force": force})
		if got := plain(t, to, "rev-parse", "main"); res.Err != nil || evil == "" || got != granted {
			t.Errorf("granted %s, pushed %s, evil is %s: %v\n%s", granted, got, evil, res.Err, res.Stderr)
		}
		q := o.asked[0]
		text := approvaltext.Text(q, []byte("the home's"))
		if !strings.Contains(argvOf(q), " "+granted+":refs/heads/main") || !strings.Contains(text, "pushes "+granted) || !strings.Contains(text, "\""+granted+":refs/heads/main\"") {
			t.Errorf("the question has\n%s", text)
		}
	}
}

// TestAttackPushBetweenLooks moves the branch after the preview resolved its commit. The other preview commands must
// show the history of the resolved commit.
func TestAttackPushBetweenLooks(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	o, src, _, push := pushing(t)
	o.refuse = true
	harmless := plain(t, src, "rev-parse", "main")
	evil := commitOf(t, src, "evil")
	moved := make(chan struct{})
	o.look = func(j bailey.Job) func() {
		if strings.Contains(strings.Join(j.Args, " "), "pushes") {
			return func() {
				plain(t, src, "update-ref", "refs/heads/main", harmless)
				close(moved)
			}
		}
		select {
		case <-moved: // the other preview commands run after the move
		case <-time.After(time.Minute):
		}
		return func() {}
	}
	if res := push(nil); len(o.asked) == 0 {
		t.Fatalf("no question was asked: %v", res.Err)
	}
	if seen := o.asked[0].Preview.Output.Text; !strings.Contains(seen, "pushes "+evil) || !strings.Contains(seen, "adds "+evil) || !strings.Contains(seen, "\n2\n") {
		t.Errorf("it shows\n%s", seen)
	}
	if plain(t, src, "rev-parse", "main") != harmless {
		t.Error("the branch was not moved")
	}
}

// TestAttackTargetAfterTheSecondLook checks that a forced push removes only the commits that were shown. If the target
// got another commit since, the push must fail.
func TestAttackTargetAfterTheSecondLook(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	o, src, to, push := pushing(t)
	plain(t, src, "commit", "-q", "--amend", "--allow-empty", "-m", "otherwise")
	plain(t, src, "push", "-q", to, "main~1:refs/heads/side")
	lost := plain(t, src, "commit-tree", "-p", "main~1", "-m", "to be lost", "main^{tree}")
	plain(t, src, "push", "-q", to, lost+":refs/heads/main")
	came := plain(t, src, "commit-tree", "-p", lost, "-m", "came since", "main^{tree}")
	o.before = func() { plain(t, src, "push", "-q", to, came+":refs/heads/main") }
	res := push(map[string]any{"force": true})
	if got := plain(t, to, "rev-parse", "main"); res.Err == nil || got != came || !strings.Contains(string(res.Stderr), "stale info") {
		t.Errorf("the target is at %s, not at %s: %v\n%s", got, came, res.Err, res.Stderr)
	}
	if argv := argvOf(o.asked[0]); !strings.Contains(argv, "--force-with-lease=refs/heads/main:"+lost+" ") || strings.Contains(argv, "--force ") {
		t.Errorf("it would pass %s", argv)
	}
	o.before = func() {} // the next question is about the current state of the target
	if res := push(map[string]any{"force": true}); res.Err != nil || plain(t, to, "rev-parse", "main") != plain(t, src, "rev-parse", "main") {
		t.Errorf("%v\n%s", res.Err, res.Stderr)
	}
	plain(t, to, "update-ref", "-d", "refs/heads/main")
	if res := push(map[string]any{"force": true}); res.Err != nil || plain(t, to, "rev-parse", "main") != plain(t, src, "rev-parse", "main") {
		t.Errorf("a branch that the target does not have: %v\n%s", res.Err, res.Stderr)
	}
}

// TestPushUnasked checks that a push without approval runs with the rendered arguments.
func TestPushUnasked(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	o, src, to, push := pushing(t)
	o.open = true
	for _, force := range []bool{false, true} {
		tip := commitOf(t, src, "more")
		if res := push(map[string]any{"force": force}); res.Err != nil || plain(t, to, "rev-parse", "main") != tip || len(o.asked) > 0 {
			t.Errorf("%v\n%s", res.Err, res.Stderr)
		}
	}
}

// TestParkedPush checks that a repeated push is the same call only if the branch still points to the same commit.
func TestParkedPush(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	o, src, _, push := pushing(t)
	o.refuse = true
	subject := func() string {
		push(nil)
		s, _ := approvaltext.Subject(o.asked[len(o.asked)-1], []byte("the home's"))
		return s
	}
	first := subject()
	if subject() != first {
		t.Error("the same call is another one")
	}
	commitOf(t, src, "slipped in")
	if subject() == first {
		t.Error("another commit is the same call")
	}
	plain(t, src, "reset", "-q", "--hard", "HEAD~1")
	if subject() != first {
		t.Error("the same commit is another call")
	}
}

// TestPushOfAnotherName checks that a branch whose name has the requested name as a prefix is not pushed instead.
func TestPushOfAnotherName(t *testing.T) {
	ktest.Long(t)
	t.Parallel()
	o, src, to, push := pushing(t)
	plain(t, src, "checkout", "-q", "--detach")
	plain(t, src, "branch", "-D", "main")
	plain(t, src, "branch", "main/evil")
	was := plain(t, to, "rev-parse", "main")
	if res := push(nil); res.Err == nil || len(o.asked) > 0 || plain(t, to, "rev-parse", "main") != was {
		t.Errorf("%v; asked %d times", res.Err, len(o.asked))
	}
}
