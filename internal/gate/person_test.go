package gate

import (
	"errors"
	"slices"
	"testing"

	"bailey"
	"bailey/pack"
)

// TestPersonCommits checks that a call in a repository has the name of the person, and that what is to be signed is never
// made unsigned.
func TestPersonCommits(t *testing.T) {
	for _, c := range []struct {
		person pack.GitPerson
		args   []any
		kind   bailey.Kind
	}{
		{pack.GitPerson{Name: "Ada\n", Email: "a@b"}, nil, ""},
		{pack.GitPerson{Name: "Ada", Email: "a@b", SignTags: true}, nil, ""},
		{pack.GitPerson{SignCommits: true}, nil, bailey.Denied},
		{pack.GitPerson{Unknown: errors.New("it includes a file")}, nil, bailey.Denied},
		{pack.GitPerson{Name: "Ada", Email: "a@b", SignCommits: true}, []any{"--ff-only"}, ""},
	} {
		w, in := newWorld(t), call()
		in.Capability, in.Input = "t.work", map[string]any{"repo": "/r"}
		if c.args != nil {
			in.Input["options"] = c.args
		}
		w.person = c.person
		res := w.gate().Do(t.Context(), in)
		if (res.Err != nil) != (c.kind == bailey.Denied) || res.Err != nil && (bailey.KindOf(res.Err) != c.kind || len(w.jobs) > 0) {
			t.Errorf("%+v: %v", c.person, res.Err)
		}
		if res.Err == nil && !slices.Contains(w.jobs[0].Env, "GIT_AUTHOR_NAME=Ada") {
			t.Errorf("%+v: %q", c.person, w.jobs[0].Env)
		}
	}
}
