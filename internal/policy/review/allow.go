package review

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
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
	// Where narrows a permit to calls of an agent's own tools: the exact "command", "cwd", "tool" or "path", or the "host" of an
	// address.
	Where map[string]string `json:"where,omitempty"`
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
	for name := range w.Where {
		if !slices.Contains([]string{"command", "cwd", "tool", "path", "host"}, name) || !act.Own {
			return nil, Written{}, bailey.Invalid.Errorf("use bailey allow", "a rule for %s cannot be narrowed by %q", w.Capability, name)
		}
	}
	if w.Forbid && !w.Until.IsZero() {
		return nil, Written{}, bailey.Invalid.New("a rule that denies has no end", "leave --until out")
	}
	out := Written{Rule: w.freeID(e)}
	edits := w.dropOpposite(e, files)
	var split []string // asking rules for the capability alone
	if !w.Forbid {
		for _, r := range e.RulesFor(w.Capability) {
			if !r.Asks || r.BuiltIn && (r.ID == "changed-tool" || r.ID == "opaque-input") { // both are about few calls
				continue
			}
			i, start := findRule(files, r)
			if i < 0 || act.Reversibility == "irreversible" || !alwaysAsks(r) {
				out.Asks = append(out.Asks, r.ID)
				continue
			}
			end := start + len(r.Text) - len(";")
			exception := w.exception(act)
			if len(w.Where) > 0 && !strings.Contains(r.Text, "action == Action::"+cedarLiteral(string(w.Capability))+",") {
				exception = w.namedAction()
				split = append(split, w.splitRule(e, r, act))
			}
			edits = append(edits, edit{i, end, end, "\n" + exception})
			out.Lifted = append(out.Lifted, r.ID)
		}
	}
	files = applyEdits(files, edits)
	rule := strings.Join(append([]string{w.formatRule(out.Rule, act)}, split...), "\n")
	if i := slices.IndexFunc(files, func(s policy.Source) bool { return s.Name == WishFile }); i >= 0 {
		files[i].Text = []byte(strings.TrimLeft(string(files[i].Text)+"\n"+rule, "\n"))
	} else {
		files = append(files, policy.Source{Name: WishFile, Text: []byte(rule)})
	}
	return files, out, nil
}

// namedAction returns the clause with which a rule leaves a capability to another rule.
func (w Wish) namedAction() string {
	return "unless { action == Action::" + cedarLiteral(string(w.Capability)) + " }"
}

// splitRule returns a copy of an asking rule for the capability alone, with the exception. An exception that reads the input
// cannot be in a rule for several capabilities, because the others have no such input.
func (w Wish) splitRule(e *policy.Engine, r *policy.LoadedRule, act policy.Action) string {
	id := freeName(e, string(r.ID)+"-"+string(w.Capability))
	approval := ""
	if i := strings.Index(r.Text, "@approval("); i >= 0 {
		approval = r.Text[i : i+strings.Index(r.Text[i:], ")")+1]
	}
	return fmt.Sprintf("// %s asks about %s by this rule\n@id(%q)\n@reason(%s)\n%s\nforbid (principal, action == Action::%s, resource)\n%s\n%s;\n",
		commentLine(string(r.ID)), w.Capability, id, cedarLiteral(r.Reason), approval, cedarLiteral(string(w.Capability)),
		"unless { context.approvals.contains("+cedarLiteral(string(id))+") }", w.exception(act))
}

// edit replaces a part of a file, by its index, with a text.
type edit struct {
	file, start, end int
	text             string
}

// applyEdits returns the changed files. The edits do not overlap.
func applyEdits(files []policy.Source, edits []edit) []policy.Source {
	files = slices.Clone(files)
	slices.SortFunc(edits, func(a, b edit) int { return b.start - a.start }) // offsets before an edit stay valid
	for _, c := range edits {
		t := files[c.file].Text
		files[c.file].Text = slices.Concat(t[:c.start], []byte(c.text), t[c.end:])
	}
	return files
}

// findRule returns the file of a rule, as an index, and the offset of its text. The offset decides, because the same text
// may also be in a comment. file is -1 if the rule is not in these files.
func findRule(files []policy.Source, r *policy.LoadedRule) (file, start int) {
	name, start := r.Place()
	file = slices.IndexFunc(files, func(s policy.Source) bool {
		return s.Name == name && start <= len(s.Text) && strings.HasPrefix(string(s.Text[start:]), r.Text)
	})
	return file, start
}

// dropOpposite removes rules of earlier wishes that contradict this one: permits that the new forbid covers, which would
// never apply, with their exceptions in asking rules; or the forbid of the same agents and directories, which the new
// permit replaces. Rules that a person wrote or changed stay.
func (w Wish) dropOpposite(e *policy.Engine, files []policy.Source) (edits []edit) {
	var exceptions []string
	for _, r := range e.RulesFor(w.Capability) {
		i, start := findRule(files, r)
		if i < 0 || files[i].Name != WishFile || r.Asks || r.IsPermit() != w.Forbid {
			continue
		}
		text := string(files[i].Text)
		above, ok := w.commentAbove(text[:start])
		body := r.Text[strings.Index(r.Text, "\n"+effectOf(!w.Forbid)+" (")+1:]
		if !ok || !w.contradictsRule(body) || !w.Forbid && body != (Wish{Capability: w.Capability, Forbid: true, Agent: w.Agent, Dir: w.Dir}).formatBody(policy.Action{}) {
			continue
		}
		end := start + len(r.Text)
		end += len(text[end:]) - len(strings.TrimLeft(text[end:], "\n"))
		edits = append(edits, edit{i, above, end, ""})
		exceptions = append(exceptions, "\n"+exceptionOf(w.Capability, body))
	}
	for _, r := range e.RulesFor(w.Capability) {
		i, start := findRule(files, r)
		if i < 0 || !r.Asks {
			continue
		}
		for _, x := range exceptions {
			if at := strings.Index(r.Text, x); at >= 0 {
				edits = append(edits, edit{i, start + at, start + at + len(x), ""})
			}
		}
	}
	return edits
}

// commentAbove returns the offset of the line above a rule, if it is the comment of an earlier wish with the opposite effect.
func (w Wish) commentAbove(before string) (at int, ok bool) {
	line, ok := strings.CutSuffix(before, "\n")
	if !ok {
		return 0, false
	}
	at = strings.LastIndex(line, "\n") + 1
	opposite := Wish{Capability: w.Capability, Forbid: !w.Forbid}.Command()
	return at, line[at:] == "// "+opposite || strings.HasPrefix(line[at:], "// "+opposite+" ")
}

// contradictsRule reports whether the text of a rule of an earlier wish with the opposite effect is about the same agents
// and directories or, for a forbid, about some of them.
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

func effectOf(forbid bool) string {
	if forbid {
		return "forbid"
	}
	return "permit"
}

// ruleHead returns the effect and the scope of the rule.
func (w Wish) ruleHead() string {
	principal := "principal"
	if w.Agent != "" {
		principal += " == Agent::" + cedarLiteral(w.Agent)
	}
	return fmt.Sprintf("%s (%s, action == Action::%s, resource)", effectOf(w.Forbid), principal, cedarLiteral(string(w.Capability)))
}

// alwaysAsks reports whether an asking rule has no condition but its own grant, and exceptions for capabilities.
func alwaysAsks(r *policy.LoadedRule) bool {
	grants := 0
	for _, c := range r.AST.Conditions {
		parts := policy.SplitConjuncts(c.Body)
		switch {
		case c.Condition != ast.ConditionUnless:
			return false
		case namesAction(parts[0]):
		case len(parts) == 1:
			grants++
		default:
			return false
		}
	}
	return grants == 1 // it does not load without its grant
}

// namesAction matches action == Action::"…", with which an exception begins.
func namesAction(n ast.IsNode) bool {
	eq, ok := n.(ast.NodeTypeEquals)
	if !ok {
		return false
	}
	v, ok := eq.Left.(ast.NodeTypeVariable)
	_, lit := eq.Right.(ast.NodeValue)
	return ok && lit && v.Name == "action"
}

// freeID returns an ID that no rule of the policy has.
func (w Wish) freeID(e *policy.Engine) bailey.RuleID {
	verb := "allow"
	if w.Forbid {
		verb = "deny"
	}
	return freeName(e, ruleID(verb, w.Capability))
}

// freeName returns name, with a number behind it if a rule of the policy already has it.
func freeName(e *policy.Engine, name string) bailey.RuleID {
	for n := 1; ; n++ {
		id := bailey.RuleID(name)
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
	b.WriteString(w.formatBody(act) + "\n")
	return b.String()
}

// formatBody returns the text of the rule without comment and annotations.
func (w Wish) formatBody(act policy.Action) string {
	var b bytes.Buffer
	b.WriteString(w.ruleHead())
	writeClauses(&b, w.conditions(act))
	b.WriteString(";")
	return b.String()
}

// conditions returns the conditions of the rule, each on one line.
func (w Wish) conditions(act policy.Action) []string {
	conditions := append(w.placeAndTime(), w.inputConditions()...)
	if w.Forbid {
		return conditions
	}
	switch {
	case act.Own:
		conditions = append(conditions, `context.cage == "agent"`)
	case !slices.Contains(act.Waivers, "isolation"):
		conditions = append(conditions, `context.cage != "none" && !context.absent.contains("landlock")`)
	}
	if len(w.Egress) > 0 {
		conditions = append(conditions, literalSet(w.Egress)+".containsAll(context.egress)")
	}
	if len(act.Waivers) > 0 {
		conditions = append(conditions, literalSet(act.Waivers)+".containsAll(context.waivers)")
	}
	return conditions
}

// inputConditions returns the conditions on the input.
func (w Wish) inputConditions() (list []string) {
	for _, name := range slices.Sorted(maps.Keys(w.Where)) {
		value := w.Where[name]
		switch name {
		case "command":
			list = append(list, "context.input.literal && context.input.command == "+cedarLiteral(value))
		case "host":
			list = append(list, "context.input.url like "+prefixPattern("https://"+value+"/"))
		default:
			list = append(list, "context.input has "+name+" && context.input."+name+" == "+cedarLiteral(value))
		}
	}
	return list
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

// exception returns the clause with which an asking rule does not ask about the calls that the permit allows.
func (w Wish) exception(act policy.Action) string {
	return exceptionOf(w.Capability, w.formatBody(act))
}

// exceptionOf returns the exception for the text of a permit of an earlier wish: it has the permit's conditions, and calls
// for which that permit is not sufficient still ask, even if another rule permits them.
func exceptionOf(id bailey.CapabilityID, permit string) string {
	head, rest, _ := strings.Cut(strings.TrimSuffix(permit, ";"), "\n")
	list := []string{"action == Action::" + cedarLiteral(string(id))}
	if agent, ok := strings.CutPrefix(head, "permit (principal == "); ok {
		agent, _, _ = strings.Cut(agent, ", action == ")
		list = append(list, "principal == "+agent)
	}
	for _, line := range strings.Split(rest, "\n") {
		if c, ok := strings.CutPrefix(line, "when { "); ok {
			list = append(list, "("+strings.TrimSuffix(c, " }")+")")
		}
	}
	for _, attribute := range []string{"context.egress", "context.waivers", "context.restores"} {
		if !strings.Contains(rest, ".containsAll("+attribute+") }") {
			list = append(list, attribute+".isEmpty()")
		}
	}
	return "unless { " + strings.Join(list, " && ") + " }"
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
	for _, name := range slices.Sorted(maps.Keys(w.Where)) {
		words = append(words, "where", name, "is", strconv.Quote(w.Where[name]))
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
