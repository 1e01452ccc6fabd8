package pack

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"bailey"
)

// TestPlanSigning checks how many signatures a command may have, whether authors may be others, and which arguments git
// gets.
func TestPlanSigning(t *testing.T) {
	person := GitPerson{SignCommits: true, SignTags: true}
	const before = "-c commit.gpgSign=false -c gpg.program=false -c gpg.ssh.program=false --config-env=a=B "
	for _, c := range []struct {
		kind, args string
		input      map[string]any
		person     GitPerson
		most       int // 0: nothing is signed
		others     bool
		want       string // the arguments after those before the command
	}{
		{"commit", "commit --no-gpg-sign --message=x -- -S", nil, person, 1, false, "commit --message=x -- -S"},
		{"commit", "commit --no-gpg-sign --message=x", nil, GitPerson{}, 0, false, ""},
		{"commit", "commit --no-gpg-sign -s -S", map[string]any{"options": []any{"-s", "-S"}}, GitPerson{}, 1, false, "commit -s"},
		{"commit", "commit --no-gpg-sign", map[string]any{"options": []any{"-S", "--no-gpg-sign"}}, person, 0, false, ""},
		{"commit", "commit --no-gpg-sign --author=E", map[string]any{"author": "E"}, person, 1, true, "commit --author=E"},
		{"commit", "commit --amend", nil, person, 1, true, "commit --amend"},
		{"commit", "commit --date=x", nil, person, 1, true, "commit --date=x"},
		{"commit", "commit -- --amend", nil, person, 1, false, "commit -- --amend"},
		{"commit", "merge --no-gpg-sign topic", nil, person, 1, false, "merge topic"},
		{"commit", "rebase --continue", nil, person, 256, true, "rebase --continue"},
		{"commit", "pull --no-edit -- origin", nil, person, 256, true, "pull --no-edit -- origin"},
		{"tag", "tag --no-sign --message=x -- v1", nil, person, 1, false, "tag --sign --message=x -- v1"},
		{"tag", "tag --no-sign -s -- v1", map[string]any{"more": []any{"-s"}}, GitPerson{}, 1, false, "tag --sign -- v1"},
		{"tag", "tag --no-sign -- v1", map[string]any{"message": "x"}, GitPerson{SignNoted: true}, 1, false, "tag --sign -- v1"},
		{"tag", "tag --no-sign -- v1", map[string]any{"message": "x", "annotate": true}, GitPerson{SignNoted: true}, 0, false, ""},
		{"", "status", nil, person, 0, false, ""},
	} {
		m := &Capability{spec: manifest{Backend: backend{Signs: c.kind}}}
		args := strings.Fields(before + c.args)
		s, err := m.PlanSigning(args, c.input, c.person)
		if err != nil || (s != nil) != (c.most > 0) || s != nil && (s.Most != c.most || s.OtherAuthors != c.others) {
			t.Errorf("%s: %+v %v", c.args, s, err)
			continue
		}
		if s == nil {
			continue
		}
		want := strings.Fields(strings.ReplaceAll(before, "program=false", "program=/b") + c.want)
		if c.kind == "commit" {
			want[1] = "commit.gpgSign=true"
		}
		if got := m.SignArgs(args, *s, GitKey{Program: "/b"}); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", c.args, got, want)
		}
	}
	// A command of the caller between the commits could ask for signatures itself.
	m := &Capability{spec: manifest{Backend: backend{Signs: "commit"}}}
	args := strings.Fields(before + "rebase --no-gpg-sign --exec=make HEAD~1")
	if s, err := m.PlanSigning(args, nil, person); s != nil || !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" {
		t.Errorf("rebase --exec: %+v, %v", s, err)
	}
	if s, err := m.PlanSigning(args, map[string]any{"options": []any{"--no-gpg-sign"}}, person); s != nil || err != nil {
		t.Errorf("rebase --exec --no-gpg-sign: %+v, %v", s, err)
	}
}
