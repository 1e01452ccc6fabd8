// Package settings has the settings and the profiles that an operator applies: their form, and their strict readers, which
// refuse unknown keys with the line and the column.
package settings

import (
	"bytes"
	"encoding/json"
	"fmt"

	"bailey/internal/localapi"
	"bailey/internal/redact"
)

// FileName is the name of the settings file in the home.
const FileName = "settings.yaml"

// Applied holds the settings that an operator applied last. The zero Applied is a home where no settings were ever
// applied.
type Applied struct {
	Digest     string        `json:"digest"` // SHA-256 of the file, hex; "" without a file
	Workspaces []string      `json:"workspaces"`
	Redaction  redact.Config `json:"redaction,omitzero"` // without its examples; zero: the built-in rules
	// Signers: if set, a policy must have a signature of one of them.
	Signers []string `json:"policySigners,omitempty"`
	// Approvers: if set, only their answers to approval requests count; otherwise those of operators.
	Approvers []Approver        `json:"approvers,omitempty"`
	Broker    *Broker           `json:"broker,omitempty"` // lends the credentials; nil: no broker
	Notify    Notify            `json:"notify,omitzero"`  // without its URL, which is only in the file
	Network   Network           `json:"network,omitzero"` // network access beyond the manifests
	Agents    AgentRules        `json:"agents,omitzero"`  // which agents may call
	Operator  localapi.Operator `json:"operator,omitempty"`
	Person    string            `json:"person,omitempty"`
}

const maxListed = 1000

// AgentRules say which agents the front ends admit.
type AgentRules struct {
	Required bool `json:"required,omitempty"` // calls without a token are refused
	Listed   int  `json:"listed,omitempty"`   // how many tools an agent is shown; it must search for the others. 0: all
	// Asking names the MCP clients that may ask their user. The model of such a client must not be able to answer in
	// the user's place.
	Asking []string `json:"asking,omitempty"`
}

// UnmarshalJSON refuses unknown fields: if it ignored a rule of a newer version, less would be redacted than was
// applied.
func (a *Applied) UnmarshalJSON(data []byte) error {
	type plain Applied
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode((*plain)(a)); err != nil {
		return fmt.Errorf("the settings that were applied last are of another version of bailey: %w", err)
	}
	return nil
}

// State compares the current file with the applied settings.
type State struct {
	File       string        `json:"file"`
	Digest     string        `json:"digest"`             // of the current file
	Text       string        `json:"text"`               // content of the current file
	Applied    Applied       `json:"applied"`            // settings in force
	Changed    bool          `json:"changed"`            // the file differs from the applied one
	Workspaces []string      `json:"workspaces"`         // from the file
	Redaction  redact.Config `json:"redaction,omitzero"` // from the file, without examples
	Signers    []string      `json:"policySigners,omitempty"`
	Approvers  []Approver    `json:"approvers,omitempty"`
	Broker     *Broker       `json:"broker,omitempty"`
	Notify     Notify        `json:"notify,omitzero"`
	Network    Network       `json:"network,omitzero"`
	Agents     AgentRules    `json:"agents,omitzero"`
	Fault      string        `json:"fault,omitempty"`   // why the file cannot be used
	Cure       string        `json:"cure,omitempty"`    // hint for a fault in the content
	Dir        string        `json:"dir,omitempty"`     // the given directory, canonical
	Inside     bool          `json:"inside,omitempty"`  // Dir is in one of the file's workspaces
	Refusal    string        `json:"refusal,omitempty"` // why calls get no workspace now
}
