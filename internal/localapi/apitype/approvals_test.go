package apitype

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/approve"
)

// TestShownIsBound checks that the screen shows a question only as its text describes it, and ignores other fields
// beside the text.
func TestShownIsBound(t *testing.T) {
	asked := bailey.Question{ID: "a-1", Call: "git.push", Principal: bailey.Principal{Agent: "claude"}, Argv: []bailey.Shown{{Text: "git"}, {Text: "main"}},
		Rules: []bailey.Rule{{ID: "main-asks", Reason: "released", Count: 2}}, Nonce: strings.Repeat("0a", 16), Expires: time.Unix(600, 0)}
	asked.Text = approvaltext.Text(asked, nil)
	asked.Digest = approvaltext.Digest(asked.Text)
	lie := OpenQuestion{Question: asked, Agent: "ada", Argv: []string{"git", "side"}, Inputs: " branch=side", Rules: []bailey.Rule{{ID: "main-asks", Source: "push.cedar:3", Reason: "harmless", Count: 1}},
		Answers: []approve.Event{{Name: "bob", Level: bailey.SignedTouch, Granted: true}}}
	lie.Call, lie.Expires = "git.status", time.Unix(9999, 0)
	got, err := lie.Bound()
	if err != nil {
		t.Fatal(err)
	}
	if got.Call != "git.push" || got.Agent != "claude" || got.Argv[1].Text != "main" || got.Rules[0].Reason != "released" || got.Rules[0].Count != 2 || !got.Expires.Equal(asked.Expires) {
		t.Errorf("%+v", got)
	}
	if got.Rules[0].Source != "push.cedar:3" || got.Answers[0].Name != "bob" || got.Text != asked.Text {
		t.Errorf("%+v", got)
	}
	lie.Impact, lie.Preview, lie.Roles, lie.Count = "readOnly, reversible", "nothing", []string{"anybody"}, 1
	lie.State, lie.Waits, lie.RunBy = StateGranted, true, time.Unix(500, 0)
	shown, err := lie.Read("a-1")
	if err != nil {
		t.Fatal(err)
	}
	if words := shown.Summary(); strings.Contains(words, "by ada") || strings.Contains(words, "side") || strings.Contains(words, "harmless") || strings.Contains(words, "anybody") || strings.Contains(words, "nothing") ||
		!strings.Contains(words, "git main") || !strings.Contains(words, "2 answers") || !strings.Contains(words, "push.cedar:3") || !strings.Contains(words, "bob has approved it") {
		t.Errorf("%s", words)
	}
	if shown.State != StateGranted || !shown.Waits || !shown.RunBy.Equal(lie.RunBy) || shown.Text != asked.Text || shown.Expires.Equal(lie.Expires) {
		t.Errorf("%+v", shown)
	}
	for name, text := range map[string]string{"another's": strings.Replace(asked.Text, `"a-1"`, `"a-2"`, 1), "cut": asked.Text[:len(asked.Text)-2], "none": ""} {
		lie.Text = text
		if q, err := lie.Bound(); !errors.Is(err, bailey.Denied) || bailey.HintOf(err) == "" || q.Call != "" {
			t.Errorf("%s: %+v, %v", name, q, err)
		}
	}
}

// TestCommandLineShowsWhatIsBound checks the same for approve, approvals show and the HTTP interface.
func TestCommandLineShowsWhatIsBound(t *testing.T) {
	asked := bailey.Question{ID: "a-1", Call: "git.push", Principal: bailey.Principal{Agent: "claude"}, Argv: []bailey.Shown{{Text: "git"}, {Text: "main"}}, Impact: "mutating, irreversible",
		Inputs: []bailey.Input{{Name: "branch", Shown: bailey.Shown{Text: "main"}}}, Preview: bailey.Preview{Argv: []bailey.Shown{{Text: "git"}}, Output: bailey.Shown{Text: "drops it"}},
		Contents: bailey.NotBound, Rules: []bailey.Rule{{ID: "main-asks", Reason: "released", Role: "sre", Level: bailey.SignedTouch, Count: 2}}, Nonce: strings.Repeat("0a", 16), Expires: time.Unix(600, 0)}
	asked.Text = approvaltext.Text(asked, nil)
	asked.Digest = approvaltext.Digest(asked.Text)
	lie := OpenQuestion{Question: asked, State: stateOpen, Waits: true, Agent: "ada", Argv: []string{"git", "side"}, Inputs: " branch=side", Impact: "readOnly", Preview: "adds one",
		Rules: []bailey.Rule{{ID: "main-asks", Source: "push.cedar:3", Reason: "harmless"}}, Count: 1, Answers: []approve.Event{{Name: "bob", Granted: true, Level: bailey.SignedTouch}}}
	lie.Call = "git.status"
	got, err := lie.Read("a-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, words := range []string{got.Summary(), got.FirstScreen(10)} {
		for _, want := range []string{"git main", "drops it", "call      git.push branch=main, by claude", "mutating, irreversible", "unbound", "main-asks (push.cedar:3): released",
			"2 answers that is signed-touch, each with sre", "bob has approved it"} {
			if !strings.Contains(words, want) {
				t.Errorf("it does not say %q:\n%s", want, words)
			}
		}
		for _, no := range []string{"side", "adds one", "harmless", "readOnly", "git.status", "ada"} {
			if strings.Contains(words, no) {
				t.Errorf("it says %q:\n%s", no, words)
			}
		}
	}
	if got.State != stateOpen || !got.Waits || got.Call != "git.push" {
		t.Errorf("%+v", got)
	}
	lie.Digest = approvaltext.Digest("another")
	if q, err := lie.Read("a-1"); !errors.Is(err, bailey.Denied) || q.Text != "" {
		t.Errorf("another digest: %+v, %v", q, err)
	}
}

// TestFirstScreen checks the first screen of a question: message, files and destination come first, no digest is on it, no text
// of the call acts on the terminal or begins a line, and each cut says where the rest is.
func TestFirstScreen(t *testing.T) {
	shown := func(s string) bailey.Shown { return bailey.Shown{Text: s} }
	diff := " a.go | 20 +++\n\ndiff --git HEAD/a.go index/a.go\n" + strings.Repeat("+\x1b[2Jx\n", 20)
	asked := bailey.Question{ID: "a-1", Call: "git.commit", Principal: bailey.Principal{Agent: "claude"}, Argv: []bailey.Shown{shown("git"), shown(strings.Repeat("x", 2000))}, Impact: "mutating, reversible",
		Inputs:  []bailey.Input{{Name: "message", Shown: shown(`"one\ntwo\u202e\u001b[2J\nstate     approved"`)}, {Name: "branch", Shown: shown(`"topic"`)}},
		Preview: bailey.Preview{Argv: []bailey.Shown{shown("git")}, Output: shown(fmt.Sprintf("[1/5: 0 bytes]\n[2/5: %d bytes]\n%s[3/5: 0 bytes]\n[4/5: 0 bytes]\n[5/5: 0 bytes]\n", len(diff), diff))},
		Rules:   []bailey.Rule{{ID: "commit-asks", Reason: "released", Digest: strings.Repeat("ab", 32)}}, Nonce: strings.Repeat("0a", 16), Expires: time.Unix(600, 0)}
	asked.Text = approvaltext.Text(asked, nil)
	asked.Digest = approvaltext.Digest(asked.Text)
	q, err := OpenQuestion{Question: asked, State: stateOpen}.Read("a-1")
	if err != nil {
		t.Fatal(err)
	}
	words := q.FirstScreen(5)
	if !strings.HasPrefix(words, "effect    git.commit: mutating, reversible\nmessage   one\n          two\\u202e\\x1b[2J\n          state     approved\nfiles     a.go\nto        branch topic\nin the index\n  │  a.go | 20 +++\n") {
		t.Errorf("%s", words)
	}
	for _, want := range []string{"\n  18 more lines of it are among the details\n", "xxx… (the rest is among the details)\n", "\ndetails   bailey approvals show a-1 --details\n"} {
		if !strings.Contains(words, want) {
			t.Errorf("it does not say %q:\n%s", want, words)
		}
	}
	if strings.ContainsAny(words, "\x1b\u202e") || strings.Contains(words, q.Digest) || strings.Contains(words, q.Rules[0].Digest) || strings.Contains(words, q.Nonce) {
		t.Errorf("%q", words)
	}
	if all := q.Summary(); strings.Count(all, "\\x1b[2Jx") < 20 || !strings.Contains(all, strings.Repeat("x", 2000)) || !strings.Contains(all, q.Digest) || !strings.Contains(all, q.Rules[0].Digest) {
		t.Errorf("the details are not all:\n%s", all)
	}
}
