package policy

import (
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// literal writes a text as a string of Cedar. No text ends the string it stands in.
func literal(s string) string { return string(cedar.String(s).MarshalCedar()) }

// below is a pattern for all that begins with a text. A star in the text means itself.
func below(s string) string {
	q := literal(s)
	return strings.ReplaceAll(q[:len(q)-1], "*", `\*`) + `*"`
}

// invisible tells of a text that no policy may hold, however it is written: who reads the rule would not see it.
func invisible(s string) bool { return strings.ContainsFunc(s, hidden) }

var bareName = lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// reserved words are no attributes unless they are quoted.
func reserved(name string) bool {
	return slices.Contains([]string{"true", "false", "if", "then", "else", "in", "is", "like", "has", "__cedar"}, name)
}

// inputExpr writes an input of a call, and the test that it is there.
func inputExpr(name string) (expr, guard string) {
	if bareName().MatchString(name) && !reserved(name) {
		return "context.input." + name, "context.input has " + name
	}
	return "context.input[" + literal(name) + "]", "context.input has " + literal(name)
}

func setOf(literals []string) string { return "[" + strings.Join(literals, ", ") + "]" }

// commentLine makes a foreign text fit for a comment: one line of visible ASCII.
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

// ruleID is the id of a rule that was made for an action. What it is comes first: what an action is called cannot look
// like it.
func ruleID(kind string, id bailey.CapabilityID) string {
	name := strings.ToLower(string(id))
	if name != string(id) || len(name) > 40 {
		name = name[:min(len(name), 30)] + "-" + digest([]Source{{Name: string(id)}})[:10]
	}
	return kind + "-" + name
}
