package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"bailey"
	"bailey/internal/strictyaml"
)

// checkRule checks one rule against the model.
func (f *findings) checkRule(m *model, r *LoadedRule) {
	if words := append(checkApprovalUse(r), checkPortability(r)...); len(words) > 0 {
		for _, w := range words {
			f.addForRule(r, w)
		}
		return // the validator below is safe only for rules without these findings
	}
	f.checkEntities(r)
	scope := m.actionsInScope(r.AST.Action)
	uids, looks, reads := inspectConditions(r.AST)
	named := append([]cedar.EntityUID{}, append(uids, scopeUIDs(r.AST.Action)...)...)
	if looks {
		scope = distinctActions(scope, reads, named)
	} else {
		scope = distinctActions(scope, reads, nil)
	}
	v := m.validatorFor(scope, named)
	if len(scope) == 0 && isGroupScope(r.AST.Action) {
		bare, err := m.emptyGroupValidator(append(uids, scopeUIDs(r.AST.Action)...))
		if err != nil {
			f.addForRule(r, err.Error())
			return
		}
		v = bare
	}
	if err := v.Policy("", r.AST); err != nil {
		seen := map[string]bool{}
		for _, e := range flattenErrors(err) {
			if w := m.addAdvice(e.Error()); !seen[w] {
				seen[w] = true
				f.addForRule(r, w)
			}
		}
		return
	}
	// A rule that reads the action may be meant for actions that do not exist yet.
	if len(scope) > 0 && !looks && isNeverTrue(v, r.AST) {
		f.addForRule(r, "its condition is false for every call: is a name misspelled?")
	}
}

// addAdvice adds advice on the most common mistakes to the validator's message.
func (m *model) addAdvice(words string) string {
	if strings.Contains(words, "unrecognized action") {
		if _, rest, ok := strings.Cut(words, `Action::"`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			if near := m.nearestAction(name); near != "" {
				return words + fmt.Sprintf(": did you mean Action::%q?", near)
			}
		}
	}
	if strings.Contains(words, "access to optional attribute") {
		return words + ": a call may omit it, so test first, as in context.input has NAME && context.input.NAME"
	}
	return words
}

// nearestAction returns the capability or group whose name is closest to name, or "" if none is close.
func (m *model) nearestAction(name string) (near string) {
	name = strictyaml.Clip(name)
	most := max(2, len(name)/3) + 1
	try := func(known string) {
		if n := strictyaml.EditDistance(name, known); n < most {
			near, most = known, n
		}
	}
	for _, a := range m.actions {
		try(string(a.ID))
	}
	groups := slices.Collect(maps.Keys(m.members))
	slices.SortFunc(groups, func(a, b cedar.EntityUID) int { return strings.Compare(string(a.ID), string(b.ID)) })
	for _, g := range groups {
		try(string(g.ID))
	}
	return near
}

// checkApprovalUse allows context.approvals only as a conjunct of an unless clause of an asking rule, with that rule's
// own id. So a grant can lift the rule that asked for it and has no other effect. monotone also refuses `is … in`,
// because Cedar's validator answers it with errors that double at each level.
func checkApprovalUse(r *LoadedRule) (bad []string) {
	own := 0
	for _, c := range r.AST.Conditions {
		for _, n := range SplitConjuncts(c.Body) {
			if c.Condition == ast.ConditionUnless && r.Asks && isGrant(n, string(r.ID)) {
				own++
				continue
			}
			bad = append(bad, findContextMisuse(n)...)
		}
	}
	if r.Asks && own == 0 && len(bad) == 0 {
		bad = append(bad, fmt.Sprintf("asks, but no approval lifts it: add unless { context.approvals.contains(%q) }", r.ID))
	}
	return bad
}

func findContextMisuse(n ast.IsNode) (bad []string) {
	ast.Inspect(ast.NewNode(n), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			return !IsContext(n.Arg) || addFinding(&bad, n.Value == "approvals", approvalsForm)
		case ast.NodeTypeHas:
			return !IsContext(n.Arg) || addFinding(&bad, n.Value == "approvals", approvalsForm)
		case ast.NodeTypeVariable:
			return addFinding(&bad, n.Name == "context",
				"context is used without an attribute: name the attribute, for example context.cage")
		case ast.NodeTypeIsIn:
			return addFinding(&bad, true, "`is … in` has no effect here: agents and targets have no parents")
		}
		return true
	})
	return bad
}

const approvalsForm = `context.approvals is allowed only in an asking rule, as unless { context.approvals.contains("its-own-id") }`

// addFinding adds words to the list if bad is set. It returns false, so that the caller does not inspect the children
// of the node.
func addFinding(list *[]string, bad bool, words string) bool {
	if bad {
		*list = append(*list, words)
	}
	return false
}

func IsContext(n ast.IsNode) bool { return isVariable(n, "context") }

func isVariable(n ast.IsNode, name cedar.String) bool {
	v, ok := n.(ast.NodeTypeVariable)
	return ok && v.Name == name
}

// isGrant matches context.approvals.contains("<id>").
func isGrant(n ast.IsNode, id string) bool {
	c, ok := n.(ast.NodeTypeContains)
	if !ok {
		return false
	}
	set, ok := c.Left.(ast.NodeTypeAccess)
	v, lit := c.Right.(ast.NodeValue)
	return ok && lit && set.Value == "approvals" && IsContext(set.Arg) && v.Value == cedar.String(id)
}

// SplitConjuncts splits a && b && c.
func SplitConjuncts(n ast.IsNode) []ast.IsNode {
	if and, ok := n.(ast.NodeTypeAnd); ok {
		return append(SplitConjuncts(and.Left), SplitConjuncts(and.Right)...)
	}
	return []ast.IsNode{n}
}

// scopeUIDs returns the actions and groups that an action scope names.
func scopeUIDs(s ast.IsActionScopeNode) []cedar.EntityUID {
	switch s := s.(type) {
	case ast.ScopeTypeEq:
		return []cedar.EntityUID{s.Entity}
	case ast.ScopeTypeIn:
		return []cedar.EntityUID{s.Entity}
	case ast.ScopeTypeInSet:
		return s.Entities
	}
	return nil
}

// inspectConditions returns the actions and groups that a rule's conditions name, and whether the conditions read the
// action and the input.
func inspectConditions(p *ast.Policy) (uids []cedar.EntityUID, looks, reads bool) {
	for _, c := range p.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch n := n.(type) {
			case ast.NodeTypeAccess:
				reads = reads || n.Value == "input"
			case ast.NodeTypeVariable:
				looks = looks || n.Name == "action"
			case ast.NodeValue:
				if uid, ok := n.Value.(cedar.EntityUID); ok && uid.Type == "Action" {
					uids = append(uids, uid)
				}
			}
			return true
		})
	}
	return uids, looks, reads
}

// distinctActions keeps one of the actions that a rule cannot distinguish, because their checks would have the same
// result. A rule cannot distinguish actions whose inputs have the same type or, if it does not read the input, any two.
// If it reads the action, named has the actions and groups that it names: then it distinguishes those actions, and actions
// of different groups.
func distinctActions(scope []*action, reads bool, named []cedar.EntityUID) (out []*action) {
	seen := map[string]bool{}
	for _, a := range scope {
		sig := ""
		if reads {
			sig = a.sig
		}
		if named != nil {
			sig += "\n" + strings.Join(a.groups, "\n")
			if slices.Contains(named, a.uid) {
				sig += "\n" + string(a.ID)
			}
		}
		if !seen[sig] {
			seen[sig] = true
			out = append(out, a)
		}
	}
	return out
}

// isGroupScope reports whether a scope includes the members of a group.
func isGroupScope(s ast.IsActionScopeNode) bool {
	switch s.(type) {
	case ast.ScopeTypeIn, ast.ScopeTypeInSet:
		return true
	}
	return false
}

// isNeverTrue reports whether a valid rule has a condition that is false for every call it covers. The validator does
// not report this directly. But if the left side of && is always false, the validator stops there and accepts an
// ill-typed right side.
func isNeverTrue(v *validate.Validator, p *ast.Policy) bool {
	if len(p.Conditions) == 0 {
		return false
	}
	probe := ast.Long(1)
	for i := len(p.Conditions) - 1; i >= 0; i-- {
		c := ast.NewNode(p.Conditions[i].Body)
		if p.Conditions[i].Condition == ast.ConditionUnless {
			c = ast.Not(c)
		}
		probe = c.And(probe)
	}
	q := *p
	q.Conditions = []ast.ConditionType{{Condition: ast.ConditionWhen, Body: probe.AsIsNode()}}
	return v.Policy("", &q) == nil
}

func flattenErrors(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, e := range j.Unwrap() {
			out = append(out, flattenErrors(e)...)
		}
		return out
	}
	return []error{err}
}

// maxUnary is the number of consecutive '!' or '-' that Cedar's reference implementation accepts.
const maxUnary = 4

// checkPortability refuses constructs that the library accepts but Cedar's reference implementation refuses: a rule
// that loads here must mean the same everywhere. test/cedar searches for such differences.
func checkPortability(r *LoadedRule) (bad []string) {
	for _, c := range r.AST.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch n := n.(type) {
			case ast.NodeTypeNot, ast.NodeTypeNegate:
				if countSigns(n) > maxUnary {
					return addFinding(&bad, true, fmt.Sprintf("has more than %d of '!' or '-' in a row", maxUnary))
				}
			case ast.NodeTypeEquals:
				addFinding(&bad, reflect.DeepEqual(n.Left, n.Right), itself)
			case ast.NodeTypeNotEquals:
				addFinding(&bad, reflect.DeepEqual(n.Left, n.Right), itself)
			case ast.NodeTypeContainsAll:
				addFinding(&bad, mayHoldEntities(n.Left) || mayHoldEntities(n.Right), "containsAll "+ofEntities)
			case ast.NodeTypeContainsAny:
				addFinding(&bad, mayHoldEntities(n.Left) || mayHoldEntities(n.Right), "containsAny "+ofEntities)
			case ast.NodeTypeExtensionCall:
				// Extension calls have only literal arguments, so a condition on them is a constant. The two
				// implementations parse some of the literals differently.
				return addFinding(&bad, true,
					fmt.Sprintf("%s() has no effect here: no call contains an address, a decimal, a date or a duration",
						n.Name))
			}
			return true
		})
	}
	return bad
}

const (
	itself     = "compares a value with itself"
	ofEntities = "works on strings and numbers here: name agents, actions and targets with == or in"
)

// mayHoldEntities reports whether a set may contain entities. The library does not check their type.
func mayHoldEntities(set ast.IsNode) (found bool) {
	ast.Inspect(ast.NewNode(set), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			_, literal := n.Arg.(ast.NodeValue)
			_, variable := n.Arg.(ast.NodeTypeVariable)
			return !literal && !variable // an attribute of an entity is not an entity
		case ast.NodeTypeVariable:
			found = true
		case ast.NodeValue:
			_, uid := n.Value.(cedar.EntityUID)
			found = found || uid
		}
		return !found
	})
	return found
}

// countSigns counts the signs at the start of an expression, including the sign of a number.
func countSigns(n ast.IsNode) int {
	switch n := n.(type) {
	case ast.NodeTypeNot:
		return 1 + countSigns(n.Arg)
	case ast.NodeTypeNegate:
		return 1 + countSigns(n.Arg)
	case ast.NodeValue:
		if l, ok := n.Value.(cedar.Long); ok && l < 0 {
			return 1
		}
	}
	return 0
}

// Kinds of targets. The local machine has no name; a host or a sandbox has one.
const (
	local   = "local"
	host    = "host"
	sandbox = "sandbox"
)

const targetForms = `use "local", "host:NAME" and "sandbox:NAME"`

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

// isValidTarget reports whether a target is valid. A kind that contains a colon would be read as another kind with a
// name.
func isValidTarget(t bailey.Target) bool {
	parsed, ok := parseTarget(targetID(t))
	return ok && parsed == t
}

// checkEntities reports impossible targets and agents without a name, in scopes and conditions. A rule about them never
// applies.
func (f *findings) checkEntities(r *LoadedRule) {
	f.checkEntity(r, scopeEntity(r.AST.Principal))
	f.checkEntity(r, scopeEntity(r.AST.Resource))
	for _, c := range r.AST.Conditions {
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

func (f *findings) checkEntity(r *LoadedRule, uid cedar.EntityUID) {
	switch _, ok := parseTarget(string(uid.ID)); {
	case uid.Type == "Target" && !ok:
		f.addForRule(r, fmt.Sprintf("no call has the target %s: %s", uid, targetForms))
	case uid.Type == "Agent" && uid.ID == "":
		f.addForRule(r, fmt.Sprintf("no call comes from %s: an agent has a name", uid))
	}
}

// checkTargetKind reports a comparison resource.kind == "…" with an unknown kind.
func (f *findings) checkTargetKind(r *LoadedRule, left, right ast.IsNode) {
	a, attr := left.(ast.NodeTypeAccess)
	v, lit := right.(ast.NodeValue)
	if !attr || !lit || a.Value != "kind" || !isVariable(a.Arg, "resource") {
		return
	}
	if word, ok := v.Value.(cedar.String); ok && word != local && word != host && word != sandbox {
		f.addForRule(r, fmt.Sprintf("no target is of kind %q: use %s, %s or %s", word, local, host, sandbox))
	}
}
