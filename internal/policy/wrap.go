package policy

import (
	"encoding/json"

	"bailey"
)

// Wrap is the action of an agent that is put inside the wall. No manifest has it, so that no call can be it: an operator asks.
const Wrap bailey.CapabilityID = "agent.wrap"

// wrapAction is in every schema. model is what an agent of its kind needs to reach, named what an operator named.
func wrapAction() Action {
	return Action{ID: Wrap, Pack: "agent", SideEffect: "mutating", Risk: "medium", Reversibility: "reversible", BuiltIn: true,
		InputSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["agent","model","named","memoryMiB","tasks","run","keepHome"],"properties":{` +
			`"agent":{"type":"string"},"model":{"type":"array","items":{"type":"string"}},"named":{"type":"array","items":{"type":"string"}},"memoryMiB":{"type":"integer"},"tasks":{"type":"integer"},` +
			`"run":{"type":"boolean"},"keepHome":{"type":"boolean"}}}`)}
}
