package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// rule is one parsed Cedar policy with what its annotations say.
type rule struct {
	bailey.Rule
	policy  *cedar.Policy
	ast     *ast.Policy
	file    string
	line    int
	text    string         // as written
	asks    bool           // carries @approval
	looks   []cedar.String // attributes of context that its conditions look at, approvals left out
	builtin bool           // not of the policy's files
}

func (r *rule) permits() bool { return r.ast.Effect == ast.EffectPermit }

func (r *rule) unscoped() bool {
	_, all := r.ast.Action.(ast.ScopeTypeAll)
	return all
}

// names says whether the action scope spells out this very action rather than a group it belongs to.
func (r *rule) names(uid cedar.EntityUID) bool { return slices.Contains(scoped(r.ast.Action), uid) }

// look fills in what the conditions look at. Context never stands alone in a rule that loads, so nothing else of it
// can be read.
func (r *rule) look() {
	note := func(of ast.IsNode, name cedar.String) {
		if isContext(of) && slices.Contains(attributes(), name) && !slices.Contains(r.looks, name) {
			r.looks = append(r.looks, name)
		}
	}
	for _, c := range r.ast.Conditions {
		ast.Inspect(ast.NewNode(c.Body), func(n ast.IsNode) bool {
			switch n := n.(type) {
			case ast.NodeTypeAccess:
				note(n.Arg, n.Value)
			case ast.NodeTypeHas:
				note(n.Arg, n.Value)
			}
			return true
		})
	}
}

// looksAt says whether a condition looks at an attribute of context.
func (r *rule) looksAt(name cedar.String) bool { return slices.Contains(r.looks, name) }

// Lower case and ASCII alone: two ids that look alike are the same id.
var idForm = lazy(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxReason bounds a reason in bytes: it goes into every answer and receipt.
const maxReason = 400

// annotate reads a rule's annotations. It returns one sentence for each that is wrong.
func (r *rule) annotate() (bad []string) {
	note := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	for _, a := range r.ast.Annotations {
		v := string(a.Value)
		switch a.Key {
		case "id":
			if !idForm().MatchString(v) {
				note("@id(%q) wants 1 to 64 lower case letters, digits, '.', '_' or '-'", v)
				continue
			}
			r.ID = bailey.RuleID(v)
		case "reason":
			if v == "" || len(v) > maxReason || strings.ContainsFunc(v, func(c rune) bool { return c == '\n' || hidden(c) }) {
				note("@reason wants one line of at most %d visible bytes", maxReason)
				continue
			}
			r.Reason = v
		case "approval":
			if err := r.approval(v); err != nil {
				note("@approval(%q): %v", v, err)
			}
		default:
			note("@%s is not an annotation here: there are @id, @reason and @approval", a.Key)
		}
	}
	if r.ID == "" && len(bad) == 0 {
		note("has no @id: begin the rule with @id(\"a-name\")")
	}
	if !r.permits() && r.Reason == "" {
		note("is a forbid without @reason: say what the agent is to be told")
	}
	if r.permits() && r.asks {
		note("@approval stands on a permit: only a forbid can ask")
	}
	return bad
}

// Bounds of an approval.
const (
	maxCount   = 16
	maxTTL     = 24 * time.Hour
	defaultTTL = 10 * time.Minute
)

var (
	roleForm  = lazy(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	countForm = lazy(`^[1-9][0-9]?$`)
	ttlForm   = lazy(`^[1-9][0-9]{0,5}[smh]$`)
)

// approval reads "role=sre,level=signed-touch,count=1,ttl=10m": each key at most once, at least one, no spaces.
func (r *rule) approval(s string) error {
	r.asks, r.Count, r.TTL = true, 1, defaultTTL
	seen := map[string]bool{}
	for _, part := range strings.Split(s, ",") {
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			return fmt.Errorf("%s stands twice", key)
		}
		seen[key] = true
		if err := r.term(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (r *rule) term(key, value string) error {
	switch key {
	case "role":
		if !roleForm().MatchString(value) {
			return fmt.Errorf("role wants lower case letters, digits, '.', '_' or '-'")
		}
		r.Role = value
	case "level":
		// A level that a later version knows must not be taken for one of now: what is none of these does not load.
		if l := bailey.Level(value); l == "" || !l.Meets("") {
			return fmt.Errorf("level wants %s, %s or %s", bailey.Local, bailey.SignedSoftware, bailey.SignedTouch)
		}
		r.Level = bailey.Level(value)
	case "count":
		n, _ := strconv.Atoi(value)
		if !countForm().MatchString(value) || n > maxCount {
			return fmt.Errorf("count wants a number from 1 to %d", maxCount)
		}
		r.Count = n
	case "ttl":
		d, err := time.ParseDuration(value)
		if !ttlForm().MatchString(value) || err != nil || d > maxTTL {
			return fmt.Errorf("ttl wants a number and s, m or h, at most 24h")
		}
		r.TTL = d
	default:
		return fmt.Errorf("%q is none of role=, level=, count= and ttl=", key)
	}
	return nil
}
