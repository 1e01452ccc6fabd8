package pack

import "github.com/goccy/go-yaml/ast"

// NoIsolation is the waiver of a capability that runs without a cage.
const NoIsolation = "isolation"

// Uncaged reports whether the tool runs without a cage. Such a tool has all rights of the user of the gateway, whatever
// its class.
func (m *Capability) Uncaged() bool { return m.Isolation == Open }

// Writes reports whether the tool may write to a place of the call.
func (m *Capability) Writes() bool {
	for _, in := range m.PathInputs() {
		if in.Write {
			return true
		}
	}
	return m.Uncaged()
}

// checkUncaged refuses features that conflict with isolation none: those that only a cage provides, and those that would run
// before the call is allowed without one. Egress, API and fs.exec have their own checks.
func (r *reader) checkUncaged(n ast.Node, m *manifest, at *deferredNodes) {
	if m.Isolation != Open {
		return
	}
	s := &m.Sandbox
	for _, f := range []struct {
		what  string
		there bool
	}{
		{"fs", len(s.Read)+len(s.Write)+len(s.Hide)+len(s.Libs)+len(s.Exec) > 0},
		{"limits", s.Memory > 0 || s.Tasks > 0},
		{"proc", s.Proc},
	} {
		if f.there {
			r.addFault(tokenOf(at.sandbox), "isolation none contradicts %s: only a cage of ours has it", f.what)
		}
	}
	if len(m.Credentials) > 0 {
		r.addFault(tokenOf(n),
			"isolation none contradicts credentials: whatever else its user runs could read what a tool without a cage is lent")
	}
	if at.preview != nil {
		r.addFault(tokenOf(at.preview),
			"isolation none contradicts preview: it would run without a cage before anybody has said that it may")
	}
}
