package gate

import (
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// TestRepositoryIsDecided checks that policy, the question, the receipt and the run have the directories of the
// repository that was found, and not only the one that the call names.
func TestRepositoryIsDecided(t *testing.T) {
	w, in := newWorld(t), call()
	in.Capability, in.Input = "t.work", map[string]any{"repo": "/tree/sub"}
	ask(w)
	w.around = func(at bailey.Place) ([]bailey.Place, error) {
		dir := at.Path
		at.Path = strings.TrimSuffix(dir, "/sub")
		common, err := os.Open(os.DevNull)
		at.Repository = &bailey.Repository{Dir: dir, Top: at.Path, GitDir: "/real/main/.git/worktrees/tree", Common: "/real/main/.git"}
		return []bailey.Place{at, {Input: bailey.CommonInput(at.Input), Path: "/real/main/.git", File: common, Write: at.Write}}, err
	}
	var decided bailey.Request
	decide := w.decide
	w.decide = func(n int, r bailey.Request) bailey.Decision { decided = r; return decide(n, r) }
	var q bailey.Question
	given := w.answer
	w.answer = func(a bailey.Question) bailey.Answer { q = a; return given(a) }
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if decided.Dir != "/real/tree/sub" || decided.Paths["repo"] != "/real/tree" || decided.Paths["repo/.git"] != "/real/main/.git" {
		t.Errorf("decided was %q, %q", decided.Dir, decided.Paths)
	}
	var bound []string
	for _, b := range q.Bound {
		bound = append(bound, b.Mode()+" "+b.Path.Text)
	}
	if q.Dir.Text != "/real/tree/sub" || !slices.Equal(bound, []string{"write /real/tree", "write /real/main/.git"}) {
		t.Errorf("asked was %q, %q", q.Dir.Text, bound)
	}
	if o := w.one(); !slices.Equal(o.Paths, []string{"/real/tree", "/real/main/.git"}) || o.Cwd != "/real/tree/sub" {
		t.Errorf("receipt: %q, %q", o.Cwd, o.Paths)
	}
	job := w.jobs[len(w.jobs)-1]
	keep := []string{"/real/main/.git/worktrees/tree/HEAD", "/real/main/.git/HEAD", "/real/main/.git/refs/tags"}
	if !w.happened("run --file=/real/main/.git/config /real/tree") || !slices.Equal(job.Env, []string{"GIT_AUTHOR_NAME=Bailey", "GIT_WORK_TREE=/real/tree"}) ||
		job.Wall == nil || !slices.Equal(job.Wall.Keep, keep) {
		t.Errorf("%q, %q, %+v", w.did, job.Env, job.Wall)
	}
}

// TestBareRepositoryIsNamed checks that git is told which bare repository it works in, and no work tree.
func TestBareRepositoryIsNamed(t *testing.T) {
	w, in := newWorld(t), call()
	in.Capability, in.Input = "t.work", map[string]any{"repo": "/bare.git"}
	w.around = func(at bailey.Place) ([]bailey.Place, error) {
		at.Repository = &bailey.Repository{Dir: at.Path, Top: at.Path, GitDir: at.Path, Common: at.Path, Bare: true}
		return []bailey.Place{at}, nil
	}
	if res := w.gate().Do(t.Context(), in); res.Err != nil {
		t.Fatal(res.Err)
	}
	if env := w.jobs[0].Env; !slices.Equal(env, []string{"GIT_AUTHOR_NAME=Bailey", "GIT_DIR=.", "GIT_IMPLICIT_WORK_TREE=0"}) || !w.happened("run --file=/real/bare.git/config /real/bare.git") {
		t.Errorf("%q %q", env, w.did)
	}
}
