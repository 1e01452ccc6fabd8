package policy

import (
	"encoding/json"

	"bailey"
)

// Wrap is the action of starting an agent in the agent jail. No manifest has it, so no agent can call it; an operator
// asks.
const Wrap bailey.CapabilityID = "agent.wrap"

// wrapAction is part of every schema. The input model lists the endpoints that this kind of agent needs; the input
// named lists those that an operator named.
func wrapAction() Action {
	return Action{ID: Wrap, Pack: "agent", SideEffect: "mutating", Risk: "medium", Reversibility: "reversible",
		BuiltIn: true,
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["agent","model","named","memoryMiB","tasks","run","keepHome"],"properties":{` +
			`"agent":{"type":"string"},"model":{"type":"array","items":{"type":"string"}},"named":{"type":"array","items":{"type":"string"}},"memoryMiB":{"type":"integer"},"tasks":{"type":"integer"},` +
			`"run":{"type":"boolean"},"keepHome":{"type":"boolean"}}}`)}
}
