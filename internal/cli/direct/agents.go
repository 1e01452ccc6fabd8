package direct

import (
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

// examineAgents returns one finding per agent, and one per trial of each agent that is confined or hooked. For an open
// agent, the first failure is enough.
func examineAgents(agents []apitype.AgentStatus) (found []apitype.Finding) {
	for _, a := range agents {
		name := "agent " + terminal.TableCell(a.Agent)
		switch a.State {
		case apitype.OpenState:
			found = append(found, apitype.Finding{Name: name, State: apitype.Warning, Tried: a.Words, Cure: a.Cure})
			continue
		default:
			found = append(found, apitype.Finding{Name: name, State: apitype.Good, Tried: a.Words, Cure: ""})
		}
		for _, t := range a.Tried {
			if t.Held {
				found = append(found, apitype.Finding{Name: name + " " + t.Name, State: apitype.Good, Tried: t.Tried, Cure: ""})
			} else {
				found = append(found, apitype.Finding{Name: name + " " + t.Name, State: apitype.Warning, Tried: t.Tried, Cure: a.Cure})
			}
		}
	}
	return found
}
