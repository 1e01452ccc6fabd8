package direct

import (
	"fmt"
	"slices"

	"bailey/internal/localapi/apitype"
	"bailey/internal/notify"
	"bailey/internal/settings"
)

// examineNotify checks whether a person learns of a pending question without looking for it.
func examineNotify(s apitype.Status) []apitype.Finding {
	const name = "notify"
	n := s.Notify
	if n == nil {
		return nil
	}
	tried := "looked at how people are told of questions: " + n.Summary()
	bad := slices.ContainsFunc(n.Ways, func(w notify.State) bool { return w.Absent != "" || w.Dropped > 0 || w.Failed > 0 && w.Last != "" })
	switch {
	case n.Fault != "":
		return []apitype.Finding{{Name: name, State: apitype.Warning, Tried: tried, Cure: "bailey notify key makes the key; bailey notify test tries it"}}
	case bad:
		return []apitype.Finding{{Name: name, State: apitype.Warning, Tried: tried, Cure: "bailey notify test says what is wrong now"}}
	case len(n.Ways) > 0:
		return []apitype.Finding{{Name: name, State: apitype.Good, Tried: tried, Cure: ""}}
	case n.Asks > 0:
		return []apitype.Finding{{Name: name, State: apitype.Warning, Tried: fmt.Sprintf("%s, and %s of the policy can ask: a question waits until somebody looks", tried, apitype.Counts(n.Asks, "rule")),
			Cure: "write notify: {desktop: true} or a webhook's url into " + settings.FileName + ", then bailey init --apply (docs/notify.md)"}}
	}
	return nil
}
