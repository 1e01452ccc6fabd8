package apitype

import (
	"fmt"

	"bailey/internal/modelproxy"
)

// Dollars formats millionths of a US dollar, rounded up to a hundredth of a cent.
func Dollars(micro int64) string { return fmt.Sprintf("%.4f USD", float64((micro+99)/100)/1e4) }

// ModelStatus is the state of the model proxy.
type ModelStatus struct {
	modelproxy.Counts
	Sessions  int             `json:"sessions"` // whose token maps are kept
	Wrap      bool            `json:"wrap"`     // agents in the agent jail use it
	Providers []ModelProvider `json:"providers"`
	Restores  []string        `json:"restores,omitempty"` // categories of secrets that file inputs have back
}

// ModelProvider is where requests to a provider go.
type ModelProvider struct {
	Name  string `json:"name"`
	URL   string `json:"url"`
	Key   string `json:"key"` // where it comes from, never the key
	Fault string `json:"fault,omitempty"`
}
