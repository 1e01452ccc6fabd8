package policy

import (
	"crypto/sha256"
	"embed"
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

// Config is the input of [Load]. With the zero Config, the policy loads and denies everything.
type Config struct {
	Sources []Source
	Actions []Action
}

// Engine decides. It is immutable and safe for concurrent use.
type Engine struct {
	slices  map[bailey.CapabilityID]*ruleSlice
	common  []*LoadedRule // rules without an action scope; they belong to every slice
	rules   map[bailey.RuleID]*LoadedRule
	blanket blanket
	digest  string
}

// ruleSlice is the set of rules that can match one action. A rule whose action scope excludes the action never holds
// for it. To omit it therefore changes no decision, and the cost of a call does not grow with the rules for other
// calls.
type ruleSlice struct {
	act   *action
	own   []*LoadedRule
	reads []cedar.String // attributes of context that its own and the common rules read
}

//go:embed *.cedar *.yaml starting/*.cedar starting/*.yaml
var ownFiles embed.FS

// embeddedSource returns a file of this package under another name.
func embeddedSource(file, name string) Source {
	text, err := ownFiles.ReadFile(file)
	if err != nil {
		panic(err) // the file is part of the program, and tests read each
	}
	return Source{Name: name, Text: text}
}

// The built-in rules ask if no rule of the policy could judge a call: inputs without a type, and a changed program that
// users other than root can write. A person must read a line for a source host that the validator does not accept. They
// also deny what agents must never do: operator commands of Bailey in a shell. And they ask about hosts in production and
// about sandboxes that are large or connect elsewhere, so that a policy need not repeat these rules.
const (
	opaqueRule    bailey.RuleID = "opaque-input"
	changedRule   bailey.RuleID = "changed-tool"
	shellAction                 = "shell.exec"
	operatorRule  bailey.RuleID = "operator-verb"
	requestAction               = "source.request"
	requestRule   bailey.RuleID = "host-requests-ask"
	applyAction                 = "source.apply"
	applyRule     bailey.RuleID = "host-changes-ask"
	prodRule      bailey.RuleID = "prod-hosts-ask"
	sandboxAction               = "sandbox.create"
	networkRule   bailey.RuleID = "sandbox-network-asks"
	sizeRule      bailey.RuleID = "sandbox-size-asks"
)

// Starter returns the policy of a new home.
func Starter() Source { return embeddedSource("starter.cedar", "starter.cedar") }

// StarterTests and StarterBudgets return the files that accompany [Starter], as a starting point for an operator.
func StarterTests() Source { return embeddedSource("starter.test.yaml", "starter.test.yaml") }

func StarterBudgets() Source { return embeddedSource("starter.budgets.yaml", "budgets.yaml") }

// Agents returns the rules that accompany [Starter] for calls that agents make themselves. They name actions of the
// base pack.
func Agents() Source { return embeddedSource("starter-agents.cedar", "starter-agents.cedar") }

// Sandboxes returns the rules that accompany [Starter] for sandboxes. They are the same in each [Starting] policy.
func Sandboxes() Source { return embeddedSource("starting/sandbox.cedar", "sandbox.cedar") }

// Starting is a policy to begin with, instead of [Starter]: at most ten rules that a person can read.
type Starting struct {
	Name, Text string   // Text says in one line what it allows
	rules      []string // files
	tests      []string
}

// Startings returns the policies to begin with, the strictest first.
func Startings() []Starting {
	return []Starting{
		{"look", "look only: reading, and nothing else outside of sandboxes", []string{"look", "sandbox"},
			[]string{"look", "look-only", "sandbox"}},
		{"work", "work locally: also editing, committing, building and testing; deleting and downloads ask",
			[]string{"look", "work", "downloads", "sandbox"}, []string{"look", "work", "downloads", "work-only", "sandbox"}},
		{"push", "work and push to branches: also downloads, fetching, and pushing; main, master and the like ask",
			[]string{"look", "work", "push", "sandbox"}, []string{"look", "work", "push", "sandbox"}},
	}
}

// Sources returns the files of the policy: rules, and tests.
func (s Starting) Sources() (rules, tests []Source) {
	for _, f := range s.rules {
		rules = append(rules, embeddedSource("starting/"+f+".cedar", f+".cedar"))
	}
	for _, f := range s.tests {
		tests = append(tests, embeddedSource("starting/"+f+".test.yaml", f+".test.yaml"))
	}
	return rules, tests
}

// Elsewhere returns the rules that accompany [Starter] on a platform without a cage. The caller must decide which
// platform that is, because this package does not know.
func Elsewhere() Source { return embeddedSource("starter-elsewhere.cedar", "starter-elsewhere.cedar") }

// Load parses the sources, checks every rule against the schema of the actions and sorts the rules into slices by
// action. A policy with any finding does not load; the error lists all findings with file, line and rule.
func Load(c Config) (*Engine, error) {
	m, err := newModel(c.Actions)
	if err != nil {
		return nil, err
	}
	var found findings
	sources := sortedSources(c.Sources)
	found.checkFileNames(sources)
	var rules []*LoadedRule
	for _, s := range sources {
		rules = append(rules, found.parseSource(s)...)
	}
	rules = withBuiltin(rules, opaqueRule, embeddedSource("opaque.cedar", "built-in/opaque.cedar"), &found)
	rules = withBuiltin(rules, changedRule, embeddedSource("changed.cedar", "built-in/changed.cedar"), &found)
	for _, b := range []struct {
		action string // the rule is about, which not every catalog has
		id     bailey.RuleID
		file   string
	}{
		{shellAction, operatorRule, "operator.cedar"}, {requestAction, requestRule, "requests.cedar"},
		{applyAction, applyRule, "apply.cedar"}, {requestAction, prodRule, "prodhosts.cedar"},
		{sandboxAction, networkRule, "sandbox-network.cedar"}, {sandboxAction, sizeRule, "sandbox-size.cedar"},
	} {
		if m.byUID[ActionUID(b.action)] != nil {
			rules = withBuiltin(rules, b.id, embeddedSource(b.file, "built-in/"+b.file), &found)
		}
	}
	found.checkUniqueIDs(rules)
	for _, r := range rules {
		if r.BuiltIn && found.toError() != nil { // its findings would only be consequences of other errors
			continue
		}
		found.checkRule(m, r)
	}
	forbidden := newBlanket(rules)
	found.checkShadowed(m, rules, forbidden)
	if err := found.toError(); err != nil {
		return nil, err
	}
	e := assembleEngine(m, rules)
	e.blanket, e.digest = forbidden, digestSources(sources)
	return e, nil
}

// withBuiltin adds a built-in rule if the policy has no rule with its id.
func withBuiltin(rules []*LoadedRule, id bailey.RuleID, s Source, f *findings) []*LoadedRule {
	i := slices.IndexFunc(rules, func(r *LoadedRule) bool { return r.ID == id })
	if i < 0 {
		own := f.parseSource(s)
		for _, r := range own {
			r.BuiltIn = true
		}
		return append(rules, own...)
	}
	if rules[i].IsPermit() {
		f.addForRule(rules[i], "replaces a built-in forbid: make it a forbid")
	}
	return rules
}

func assembleEngine(m *model, rules []*LoadedRule) *Engine {
	e := &Engine{slices: map[bailey.CapabilityID]*ruleSlice{}, rules: map[bailey.RuleID]*LoadedRule{}}
	for _, a := range m.actions {
		e.slices[a.ID] = &ruleSlice{act: a}
	}
	for _, r := range rules {
		e.rules[r.ID] = r
		if r.isUnscoped() {
			e.common = append(e.common, r)
			continue
		}
		for _, a := range m.actionsInScope(r.AST.Action) {
			s := e.slices[a.ID]
			s.own = append(s.own, r)
		}
	}
	common := appendReads(nil, e.common)
	for _, s := range e.slices {
		s.reads = appendReads(common, s.own)
	}
	return e
}

// Len returns the number of rules, including the built-in ones.
func (e *Engine) Len() int { return len(e.rules) }

// Asks returns how many of the policy's own rules ask about an action that can be called through Bailey. Only such
// rules cause questions by Bailey.
func (e *Engine) Asks() int {
	asking := map[bailey.RuleID]bool{}
	note := func(rules []*LoadedRule) {
		for _, r := range rules {
			if r.Asks && !r.BuiltIn {
				asking[r.ID] = true
			}
		}
	}
	for _, s := range e.slices {
		if !s.act.Own {
			note(s.own)
		}
	}
	if len(e.slices) > 0 {
		note(e.common)
	}
	return len(asking)
}

// appendReads adds to a list the attributes of context that rules read. Approvals are not included.
func appendReads(list []cedar.String, rules []*LoadedRule) []cedar.String {
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

// Digest returns the digest of the engine that the sources would load to, even if they do not load.
func Digest(sources []Source) string { return digestSources(sortedSources(sources)) }

// Digest returns the SHA-256 of the sources in order of name, in hex. Each name and each text is preceded by its length
// (8 bytes, big endian), so no two sets of files have the same encoding.
func (e *Engine) Digest() string { return e.digest }

func digestSources(sources []Source) string {
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

func sortedSources(s []Source) []Source {
	s = slices.Clone(s)
	slices.SortStableFunc(s, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	return s
}
