package policy

import (
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// Source is one policy file.
type Source struct {
	Name string // file name, for positions
	Text []byte
}

// Config is what an Engine is made of. The zero Config loads and denies everything.
type Config struct {
	Sources []Source
	Actions []Action
}

// Engine decides. It is immutable and may be used by many goroutines at once.
type Engine struct {
	slices  map[bailey.CapabilityID]*slice
	common  []*rule // rules without an action scope: part of every slice
	rules   map[bailey.RuleID]*rule
	blanket blanket
	digest  string
}

// slice is what can match one action. A rule whose action scope leaves the action out never holds for it,
// so leaving the rule out changes no decision, and the cost of a call does not grow with other calls' rules.
type slice struct {
	act   *action
	own   []*rule
	reads []cedar.String // attributes of context that its rules and the common ones look at
}

//go:embed starter.cedar
var starter []byte

//go:embed starter-elsewhere.cedar
var elsewhere []byte

//go:embed starter-agents.cedar
var agents []byte

//go:embed starter.test.yaml
var starterTests []byte

//go:embed starter.budgets.yaml
var starterBudgets []byte

//go:embed opaque.cedar
var opaque []byte

//go:embed changed.cedar
var changed []byte

//go:embed operator.cedar
var operator []byte

// The built-in rules ask for what no rule of one's own could have judged: inputs without a type, and a program
// that others than root could write and that is not what it was. And they deny what is never an agent's: Bailey's own verbs for
// operators, in a shell that an agent runs.
const (
	opaqueRule   bailey.RuleID = "opaque-input"
	changedRule  bailey.RuleID = "changed-tool"
	shellAction                = "shell.exec"
	operatorRule bailey.RuleID = "operator-verb"
)

// Starter returns the policy a new home begins with.
func Starter() Source { return Source{Name: "starter.cedar", Text: slices.Clone(starter)} }

// StarterTests and StarterBudgets stand beside [Starter], for whoever goes on from it.
func StarterTests() Source {
	return Source{Name: "starter.test.yaml", Text: slices.Clone(starterTests)}
}

func StarterBudgets() Source { return Source{Name: "budgets.yaml", Text: slices.Clone(starterBudgets)} }

// Agents returns what stands beside [Starter] for what agents do by themselves. It names actions of pack base.
func Agents() Source { return Source{Name: "starter-agents.cedar", Text: slices.Clone(agents)} }

// Elsewhere returns what stands beside [Starter] on a platform without a cage. Which platform that is, the caller
// says: this package knows of none.
func Elsewhere() Source {
	return Source{Name: "starter-elsewhere.cedar", Text: slices.Clone(elsewhere)}
}

// Load parses the sources, checks every rule against the schema of the actions and slices them by action.
// A policy with any finding does not load; the error lists all of them with file, line and rule.
func Load(c Config) (*Engine, error) {
	m, err := newModel(c.Actions)
	if err != nil {
		return nil, err
	}
	var found findings
	sources := sorted(c.Sources)
	found.names(sources)
	var rules []*rule
	for _, s := range sources {
		rules = append(rules, found.parse(s)...)
	}
	rules = withBuiltin(rules, opaqueRule, Source{"built-in/opaque.cedar", opaque}, &found)
	rules = withBuiltin(rules, changedRule, Source{"built-in/changed.cedar", changed}, &found)
	if m.byUID[actionUID(shellAction)] != nil {
		rules = withBuiltin(rules, operatorRule, Source{"built-in/operator.cedar", operator}, &found)
	}
	found.unique(rules)
	for _, r := range rules {
		if r.builtin && found.err() != nil { // what it would say follows from the faults of others
			continue
		}
		found.check(m, r)
	}
	forbidden := newBlanket(rules)
	found.shadowed(m, rules, forbidden)
	if err := found.err(); err != nil {
		return nil, err
	}
	e := assemble(m, rules)
	e.blanket, e.digest = forbidden, digest(sources)
	return e, nil
}

// withBuiltin adds a built-in rule unless the policy brings one of that name.
func withBuiltin(rules []*rule, id bailey.RuleID, s Source, f *findings) []*rule {
	i := slices.IndexFunc(rules, func(r *rule) bool { return r.ID == id })
	if i < 0 {
		own := f.parse(s)
		for _, r := range own {
			r.builtin = true
		}
		return append(rules, own...)
	}
	if rules[i].permits() {
		f.rule(rules[i], "takes the place of a built-in forbid: make it a forbid")
	}
	return rules
}

func assemble(m *model, rules []*rule) *Engine {
	e := &Engine{slices: map[bailey.CapabilityID]*slice{}, rules: map[bailey.RuleID]*rule{}}
	for _, a := range m.actions {
		e.slices[a.ID] = &slice{act: a}
	}
	for _, r := range rules {
		e.rules[r.ID] = r
		if r.unscoped() {
			e.common = append(e.common, r)
			continue
		}
		for _, a := range m.scope(r.ast.Action) {
			s := e.slices[a.ID]
			s.own = append(s.own, r)
		}
	}
	common := looked(nil, e.common)
	for _, s := range e.slices {
		s.reads = looked(common, s.own)
	}
	return e
}

// Len is how many rules there are, the built-in ones included.
func (e *Engine) Len() int { return len(e.rules) }

// Asks is how many rules of the policy's own ask about something that can be called.
func (e *Engine) Asks() int {
	asking := map[bailey.RuleID]bool{}
	note := func(rules []*rule) {
		for _, r := range rules {
			if r.asks && !r.builtin {
				asking[r.ID] = true
			}
		}
	}
	for _, s := range e.slices {
		note(s.own)
	}
	if len(e.slices) > 0 {
		note(e.common)
	}
	return len(asking)
}

// looked adds to a list the attributes of context that rules look at. Those of approvals are known without.
func looked(list []cedar.String, rules []*rule) []cedar.String {
	list = slices.Clone(list)
	for _, r := range rules {
		for _, name := range r.looks {
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

// Digest is that of the engine that the sources load to, whether they load or not.
func Digest(sources []Source) string { return digest(sorted(sources)) }

// Digest returns the SHA-256 of the sources in order of name, in hex. Each name and each text goes in
// behind its length (8 bytes, big endian), so no two sets of files share an encoding.
func (e *Engine) Digest() string { return e.digest }

func digest(sources []Source) string {
	h := sha256.New()
	put := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, s := range sources {
		put([]byte(s.Name))
		put(s.Text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sorted(s []Source) []Source {
	s = slices.Clone(s)
	slices.SortStableFunc(s, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	return s
}
