package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go"
	cast "github.com/cedar-policy/cedar-go/ast"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// LoadedRule is one parsed Cedar policy with its annotations.
type LoadedRule struct {
	bailey.Rule
	Policy  *cedar.Policy
	AST     *ast.Policy
	Text    string // source text
	Asks    bool   // has @approval
	BuiltIn bool   // not from the policy's files

	file  string
	line  int
	start int            // offset of Text in the file
	looks []cedar.String // attributes of context that its conditions read, without approvals
}

// IsPermit reports whether the rule is a permit.
func (r *LoadedRule) IsPermit() bool { return r.AST.Effect == ast.EffectPermit }

// Place returns the file of the rule and the offset of its text in it.
func (r *LoadedRule) Place() (file string, start int) { return r.file, r.start }

func (r *LoadedRule) isUnscoped() bool {
	_, all := r.AST.Action.(ast.ScopeTypeAll)
	return all
}

// namesAction reports whether the action scope names this action itself, and not only a group.
func (r *LoadedRule) namesAction(uid cedar.EntityUID) bool {
	return slices.Contains(scopeUIDs(r.AST.Action), uid)
}

// collectReads sets looks. A rule that uses context without an attribute does not load, so no other access is possible.
func (r *LoadedRule) collectReads() {
	note := func(of ast.IsNode, name cedar.String) {
		if IsContext(of) && slices.Contains(contextAttributes(), name) && !slices.Contains(r.looks, name) {
			r.looks = append(r.looks, name)
		}
	}
	for _, c := range r.AST.Conditions {
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
func (r *LoadedRule) looksAt(name cedar.String) bool { return slices.Contains(r.looks, name) }

// Only lower-case ASCII is allowed, so that two ids that look alike are equal.
var idForm = lazyRegexp(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxReason limits a reason, in bytes. Every answer and receipt contains it.
const maxReason = 400

// parseAnnotations parses the annotations of a rule. It returns one sentence for each invalid annotation.
func (r *LoadedRule) parseAnnotations() (bad []string) {
	note := func(format string, a ...any) { bad = append(bad, fmt.Sprintf(format, a...)) }
	for _, a := range r.AST.Annotations {
		v := string(a.Value)
		switch a.Key {
		case "id":
			if !idForm().MatchString(v) {
				note("@id(%q) must be 1 to 64 lower case letters, digits, '.', '_' or '-'", v)
				continue
			}
			r.ID = bailey.RuleID(v)
		case "reason":
			if v == "" || len(v) > maxReason ||
				strings.ContainsFunc(v, func(c rune) bool { return c == '\n' || IsHiddenRune(c) }) {
				note("@reason must be one line of at most %d visible bytes", maxReason)
				continue
			}
			r.Reason = v
		case "approval":
			if err := r.parseApproval(v); err != nil {
				note("@approval(%q): %v", v, err)
			}
		default:
			note("@%s is not a known annotation: use @id, @reason and @approval", a.Key)
		}
	}
	if r.ID == "" && len(bad) == 0 {
		note("has no @id: begin the rule with @id(\"a-name\")")
	}
	if !r.IsPermit() && r.Reason == "" {
		note("is a forbid without @reason: add the text that the agent is told")
	}
	if r.IsPermit() && r.Asks {
		note("@approval is on a permit: only a forbid can ask")
	}
	return bad
}

// Limits of an approval.
const (
	MaxCount   = 16 // answers that a rule may ask for
	maxTTL     = 24 * time.Hour
	defaultTTL = 10 * time.Minute
)

// IsRole reports whether text is a valid name of a role, which has the form of an id.
func IsRole(text string) bool { return idForm().MatchString(text) }

var (
	countForm = lazyRegexp(`^[1-9][0-9]?$`)
	ttlForm   = lazyRegexp(`^[1-9][0-9]{0,5}[smh]$`)
)

// parseApproval parses "role=sre,level=signed-touch,count=1,ttl=10m": at least one key, each at most once, no spaces.
func (r *LoadedRule) parseApproval(s string) error {
	r.Asks, r.Count, r.TTL, r.Session = true, 1, defaultTTL, false
	seen := map[string]bool{}
	for _, part := range strings.Split(s, ",") {
		key, value, _ := strings.Cut(part, "=")
		if seen[key] {
			return fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if err := r.setApprovalKey(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (r *LoadedRule) setApprovalKey(key, value string) error {
	switch key {
	case "role":
		if !IsRole(value) {
			return fmt.Errorf("role must be lower case letters, digits, '.', '_' or '-'")
		}
		r.Role = value
	case "level":
		// An unknown level does not load, because a level of a later version must not be mistaken for a present one.
		if l := bailey.Level(value); l == "" || !l.Meets("") {
			return fmt.Errorf("level must be %s, %s or %s", bailey.Local, bailey.SignedSoftware, bailey.SignedTouch)
		}
		r.Level = bailey.Level(value)
	case "count":
		n, _ := strconv.Atoi(value)
		if !countForm().MatchString(value) || n > MaxCount {
			return fmt.Errorf("count must be a number from 1 to %d", MaxCount)
		}
		r.Count = n
	case "ttl":
		d, err := time.ParseDuration(value)
		if !ttlForm().MatchString(value) || err != nil || d > maxTTL {
			return fmt.Errorf("ttl must be a number and s, m or h, at most 24h")
		}
		r.TTL = d
	case "for":
		if value != "session" {
			return fmt.Errorf("for must be session")
		}
		r.Session = true
	default:
		return fmt.Errorf("%q is not one of role=, level=, count=, ttl= and for=", key)
	}
	return nil
}

// CanonicalText returns the rule in Cedar's own format, with annotations and without comments.
func (r *LoadedRule) CanonicalText() string {
	q := *r.AST
	q.Annotations = slices.Clone(q.Annotations)
	slices.SortFunc(q.Annotations,
		func(a, b ast.AnnotationType) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return string((*cast.Policy)(&q).MarshalCedar())
}
