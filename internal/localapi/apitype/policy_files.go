package apitype

// PolicyText is an applied policy with the text of its files.
type PolicyText struct {
	AppliedPolicy
	Files []KeptFile `json:"files"`
}
