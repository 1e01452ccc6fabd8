package apitype

import (
	"testing"

	"bailey"
)

// TestSignedQuestion checks that approvals and tui say alike that an answer must be signed.
func TestSignedQuestion(t *testing.T) {
	q := NewQuestion(bailey.Question{Rules: []bailey.Rule{{ID: "r"}}})
	if got := q.requirementText(); got != "1 answer" || q.Listed().Signed {
		t.Errorf("without approvers: %q, %v", got, q.Listed().Signed)
	}
	q.Signed = true
	if got := q.requirementText(); got != "1 answer, signed by an approver of settings.yaml" || !q.Listed().Signed {
		t.Errorf("with approvers: %q, %v", got, q.Listed().Signed)
	}
}
