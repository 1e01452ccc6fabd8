package cli

import (
	"fmt"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/packstore"
)

// TestPreviewsHaveTitles checks that each output of a built-in capability's preview has a title, or is known to be for programs.
func TestPreviewsHaveTitles(t *testing.T) {
	catalog, err := packstore.BuiltIn()
	if err != nil {
		t.Fatal(err)
	}
	several := 0
	for _, m := range catalog.All() {
		n := len(m.Previews())
		if n < 2 {
			continue
		}
		several++
		var output strings.Builder
		for i := range n {
			fmt.Fprintf(&output, "[%d/%d: 4 bytes]\n x.\n", i+1, n)
		}
		for _, s := range approvaltext.NewBrief(bailey.Question{Call: m.ID, Preview: bailey.Preview{Output: bailey.Shown{Text: output.String()}}}).Sections {
			if strings.HasPrefix(s.Title, "part ") {
				t.Errorf("%s has no title for %s", m.ID, s.Title)
			}
		}
	}
	if several == 0 {
		t.Error("no capability has several command lines in its preview")
	}
}
