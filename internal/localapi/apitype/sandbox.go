package apitype

import "bailey/internal/localapi"

// SandboxEnterEvent is the operator command, and the kind of the ledger entry, for a person who works in a sandbox or
// copies a file.
const SandboxEnterEvent = "sandbox.enter"

// SandboxEntering is the data of the ledger entry. It is written before the person gets to the sandbox.
type SandboxEntering struct {
	Sandbox     string            `json:"sandbox"` // id
	Image       string            `json:"image"`
	ImageDigest string            `json:"imageDigest"`
	Accelerator string            `json:"accelerator"`
	Agent       string            `json:"agent"`          // the owner
	Action      string            `json:"action"`         // shell, copy to, copy from, ssh
	Path        string            `json:"path,omitempty"` // in the sandbox
	Argv        []string          `json:"argv,omitempty"`
	Bytes       int               `json:"bytes,omitempty"`
	SHA256      string            `json:"sha256,omitempty"` // of a file that is copied to the sandbox
	Operator    localapi.Operator `json:"operator,omitempty"`
	Person      string            `json:"person,omitempty"`
}
