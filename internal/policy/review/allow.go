package review

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
	"bailey/internal/policy"
)

// Wish is a rule that an operator asks for in one command: bailey allow, or bailey deny-rule.
type Wish struct {
	Capability bailey.CapabilityID `json:"capability"`
	Forbid     bool                `json:"forbid,omitempty"`
	Reason     string              `json:"reason,omitempty"` // of a forbid
	Agent      string              `json:"agent,omitempty"`  // empty for every agent
	Dir        string              `json:"dir,omitempty"`    // calls that start there, or below; empty for every directory
	Until      time.Time           `json:"until,omitzero"`
	Egress     []string            `json:"egress,omitempty"` // host:port that a permit allows
}

// WishFile is the file of a policy that [Wish.Write] adds rules to.
const WishFile = "allowed.cedar"

// Written describes the result of [Wish.Write].
type Written struct {
	Rule   bailey.RuleID   `json:"rule"`
	Lifted []bailey.RuleID `json:"lifted,omitempty"` // asking rules that got an exception
	Asks   []bailey.RuleID `json:"asks,omitempty"`   // asking rules that still ask for some calls
}

// Write adds the rule to the files of a policy that e loaded, and returns the changed list. If asking rules of these
// files always ask for the capability, a permit adds an exception to them, unless the capability is irreversible.
func (w Wish) Write(e *policy.Engine, files []policy.Source) ([]policy.Source, Written, error) {
	act, ok := e.Action(w.Capability)
	if !ok {
		return nil, Written{}, bailey.NotFound.Errorf("run bailey capabilities search WORDS", "there is no capability %q", w.Capability)
	}
	if w.Forbid && !w.Until.IsZero() {
		return nil, Written{}, bailey.Invalid.New("a rule that denies has no end", "leave --until out")
	}
	files = slices.Clone(files)
	out := Written{Rule: w.freeID(e)}
	if !w.Forbid {
		for _, r := range e.RulesFor(w.Capability) {
			if !r.Asks || r.BuiltIn {
				continue
			}
			i := slices.IndexFunc(files, func(s policy.Source) bool { return strings.Contains(string(s.Text), r.Text) })
			if i < 0 || act.Reversibility == "irreversible" || !alwaysAsks(r) {
				out.Asks = append(out.Asks, r.ID)
				continue
			}
			exception := strings.TrimSuffix(r.Text, ";") + "\nunless { " + strings.Join(w.exceptionFor(), " && ") + " };"
			files[i].Text = []byte(strings.Replace(string(files[i].Text), r.Text, exception, 1))
			out.Lifted = append(out.Lifted, r.ID)
		}
	}
	files = w.dropOpposite(e, files)
	rule := w.formatRule(out.Rule, act)
	if i := slices.IndexFunc(files, func(s policy.Source) bool { return s.Name == WishFile }); i >= 0 {
		files[i].Text = []byte(strings.TrimLeft(string(files[i].Text)+"\n"+rule, "\n"))
	} else {
		files = append(files, policy.Source{Name: WishFile, Text: []byte(rule)})
	}
	return files, out, nil
}

// dropOpposite removes rules of earlier wishes that contradict this one: permits that the new forbid covers, which would
// never apply, or the forbid of the same agents and directories, which the new permit replaces.
func (w Wish) dropOpposite(e *policy.Engine, files []policy.Source) []policy.Source {
	i := slices.IndexFunc(files, func(s policy.Source) bool { return s.Name == WishFile })
	if i < 0 {
		return files
	}
	text := string(files[i].Text)
	for _, r := range e.RulesFor(w.Capability) {
		before, after, found := strings.Cut(text, r.Text)
		if !found || r.IsPermit() != w.Forbid || !w.contradictsRule(r.Text) {
			continue
		}
		if at := strings.LastIndex(before, "// bailey "); at >= 0 && strings.Count(before[at:], "\n") == 1 { // the comment above the rule
			before = before[:at]
		}
		text = before + strings.TrimLeft(after, "\n")
	}
	files[i].Text = []byte(text)
	return files
}

// contradictsRule reports whether a rule of an earlier wish with the opposite effect is about the same agents and directories
// or, for a forbid, about some of them.
func (w Wish) contradictsRule(rule string) bool {
	for _, narrowed := range []struct {
		by   bool
		part string
		has  bool
	}{
		{w.Agent != "", "(principal == Agent::" + cedarLiteral(w.Agent) + ",", strings.Contains(rule, "(principal == ")},
		{w.Dir != "", "when { " + w.dirCondition() + " }", strings.Contains(rule, "when { context.dir == ")},
	} {
		if narrowed.by && !strings.Contains(rule, narrowed.part) || !narrowed.by && !w.Forbid && narrowed.has {
			return false
		}
	}
	return strings.Contains(rule, ", action == Action::"+cedarLiteral(string(w.Capability))+", resource)")
}

// ruleHead returns the effect and the scope of the rule.
func (w Wish) ruleHead() string {
	principal, effect := "principal", "permit"
	if w.Agent != "" {
		principal += " == Agent::" + cedarLiteral(w.Agent)
	}
	if w.Forbid {
		effect = "forbid"
	}
	return fmt.Sprintf("%s (%s, action == Action::%s, resource)", effect, principal, cedarLiteral(string(w.Capability)))
}

// alwaysAsks reports whether an asking rule has no condition but its own grant.
func alwaysAsks(r *policy.LoadedRule) bool {
	return len(r.AST.Conditions) == 1 && r.AST.Conditions[0].Condition == ast.ConditionUnless &&
		len(policy.SplitConjuncts(r.AST.Conditions[0].Body)) == 1
}

// freeID returns an ID that no rule of the policy has.
func (w Wish) freeID(e *policy.Engine) bailey.RuleID {
	verb := "allow"
	if w.Forbid {
		verb = "deny"
	}
	for n := 1; ; n++ {
		id := bailey.RuleID(ruleID(verb, w.Capability))
		if n > 1 {
			id += bailey.RuleID(fmt.Sprintf("-%d", n))
		}
		if e.Rule(id) == nil {
			return id
		}
	}
}

// formatRule returns the text of the rule, with the command that wrote it.
func (w Wish) formatRule(id bailey.RuleID, act policy.Action) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n@id(%q)\n", commentLine(w.Command()), id)
	if w.Forbid {
		fmt.Fprintf(&b, "@reason(%s)\n", cedarLiteral(w.Reason))
	}
	b.WriteString(w.ruleHead())
	conditions := w.placeAndTime()
	if !w.Forbid {
		switch {
		case act.Own:
			conditions = append(conditions, `context.cage == "agent"`)
		case !slices.Contains(act.Waivers, "isolation"):
			conditions = append(conditions, `!context.absent.contains("landlock")`)
		}
		if len(w.Egress) > 0 {
			conditions = append(conditions, literalSet(w.Egress)+".containsAll(context.egress)")
		}
		if len(act.Waivers) > 0 {
			conditions = append(conditions, literalSet(act.Waivers)+".containsAll(context.waivers)")
		}
	}
	writeClauses(&b, conditions)
	b.WriteString(";\n")
	return b.String()
}

// placeAndTime returns the conditions on place and time.
func (w Wish) placeAndTime() (list []string) {
	if w.Dir != "" {
		list = append(list, w.dirCondition())
	}
	if !w.Until.IsZero() {
		list = append(list, fmt.Sprintf("context.time.epoch < %d", w.Until.Unix()))
	}
	return list
}

func (w Wish) dirCondition() string {
	below := strings.TrimSuffix(w.Dir, "/") + "/"
	return fmt.Sprintf("context.dir == %s || context.dir like %s", cedarLiteral(w.Dir), prefixPattern(below))
}

// exceptionFor returns the condition under which an asking rule does not ask.
func (w Wish) exceptionFor() []string {
	list := []string{"action == Action::" + cedarLiteral(string(w.Capability))}
	if w.Agent != "" {
		list = append(list, "principal == Agent::"+cedarLiteral(w.Agent))
	}
	for _, c := range w.placeAndTime() {
		list = append(list, "("+c+")")
	}
	return list
}

// Command returns the command that asks for the rule.
func (w Wish) Command() string {
	words := []string{"bailey", "allow", string(w.Capability)}
	if w.Forbid {
		words[1] = "deny-rule"
	}
	if w.Dir != "" {
		words = append(words, "--here")
	}
	if w.Agent != "" {
		words = append(words, "--agent", w.Agent)
	}
	for _, h := range w.Egress {
		words = append(words, "--egress", h)
	}
	if !w.Until.IsZero() {
		words = append(words, "--until", w.Until.UTC().Format(time.RFC3339))
	}
	if w.Dir != "" {
		words = append(words, "in", filepath.Clean(w.Dir))
	}
	return strings.Join(words, " ")
}

func literalSet(words []string) string {
	quoted := make([]string, len(words))
	for i, s := range words {
		quoted[i] = cedarLiteral(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
