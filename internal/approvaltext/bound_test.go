package approvaltext

import (
	"strings"
	"testing"

	"bailey"
)

// TestBound checks that a text names the directories of a repository that are more than the working directory, and that
// they are read again.
func TestBound(t *testing.T) {
	q := full()
	if strings.Contains(text(q, []byte("key")), "bound 0") {
		t.Error("a text without a repository names its directories")
	}
	q.Bound = []bailey.BoundDir{{Path: plain("/w/tree"), Write: true}, {Path: plain("/w/main/.git")}}
	whole := text(q, []byte("key"))
	back, err := Parse(whole)
	if err != nil || len(back.Bound) != 2 || !back.Bound[0].Write || back.Bound[1].Write || back.Bound[1].Path.Text != "/w/main/.git" {
		t.Errorf("%+v %v\n%s", back.Bound, err, whole)
	}
	if _, err := Parse(strings.Replace(whole, "directory write", "directory any", 1)); err == nil {
		t.Error("a directory has an unknown mode")
	}
}
