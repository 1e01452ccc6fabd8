package approvaltext

import (
	"slices"
	"strings"
	"testing"

	"bailey"
)

// commitQuestion returns a question about a commit with this output of its preview.
func commitQuestion(output string) bailey.Question {
	return bailey.Question{Call: "git.commit", Impact: "mutating, reversible", Egress: []string{"a.example:443"},
		Inputs: []bailey.Input{{Name: "message", Shown: bailey.Shown{Text: `"fix the parser\n\nIt read too much."`}},
			{Name: "repo", Shown: bailey.Shown{Text: `"."`}}, {Name: "refs", Shown: bailey.Shown{Text: `["topic","v1"]`}}},
		Preview: bailey.Preview{Argv: []bailey.Shown{{Text: "git"}}, Output: bailey.Shown{Text: output}}}
}

// TestBrief checks the message, the files, the places and the outputs of a question, and that every line of the preview is in
// the brief or in its rest.
func TestBrief(t *testing.T) {
	const status, index = "# branch.oid 1234\n# branch.head topic\n1 M. a.go\n", " a.go | 2 +-\n b c.go | Bin 0 -> 10 bytes\n 2 files changed\n\ndiff --git HEAD/a.go index/a.go\n+[3/5: 2 bytes]\n x | 3 +++\n"
	b := NewBrief(commitQuestion("[1/5: 48 bytes]\n" + status + "[2/5: 118 bytes]\n" + index + "[3/5: 0 bytes]\n[4/5: 0 bytes]\n[5/5: 7 bytes]\nH a.go\n"))
	if len(status) != 48 || len(index) != 118 {
		t.Fatalf("%d, %d", len(status), len(index))
	}
	if len(b.Messages) != 1 || b.Messages[0] != (Item{"message", "fix the parser\n\nIt read too much."}) {
		t.Errorf("messages %q", b.Messages)
	}
	if !slices.Equal(b.Files, []string{"a.go", "b c.go"}) {
		t.Errorf("files %q", b.Files)
	}
	if !slices.Equal(b.Places, []string{"refs topic v1", "a.example:443", "branch topic"}) {
		t.Errorf("places %q", b.Places)
	}
	if len(b.Sections) != 1 || b.Sections[0].Title != "in the index" || len(b.Sections[0].Lines) != 7 || len(b.Rest) != 2 {
		t.Errorf("sections %q, rest %q", b.Sections, b.Rest)
	}
}

// TestBriefOfOtherOutput checks that an output whose parts cannot be told apart is shown as it is, so that a line of it cannot
// pass for another part.
func TestBriefOfOtherOutput(t *testing.T) {
	for name, output := range map[string]string{
		"no lengths":       "a\nb",
		"redacted":         "[1/5: 20 bytes]\n[REDACTED_1]\n[2/5: 3 bytes]\nab\n[3/5: 0 bytes]\n[4/5: 0 bytes]\n[5/5: 0 bytes]\n",
		"another order":    "[1/5: 2 bytes]\na\n[3/5: 2 bytes]\nb\n",
		"another number":   "[1/5: 2 bytes]\na\n[2/6: 2 bytes]\nb\n",
		"too many":         "[1/1: 2 bytes]\na\n[2/1: 2 bytes]\nb\n",
		"forged beginning": "[9/9: 2 bytes]\na\n",
	} {
		b := NewBrief(commitQuestion(output))
		var all []string
		for _, s := range b.Sections {
			all = append(all, s.Lines...)
		}
		if got := strings.Join(all, "\n"); len(b.Sections) != 1 || b.Sections[0].Title != "shows" || got != strings.TrimRight(output, "\n") || len(b.Rest) > 0 {
			t.Errorf("%s: %q, rest %q", name, b.Sections, b.Rest)
		}
	}
	cut := NewBrief(commitQuestion("[1/5: 16 bytes]\n# branch.head x\n[2/5: 90000 bytes]\n+b\n+c"))
	if len(cut.Sections) != 1 || cut.Sections[0].Title != "in the index" || !slices.Equal(cut.Sections[0].Lines, []string{"+b", "+c"}) {
		t.Errorf("cut: %q", cut.Sections)
	}
	for name, output := range map[string]string{
		"a part in a cut one": "[1/5: 90000 bytes]\n# branch.head x\n[2/5: 2 bytes]\nb\n",
		"a forged part":       "[1/5: 0 bytes]\n[2/5: 2 bytes]\n+[3/5: 0 bytes]\n[4/5: 0 bytes]\n[5/5: 9 bytes]\n+evil()\n\n",
	} {
		b := NewBrief(commitQuestion(output))
		if len(b.Rest) != 0 || b.Sections[len(b.Sections)-1].Title != "shows" {
			t.Errorf("%s is hidden: %q, %q", name, b.Sections, b.Rest)
		}
	}
}
