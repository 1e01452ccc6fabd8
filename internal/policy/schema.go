package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema"
	sast "github.com/cedar-policy/cedar-go/x/exp/schema/ast"
	"github.com/cedar-policy/cedar-go/x/exp/schema/resolved"
	"github.com/cedar-policy/cedar-go/x/exp/schema/validate"

	"bailey"
)

// model is the schema that rules are checked against.
type model struct {
	actions []*action
	byUID   map[cedar.EntityUID]*action
	members map[cedar.EntityUID][]*action // group → its actions, in order
	full    *resolved.Schema
	seen    map[string]*validate.Validator
}

func newModel(in []Action) (*model, error) {
	m := &model{byUID: map[cedar.EntityUID]*action{}, members: map[cedar.EntityUID][]*action{},
		seen: map[string]*validate.Validator{}}
	for _, i := range slices.Concat(in, []Action{wrapAction()}) {
		a, err := newAction(i)
		if err == nil && m.byUID[a.uid] != nil {
			err = fmt.Errorf("%s is there twice", i.ID)
		}
		if err != nil {
			return nil, bailey.Invalid.New("the schema of the policy: "+err.Error(),
				"correct the manifest that declares it")
		}
		m.actions = append(m.actions, a)
		m.byUID[a.uid], a.peers = a, m.byUID
		for _, g := range a.groups {
			m.members[ActionUID(g)] = append(m.members[ActionUID(g)], a)
		}
	}
	var err error
	m.full, err = resolveSchema(m.buildSchema(false))
	return m, err
}

func resolveSchema(s *sast.Schema) (*resolved.Schema, error) {
	r, err := resolved.Resolve(s)
	if err != nil {
		return nil, bailey.Internal.Wrap(err, "the schema of the policy", "")
	}
	return r, nil
}

// Schema returns the schema that rules about these actions are checked against, in Cedar's schema language.
func Schema(actions []Action) ([]byte, error) {
	m, err := newModel(actions)
	if err != nil {
		return nil, err
	}
	return schema.NewSchemaFromAST(m.buildSchema(false)).MarshalCedar()
}

// buildSchema builds the schema. If bare is set, class groups without members apply to a call without input.
func (m *model) buildSchema(bare bool) *sast.Schema {
	s := &sast.Schema{Entities: entityTypes(), Actions: sast.Actions{}}
	groups := []string{builtIn}
	for _, c := range actionClasses() {
		for _, v := range c.values {
			groups = append(groups, c.name+":"+v)
		}
	}
	for _, g := range groups {
		s.Actions[cedar.String(g)] = sast.Action{}
		if bare && len(m.members[ActionUID(g)]) == 0 {
			s.Actions[cedar.String(g)] = sast.Action{AppliesTo: appliesTo(&shape{kind: record})}
		}
	}
	for _, a := range m.actions {
		s.Actions[cedar.String(packGroup+a.Pack)] = sast.Action{}
		act := sast.Action{AppliesTo: appliesTo(a.input)}
		for _, g := range a.groups {
			act.Parents = append(act.Parents, sast.ParentRefFromID(cedar.String(g)))
		}
		s.Actions[cedar.String(a.ID)] = act
	}
	return s
}

func entityTypes() sast.Entities {
	str := sast.Attribute{Type: sast.String()}
	return sast.Entities{
		"Agent": {Shape: sast.RecordType{"person": str, "organisation": str,
			"roles": {Type: sast.Set(sast.String())}}},
		"Target": {Shape: sast.RecordType{"kind": str, "name": str}},
	}
}

func appliesTo(input *shape) *sast.AppliesTo {
	str, set := sast.Attribute{Type: sast.String()}, sast.Attribute{Type: sast.Set(sast.String())}
	num, flag := sast.Attribute{Type: sast.Long()}, sast.Attribute{Type: sast.Bool()}
	in := input.cedarType().(sast.RecordType)
	in[OpaqueName] = set
	return &sast.AppliesTo{
		Principals: []sast.EntityTypeRef{"Agent"},
		Resources:  []sast.EntityTypeRef{"Target"},
		Context: sast.RecordType{
			"input": {Type: in}, "paths": set, "dir": str, "cage": str, "absent": set, "changed": flag, "profile": str,
			"environment": str,
			"session":     {Type: sast.RecordType{"id": str, "unattended": flag}},
			"unattended":  flag, "writes": flag, "restores": set, "egress": set, "waivers": set, "labels": set, "commands": set,
			"approvals": set,
			"time":      {Type: sast.RecordType{"epoch": num, "hour": num, "weekday": num}},
		},
	}
}

// actionsInScope returns the actions that an action scope covers, each once.
func (m *model) actionsInScope(s ast.IsActionScopeNode) []*action {
	switch s := s.(type) {
	case ast.ScopeTypeAll:
		return m.actions
	case ast.ScopeTypeEq:
		if a := m.byUID[s.Entity]; a != nil {
			return []*action{a}
		}
	case ast.ScopeTypeIn:
		return m.expandGroups([]cedar.EntityUID{s.Entity})
	case ast.ScopeTypeInSet:
		return m.expandGroups(s.Entities)
	}
	return nil
}

func (m *model) expandGroups(uids []cedar.EntityUID) (out []*action) {
	seen := map[*action]bool{}
	for _, uid := range uids {
		all := m.members[uid]
		if a := m.byUID[uid]; a != nil {
			all = []*action{a}
		}
		for _, a := range all {
			if !seen[a] {
				seen[a] = true
				out = append(out, a)
			}
		}
	}
	return out
}

// validatorFor returns a validator with a reduced schema: the groups, the actions in scope and those mentioned
// elsewhere in the rule. Cedar's validator visits every action of its schema for every rule, which takes minutes for
// thousands of both. The omitted actions cannot occur in the rule.
func (m *model) validatorFor(scope []*action, mentioned []cedar.EntityUID) *validate.Validator {
	if len(scope) == len(m.actions) {
		return m.cachedValidator("", m.full)
	}
	cut := *m.full
	cut.Actions = map[cedar.EntityUID]resolved.Action{}
	for _, a := range scope {
		cut.Actions[a.uid] = m.full.Actions[a.uid]
		for _, g := range a.groups {
			cut.Actions[ActionUID(g)] = m.full.Actions[ActionUID(g)]
		}
	}
	m.addMentioned(&cut, mentioned)
	return m.cachedValidator(schemaKey(cut.Actions), &cut)
}

// emptyGroupValidator returns a validator for a rule about groups without members. In its schema such groups apply, so
// that, for example, a rule about destructive actions can be checked before the first such action exists.
func (m *model) emptyGroupValidator(mentioned []cedar.EntityUID) (*validate.Validator, error) {
	bare, err := resolveSchema((&model{}).buildSchema(true))
	if err != nil {
		return nil, err
	}
	m.addMentioned(bare, mentioned)
	return validate.New(bare), nil
}

// addMentioned adds actions and groups that a rule names, as names without type information.
func (m *model) addMentioned(cut *resolved.Schema, uids []cedar.EntityUID) {
	for _, uid := range uids {
		if _, in := cut.Actions[uid]; in {
			continue
		}
		if act, ok := m.full.Actions[uid]; ok {
			act.AppliesTo = nil
			cut.Actions[uid] = act
			for p := range act.Entity.Parents.All() {
				if _, in := cut.Actions[p]; !in {
					cut.Actions[p] = m.full.Actions[p]
				}
			}
		}
	}
}

func (m *model) cachedValidator(key string, s *resolved.Schema) *validate.Validator {
	v := m.seen[key]
	if v == nil {
		v = validate.New(s)
		m.seen[key] = v
	}
	return v
}

func schemaKey(acts map[cedar.EntityUID]resolved.Action) string {
	ids := make([]string, 0, len(acts))
	for uid, a := range acts {
		id := string(uid.ID)
		if a.AppliesTo == nil {
			id = "-" + id
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
