package policy

import (
	"fmt"
	"reflect"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// maxUnary is how many of '!' or '-' Cedar's reference reads in a row.
const maxUnary = 4

// narrow refuses what the library takes and Cedar's reference implementation refuses: a rule that loads here
// has to mean the same wherever it is read. test/cedar looks for such.
func narrow(r *rule) (bad []string) {
	for _, c := range r.ast.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch n := n.(type) {
			case ast.NodeTypeNot, ast.NodeTypeNegate:
				if unary(n) > maxUnary {
					return deny(&bad, true, fmt.Sprintf("has more than %d of '!' or '-' in a row", maxUnary))
				}
			case ast.NodeTypeEquals:
				deny(&bad, reflect.DeepEqual(n.Left, n.Right), itself)
			case ast.NodeTypeNotEquals:
				deny(&bad, reflect.DeepEqual(n.Left, n.Right), itself)
			case ast.NodeTypeContainsAll:
				deny(&bad, entitled(n.Left) || entitled(n.Right), "containsAll "+ofEntities)
			case ast.NodeTypeContainsAny:
				deny(&bad, entitled(n.Left) || entitled(n.Right), "containsAny "+ofEntities)
			case ast.NodeTypeExtensionCall:
				// They are made of literals alone, so each condition about them is a constant. The two read some of the
				// literals differently.
				return deny(&bad, true, fmt.Sprintf("%s() means nothing here: no call holds an address, a decimal, a date or a duration", n.Name))
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

// entitled says whether a set may hold entities. Of what type, the library does not ask.
func entitled(set ast.IsNode) (found bool) {
	ast.Inspect(ast.NewNode(set), func(n ast.IsNode) bool {
		switch n := n.(type) {
		case ast.NodeTypeAccess:
			_, literal := n.Arg.(ast.NodeValue)
			_, variable := n.Arg.(ast.NodeTypeVariable)
			return !literal && !variable // an attribute of an entity is none
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

// unary counts the signs an expression begins with, that of a number among them.
func unary(n ast.IsNode) int {
	switch n := n.(type) {
	case ast.NodeTypeNot:
		return 1 + unary(n.Arg)
	case ast.NodeTypeNegate:
		return 1 + unary(n.Arg)
	case ast.NodeValue:
		if l, ok := n.Value.(cedar.Long); ok && l < 0 {
			return 1
		}
	}
	return 0
}
