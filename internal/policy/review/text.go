package review

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/cedar-policy/cedar-go"

	"bailey"
	"bailey/internal/policy"
)

// cedarLiteral formats text as a Cedar string. No text can end the string literal early.
func cedarLiteral(s string) string { return string(cedar.String(s).MarshalCedar()) }

// prefixPattern returns a pattern for every text that starts with s. A star in s is literal.
func prefixPattern(s string) string {
	q := cedarLiteral(s)
	return strings.ReplaceAll(q[:len(q)-1], "*", `\*`) + `*"`
}

// hasHiddenRune reports whether a text has hidden characters, which a reader would not see. A policy must not contain
// it in any form.
func hasHiddenRune(s string) bool { return strings.ContainsFunc(s, policy.IsHiddenRune) }

var bareName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// isReservedWord reports whether a word must be quoted to be an attribute.
func isReservedWord(name string) bool {
	return slices.Contains([]string{"true", "false", "if", "then", "else", "in", "is", "like", "has", "__cedar"}, name)
}

// inputExpr returns the expression for an input of a call and the condition that tests whether it is present.
func inputExpr(name string) (expr, guard string) {
	if bareName().MatchString(name) && !isReservedWord(name) {
		return "context.input." + name, "context.input has " + name
	}
	return "context.input[" + cedarLiteral(name) + "]", "context.input has " + cedarLiteral(name)
}

func setOf(literals []string) string { return "[" + strings.Join(literals, ", ") + "]" }

// commentLine makes untrusted text safe for a comment: one line of visible ASCII.
func commentLine(s string) string {
	const most = 200
	var b strings.Builder
	for _, c := range s {
		if b.Len() > most {
			return b.String() + "..."
		}
		if c < ' ' || c > '~' {
			c = '?'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// ruleID returns the id of a rule generated for an action. The kind comes first, so that no action name can imitate it.
func ruleID(kind string, id bailey.CapabilityID) string {
	name := strings.ToLower(string(id))
	if name != string(id) || len(name) > 40 {
		name = name[:min(len(name), 30)] + "-" + policy.Digest([]policy.Source{{Name: string(id)}})[:10]
	}
	return kind + "-" + name
}
