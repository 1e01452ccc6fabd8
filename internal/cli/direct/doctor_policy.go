package direct

import (
	"fmt"

	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
)

// examinePolicy reports whether the policy that was applied last can be used, and whether its files are unchanged. If
// no gateway runs, it loads the policy as the next gateway would.
func examinePolicy(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name, tried = "policy", "held what was applied last against its files"
	if !s.Running {
		if !ledger.Begun(home.Ledger()) {
			return []apitype.Finding{{Name: name, State: apitype.Good, Tried: "nobody applied one: the policy that is built in holds", Cure: ""}}
		}
		if err := server.StandIn(home, &s); err != nil {
			return []apitype.Finding{wrong(name, apitype.Missing, "loaded what was applied last", err)}
		}
	}
	var found []apitype.Finding
	if s.Killed != nil {
		found = append(found, apitype.Finding{Name: "kill switch", State: apitype.Missing, Tried: apitype.KilledText(*s.Killed), Cure: "bailey resume, when the reason is gone"})
	}
	switch {
	case s.Fault != "":
		found = append(found, apitype.Finding{Name: name, State: apitype.Missing, Tried: s.Fault, Cure: "bailey policy check, then bailey policy apply"})
	case s.Drift != "":
		found = append(found, apitype.Finding{Name: name, State: apitype.Warning, Tried: tried + ": " + s.Drift, Cure: "bailey policy apply shows the difference and applies it; or put the files back"})
	case s.Applied == nil || s.Applied.Dir == "":
		found = append(found, apitype.Finding{Name: name, State: apitype.Good, Tried: "nobody applied one: the policy that is built in holds", Cure: ""})
	default:
		found = append(found, apitype.Finding{Name: name, State: apitype.Good, Tried: fmt.Sprintf("%s: %s of %s", tried, apitype.Counts(s.Applied.Rules, "rule"), s.Applied.Dir), Cure: ""})
	}
	return found
}
