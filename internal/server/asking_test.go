//go:build linux

package server

import (
	"testing"

	"bailey"
	"bailey/internal/settings"
)

// TestUnsigned checks that an unsigned answer is enough only if the rules require no more and no approver is
// configured.
func TestUnsigned(t *testing.T) {
	for name, c := range map[string]struct {
		rules   []bailey.Rule
		trusted []settings.Approver
		want    bool
	}{
		"no more":        {[]bailey.Rule{{ID: "a", Count: 1}}, nil, true},
		"local":          {[]bailey.Rule{{ID: "a", Level: bailey.Local}}, nil, true},
		"a key":          {[]bailey.Rule{{ID: "a"}, {ID: "b", Level: bailey.SignedSoftware}}, nil, false},
		"a touch":        {[]bailey.Rule{{ID: "a", Level: bailey.SignedTouch}}, nil, false},
		"no level known": {[]bailey.Rule{{ID: "a", Level: "webauthn"}}, nil, false},
		"a role":         {[]bailey.Rule{{ID: "a", Role: "sre"}}, nil, false},
		"two":            {[]bailey.Rule{{ID: "a", Count: 2}}, nil, false},
		"approvers":      {[]bailey.Rule{{ID: "a"}}, []settings.Approver{{Name: "ada"}}, false},
	} {
		if got := canGrantUnsigned(bailey.Question{Rules: c.rules}, c.trusted); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
