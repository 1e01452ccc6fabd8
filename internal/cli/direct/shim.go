package direct

import (
	"bailey/internal/cli"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

// examineShims returns the doctor's findings about the shims, or nil if there are none.
func examineShims(home localapi.Home) (found []apitype.Finding) {
	list, err := cli.Shims(home)
	if err != nil {
		return []apitype.Finding{{Name: "shims", State: apitype.Warning, Tried: "read " + cli.ShimDir(home) + ": " + err.Error(), Cure: "chmod 700 it, or move it away"}}
	}
	for _, s := range list {
		switch s.State {
		case "ok":
			found = append(found, apitype.Finding{Name: "shim " + s.Name, State: apitype.Good, Tried: "PATH leads to it, and it starts this bailey", Cure: ""})
		case "inactive":
			found = append(found, apitype.Finding{Name: "shim " + s.Name, State: apitype.Info, Tried: s.Why, Cure: s.Cure})
		default:
			found = append(found, apitype.Finding{Name: "shim " + s.Name, State: apitype.Warning, Tried: s.Why, Cure: s.Cure})
		}
	}
	return found
}
