package cedar

import (
	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// uid names an entity, as in the JSON of Cedar.
type uid struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type entity struct {
	UID     uid            `json:"uid"`
	Attrs   map[string]any `json:"attrs"`
	Parents []uid          `json:"parents"`
}

// question is a request for Cedar. It is written according to the documentation of package policy, independently of its
// code.
type question struct {
	Principal uid            `json:"principal"`
	Action    uid            `json:"action"`
	Resource  uid            `json:"resource"`
	Context   map[string]any `json:"context"`
	Entities  []entity       `json:"entities"`
}

func (d dice) question(c capability, r bailey.Request, input map[string]any) question {
	var paths []any
	for _, p := range r.Paths {
		paths = append(paths, p)
	}
	if paths == nil {
		paths = []any{}
	}
	name := r.Target.Kind
	if r.Target.Name != "" {
		name += ":" + r.Target.Name
	}
	q := question{
		Principal: uid{"Agent", r.Principal.Agent}, Action: uid{"Action", string(r.Capability)}, Resource: uid{"Target", name},
		Context: map[string]any{
			"input": input, "paths": paths, "dir": r.Dir, "cage": r.Cage, "profile": r.Profile, "environment": r.Environ,
			"absent": list(r.Absent), "changed": r.Changed, "unattended": r.Session.Unattended,
			"session":  map[string]any{"id": string(r.Session.ID), "unattended": r.Session.Unattended},
			"writes":   r.Writes || c.SideEffect != "none" && c.SideEffect != "readOnly",
			"restores": list(r.Restores), "egress": list(r.Egress), "waivers": list(r.Waivers), "approvals": approvals(r.Approvals),
			"time": map[string]any{"epoch": r.Time.Unix(), "hour": int64(r.Time.Hour()), "weekday": int64(r.Time.Weekday())},
		},
	}
	agent := map[string]any{"person": r.Principal.Person, "organisation": r.Principal.Organisation, "roles": list(r.Principal.Roles)}
	q.Entities = []entity{
		{q.Principal, agent, []uid{}},
		{q.Resource, map[string]any{"kind": r.Target.Kind, "name": r.Target.Name}, []uid{}},
	}
	for _, a := range capabilities() {
		e := entity{uid{"Action", string(a.ID)}, map[string]any{}, nil}
		for _, g := range groups(a) {
			e.Parents = append(e.Parents, uid{"Action", g})
		}
		q.Entities = append(q.Entities, e)
	}
	return q
}

func groups(c capability) []string {
	g := []string{"pack:" + c.Pack, "sideEffect:" + c.SideEffect, "risk:" + c.Risk, "reversibility:" + c.Reversibility}
	if c.BuiltIn {
		g = append(g, "builtin")
	}
	return g
}

func approvals(ids []bailey.RuleID) []any {
	out := []any{}
	for _, id := range ids {
		out = append(out, string(id))
	}
	return out
}

// with returns the same question with additional grants.
func (q question) with(grants []any) question {
	c := map[string]any{}
	for k, v := range q.Context {
		c[k] = v
	}
	c["approvals"] = append(append([]any{}, c["approvals"].([]any)...), grants...)
	q.Context = c
	return q
}

// raw decides with cedar-go alone.
func (q question) raw(set *cedar.PolicySet) verdict {
	m := cedar.EntityMap{}
	for _, e := range q.Entities {
		var up []cedar.EntityUID
		for _, p := range e.Parents {
			up = append(up, p.cedar())
		}
		m[e.UID.cedar()] = cedar.Entity{UID: e.UID.cedar(), Parents: cedar.NewEntityUIDSet(up...), Attributes: record(e.Attrs)}
	}
	ok, diag := cedar.Authorize(set, m, cedar.Request{Principal: q.Principal.cedar(), Action: q.Action.cedar(), Resource: q.Resource.cedar(), Context: record(q.Context)})
	v := verdict{Decision: "deny"}
	if ok == cedar.Allow {
		v.Decision = "allow"
	}
	for _, r := range diag.Reasons {
		v.Reasons = append(v.Reasons, string(r.PolicyID))
	}
	for _, e := range diag.Errors {
		v.Errors = append(v.Errors, string(e.PolicyID))
	}
	return v
}

func (u uid) cedar() cedar.EntityUID {
	return cedar.NewEntityUID(cedar.EntityType(u.Type), cedar.String(u.ID))
}
