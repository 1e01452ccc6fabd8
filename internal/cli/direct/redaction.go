package direct

import (
	"strings"

	"bailey/internal/cli"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
)

// examineRedaction returns the doctor's finding about the custom rules, or nil if there are none.
func examineRedaction(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name = "redaction"
	c := s.Redaction
	if !s.Running {
		last, _ := server.Replayed(home) // an unreadable ledger is a separate finding
		c = last.Settings.Redaction
	}
	tried := "counted the rules of this home: " + apitype.RuleCounts(c)
	switch {
	case len(c.Allow)+len(c.Without) > 0:
		return []apitype.Finding{{Name: name, State: apitype.Info, Tried: tried + "; as applied, agents see " + strings.Join(cli.Passing(c), ", "), Cure: ""}}
	case len(c.Patterns) > 0:
		return []apitype.Finding{{Name: name, State: apitype.Good, Tried: tried, Cure: ""}}
	}
	return nil
}
