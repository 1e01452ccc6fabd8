package direct

import (
	"log/slog"
	"strings"

	"bailey/internal/gateway"
	"bailey/internal/ledger"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/server"
	"bailey/internal/workspace"
)

// examineProfiles returns the doctor's finding about the profiles in use. If no gateway is running, it examines the
// profiles that the next gateway would use.
func examineProfiles(home localapi.Home, s apitype.Status) []apitype.Finding {
	const name, tried = "profiles", "held what is in use against its files"
	if !s.Running && ledger.Begun(home.Ledger()) {
		l, err := server.Replayed(home)
		if err != nil {
			return []apitype.Finding{wrong(name, apitype.Missing, "read what was put to use last", err)}
		}
		homes := workspace.Homes()
		s.Profile = server.ProfileStatus(gateway.OpenProfiles(home, workspace.NewWorkspaces(workspace.Masks(home, homes), homes), l.Profiles, nil, slog.New(slog.DiscardHandler)))
	}
	switch p := s.Profile; {
	case p == nil:
		return nil
	case p.Fault != "":
		return []apitype.Finding{{Name: name, State: apitype.Missing, Tried: p.Fault, Cure: p.Cure()}}
	case len(p.Changed) > 0:
		return []apitype.Finding{{Name: name, State: apitype.Warning, Tried: tried + ": " + p.Drift(), Cure: p.Cure()}}
	default:
		return []apitype.Finding{{Name: name, State: apitype.Good, Tried: tried + ": " + strings.Join(p.InUse, ", "), Cure: ""}}
	}
}
