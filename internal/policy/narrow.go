package policy

import (
	"fmt"
	"reflect"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// maxUnary is the number of consecutive '!' or '-' that Cedar's reference implementation accepts.
const maxUnary = 4

// checkPortability refuses constructs that the library accepts but Cedar's reference implementation refuses: a rule that loads
// here must mean the same everywhere. test/cedar searches for such differences.
func checkPortability(r *rule) (bad []string) {
	for _, c := range r.ast.Conditions {
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
					fmt.Sprintf("%s() means nothing here: no call holds an address, a decimal, a date or a duration",
						n.Name))
			}
			return true
		})
	}
	return bad
}

const (
	itself     = "compares a value with itself"
	ofEntities = "is for strings and numbers here: name agents, actions and targets with == or in"
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
