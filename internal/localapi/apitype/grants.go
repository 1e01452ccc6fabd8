package apitype

import (
	"time"

	"bailey"
)

// Giving and revoking a standing grant require operator rights. The draft of its text is available to all.
const StandVerb, RevokeVerb, DraftVerb = "grants.give", "grants.revoke", "grants.draft"

// StandingGrant is the JSON form of a grant for a period of time.
type StandingGrant struct {
	ID         bailey.GrantID      `json:"id"`
	Capability bailey.CapabilityID `json:"capability"`
	Agent      string              `json:"agent"`
	Person     string              `json:"person,omitempty"`
	Rules      []bailey.Rule       `json:"rules"`
	Given      time.Time           `json:"given"`
	Until      time.Time           `json:"until"`
	By         string              `json:"by"`
	Level      bailey.Level        `json:"level"`
	Question   bailey.ApprovalID   `json:"question"`
	Text       string              `json:"text"`
}

type GrantList struct {
	Grants []StandingGrant `json:"grants"`
}
