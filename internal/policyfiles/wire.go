package policyfiles

import (
	"bailey/internal/policy"
	"bailey/pack"
)

// Actions describes every capability to the policy.
func Actions(c *pack.Catalog) []policy.Action {
	var list []policy.Action
	for _, m := range c.All() {
		list = append(list, policy.Action{
			ID: m.ID, Pack: m.Pack, SideEffect: string(m.SideEffect), Risk: string(m.Risk),
			Reversibility: string(m.Reversibility), InputSchema: m.InputSchema(), BuiltIn: m.Builtin, Waivers: m.Waivers(), Home: m.Home(), Own: m.Isolation == pack.Agent,
		})
	}
	return list
}
