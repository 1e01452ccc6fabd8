package policy

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// Kinds of targets. The local machine has no name; a host or a sandbox has one.
const (
	local   = "local"
	host    = "host"
	sandbox = "sandbox"
)

const targetForms = `there are "local", "host:NAME" and "sandbox:NAME"`

// parseTarget parses a target as written in rules.
func parseTarget(id string) (t bailey.Target, ok bool) {
	t.Kind, t.Name, ok = strings.Cut(id, ":")
	return t, t.Kind == local && !ok || (t.Kind == host || t.Kind == sandbox) && t.Name != ""
}

// targetID formats a target as written in rules.
func targetID(t bailey.Target) string {
	if t.Name == "" {
		return t.Kind
	}
	return t.Kind + ":" + t.Name
}

// isValidTarget reports whether a target is valid. A kind that contains a colon would be read as another kind with a name.
func isValidTarget(t bailey.Target) bool {
	parsed, ok := parseTarget(targetID(t))
	return ok && parsed == t
}

// checkEntities reports impossible targets and agents without a name, in scopes and conditions. A rule about them never
// applies.
func (f *findings) checkEntities(r *rule) {
	f.checkEntity(r, scopeEntity(r.ast.Principal))
	f.checkEntity(r, scopeEntity(r.ast.Resource))
	for _, c := range r.ast.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch n := n.(type) {
			case ast.NodeValue:
				if uid, ok := n.Value.(cedar.EntityUID); ok {
					f.checkEntity(r, uid)
				}
			case ast.NodeTypeEquals:
				f.checkTargetKind(r, n.Left, n.Right)
				f.checkTargetKind(r, n.Right, n.Left)
			}
			return true
		})
	}
}

func (f *findings) checkEntity(r *rule, uid cedar.EntityUID) {
	switch _, ok := parseTarget(string(uid.ID)); {
	case uid.Type == "Target" && !ok:
		f.addForRule(r, fmt.Sprintf("no call has the target %s: %s", uid, targetForms))
	case uid.Type == "Agent" && uid.ID == "":
		f.addForRule(r, fmt.Sprintf("no call comes from %s: an agent has a name", uid))
	}
}

// checkTargetKind reports a comparison resource.kind == "…" with an unknown kind.
func (f *findings) checkTargetKind(r *rule, left, right ast.IsNode) {
	a, attr := left.(ast.NodeTypeAccess)
	v, lit := right.(ast.NodeValue)
	if !attr || !lit || a.Value != "kind" || !isVariable(a.Arg, "resource") {
		return
	}
	if word, ok := v.Value.(cedar.String); ok && word != local && word != host && word != sandbox {
		f.addForRule(r, fmt.Sprintf("no target is of kind %q: there are %s, %s and %s", word, local, host, sandbox))
	}
}
