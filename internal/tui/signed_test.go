package tui

import (
	"strings"
	"testing"
)

// TestUnsignedAnswer checks that the dialog does not promise that an unsigned answer counts if the settings name approvers.
func TestUnsignedAnswer(t *testing.T) {
	for signed, want := range map[bool]string{false: "its level is local", true: "settings.yaml names approvers: sign with"} {
		s := &questionScreen{q: Question{Signed: signed}}
		if d := s.grantDialog(&Model{}); !strings.Contains(strings.Join(d.details, "\n"), want) {
			t.Errorf("%v: %q", signed, d.details)
		}
	}
}
