package direct

import (
	"bailey/internal/jail"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
)

// examineHooks reports whether the applied hooks can be used, and whether the file is unchanged.
func examineHooks(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name, tried = "hooks", "held what was applied last against " + apitype.HooksName
	st := s.Hooks
	if !s.Running {
		b, err := server.StandInHooks(home)
		if err != nil {
			return []apitype.Finding{wrong(name, apitype.Missing, "read "+apitype.HooksName, err)}
		}
		st = b.Status()
	}
	switch {
	case st == nil:
		return nil
	case st.Fault != "":
		return []apitype.Finding{{Name: name, State: apitype.Missing, Tried: st.Fault, Cure: "bailey hooks reload"}}
	case st.Drift != "":
		return []apitype.Finding{{Name: name, State: apitype.Warning, Tried: tried + ": " + st.Drift, Cure: "bailey hooks reload shows the difference and applies it; or put the file back"}}
	case jail.Bare:
		return []apitype.Finding{{Name: name, State: apitype.Warning, Tried: "this platform has no cage: hooks that are to have one do not start", Cure: `"sandbox": false lets one run with all your rights`}}
	}
	return []apitype.Finding{{Name: name, State: apitype.Good, Tried: tried + ": " + apitype.Counts(st.Applied.Hooks, "hook"), Cure: ""}}
}
