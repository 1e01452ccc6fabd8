package pack

import (
	"fmt"
	"slices"
)

var (
	riskOrder          = []Risk{Low, Medium, High, Critical}
	sideEffectOrder    = []SideEffect{None, ReadOnly, Additive, Mutating, Destructive}
	reversibilityOrder = []Reversibility{NothingDone, Reversible, ExternallyReversible, Irreversible}
)

// Milder returns the first property in which m declares less than other, or "".
func (m *Capability) Milder(other *Capability) string {
	switch {
	case slices.Index(sideEffectOrder, m.SideEffect) < slices.Index(sideEffectOrder, other.SideEffect):
		return fmt.Sprintf("sideEffectClass %s, and %s says %s", m.SideEffect, other.ID, other.SideEffect)
	case slices.Index(reversibilityOrder, m.Reversibility) < slices.Index(reversibilityOrder, other.Reversibility):
		return fmt.Sprintf("reversibility %s, and %s says %s", m.Reversibility, other.ID, other.Reversibility)
	case slices.Index(riskOrder, m.Risk) < slices.Index(riskOrder, other.Risk):
		return fmt.Sprintf("risk %s, and %s says %s", m.Risk, other.ID, other.Risk)
	}
	return ""
}
