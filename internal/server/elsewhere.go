package server

import (
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
)

// Rules returns the built-in policy of a home. On a platform without a cage it includes the rules for that case.
func Rules(bare bool) []policy.Source {
	if bare {
		return []policy.Source{policy.Starter(), policy.Agents(), policy.Elsewhere()}
	}
	return []policy.Source{policy.Starter(), policy.Agents()}
}

// bareCage returns the cage status on a platform without a cage.
func bareCage() *apitype.CageStatus {
	return &apitype.CageStatus{Kind: "none", Layers: []string{}, Problems: []string{apitype.Disabled}}
}
