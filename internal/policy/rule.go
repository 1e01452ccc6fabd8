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

// rule is one parsed Cedar policy with its annotations.
type rule struct {
	bailey.Rule
	policy  *cedar.Policy
	ast     *ast.Policy
	file    string
	line    int
	text    string         // source text
	asks    bool           // has @approval
	looks   []cedar.String // attributes of context that its conditions read, without approvals
	builtin bool           // not from the policy's files
}

func (r *rule) isPermit() bool { return r.ast.Effect == ast.EffectPermit }

func (r *rule) isUnscoped() bool {
	_, all := r.ast.Action.(ast.ScopeTypeAll)
	return all
}

// namesAction reports whether the action scope names this action itself, and not only a group.
func (r *rule) namesAction(uid cedar.EntityUID) bool {
	return slices.Contains(scopeUIDs(r.ast.Action), uid)
}

// collectReads sets looks. A rule that uses context without an attribute does not load, so no other access is possible.
func (r *rule) collectReads() {
	note := func(of ast.IsNode, name cedar.String) {
		if isContext(of) && slices.Contains(contextAttributes(), name) && !slices.Contains(r.looks, name) {
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

// looksAt reports whether a condition reads an attribute of context.
func (r *rule) looksAt(name cedar.String) bool { return slices.Contains(r.looks, name) }

// Only lower-case ASCII is allowed, so that two ids that look alike are equal.
var idForm = lazyRegexp(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxReason limits a reason, in bytes. Every answer and receipt contains it.
const maxReason = 400

// parseAnnotations parses the annotations of a rule. It returns one sentence for each invalid annotation.
func (r *rule) parseAnnotations() (bad []string) {
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
			if v == "" || len(v) > maxReason ||
				strings.ContainsFunc(v, func(c rune) bool { return c == '\n' || isHiddenRune(c) }) {
				note("@reason wants one line of at most %d visible bytes", maxReason)
				continue
			}
			r.Reason = v
		case "approval":
			if err := r.parseApproval(v); err != nil {
				note("@approval(%q): %v", v, err)
			}
		default:
			note("@%s is not an annotation here: there are @id, @reason and @approval", a.Key)
		}
	}
	if r.ID == "" && len(bad) == 0 {
		note("has no @id: begin the rule with @id(\"a-name\")")
	}
	if !r.isPermit() && r.Reason == "" {
		note("is a forbid without @reason: say what the agent is to be told")
	}
	if r.isPermit() && r.asks {
		note("@approval stands on a permit: only a forbid can ask")
	}
	return bad
}

// Limits of an approval.
const (
	maxCount   = 16
	maxTTL     = 24 * time.Hour
	defaultTTL = 10 * time.Minute
)

var (
	roleForm  = lazyRegexp(`^[a-z0-9][a-z0-9._-]{0,63}$`)
	countForm = lazyRegexp(`^[1-9][0-9]?$`)
	ttlForm   = lazyRegexp(`^[1-9][0-9]{0,5}[smh]$`)
)

// parseApproval parses "role=sre,level=signed-touch,count=1,ttl=10m": at least one key, each at most once, no spaces.
func (r *rule) parseApproval(s string) error {
	r.asks, r.Count, r.TTL = true, 1, defaultTTL
	seen := map[string]bool{}
	for _, part := range strings.Split(s, ",") {
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			return fmt.Errorf("%s stands twice", key)
		}
		seen[key] = true
		if err := r.setApprovalKey(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (r *rule) setApprovalKey(key, value string) error {
	switch key {
	case "role":
		if !roleForm().MatchString(value) {
			return fmt.Errorf("role wants lower case letters, digits, '.', '_' or '-'")
		}
		r.Role = value
	case "level":
		// An unknown level does not load, because a level of a later version must not be mistaken for a present one.
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
