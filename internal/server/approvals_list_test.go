package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/localapi/apitype"
	"bailey/internal/peer"
)

// TestListIsBounded checks that the list fits into a frame, even with the maximum number of questions of maximum
// length.
func TestListIsBounded(t *testing.T) {
	for _, c := range []string{"<", "\x1b", "\xff", "\u2028", "ü"} {
		var list []apitype.OpenQuestion
		for n := range approve.DefaultOpen {
			long := bailey.Shown{Text: strings.Repeat(c, 3000/len(c))}
			q := apitype.NewQuestion(bailey.Question{ID: bailey.ApprovalID(fmt.Sprintf("a-%d", n)), Call: "git.commit", Text: strings.Repeat("x", 9000), Alike: fmt.Sprint(n),
				Inputs: []bailey.Input{{Name: "message", Shown: long}}, Argv: []bailey.Shown{{Text: "git"}, {Text: "commit"}, long}, Preview: bailey.Preview{Output: long}})
			list = append(list, q)
		}
		groupQuestions(list)
		b, err := json.Marshal(apitype.QuestionList{Approvals: list})
		if err != nil || len(b) > peer.MaxFrame/2 {
			t.Errorf("%q: %d bytes, %v", c, len(b), err)
		}
		if q := list[7]; q.ID != "a-7" || q.Call != "git.commit" || q.Argv[1] != "commit" || !strings.HasPrefix(q.Inputs, " message="+c) || !strings.HasSuffix(q.Inputs, "…") || !strings.HasSuffix(q.Argv[2], "…") {
			t.Errorf("%q: %q, %q", c, q.Inputs, q.Argv)
		} else if c == "ü" && !utf8.ValidString(q.Inputs+q.Argv[2]) {
			t.Errorf("%q is cut inside of a character", c)
		}
	}
	short := []apitype.OpenQuestion{apitype.NewQuestion(bailey.Question{Inputs: []bailey.Input{{Name: "repo", Shown: bailey.Shown{Text: "."}}}, Argv: []bailey.Shown{{Text: "git"}, {Text: "log"}}})}
	if groupQuestions(short); short[0].Inputs != " repo=." || strings.Join(short[0].Argv, " ") != "git log" {
		t.Errorf("%+v", short[0])
	}
}
