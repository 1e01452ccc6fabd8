package policy

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// CedarRequest is one request in Cedar terms, with the entities that it refers to.
type CedarRequest struct {
	cedar.Request
	context cedar.RecordMap // the source of Request.Context
	agent   cedar.Entity    // attributes are built if a rule reads them
	target  cedar.Entity
	act     *action

	principal bailey.Principal
	acts      bailey.Target // the target of the call
	restores  []string
	egress    []string
	waivers   []string
}

// Get makes the request an entity store. It knows the agent, the target and every action, because a rule may test the
// groups of any action.
func (w *CedarRequest) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	switch uid {
	case w.agent.UID:
		if w.agent.Attributes.Len() == 0 {
			w.agent.Attributes = agentRecord(w.principal)
		}
		return w.agent, true
	case w.target.UID:
		if w.target.Attributes.Len() == 0 {
			w.target.Attributes = targetRecord(w.acts)
		}
		return w.target, true
	}
	if a := w.act.peers[uid]; a != nil {
		return a.entity, true
	}
	return cedar.Entity{}, false
}

// contextAttributes returns the names of all attributes of context except approvals, which changes while a call is
// decided.
func contextAttributes() []cedar.String {
	return []cedar.String{"input", "paths", "dir", "cage", "absent", "changed", "profile", "environment", "session",
		"unattended", "writes", "restores", "egress", "waivers", "labels", "commands",
		"time"}
}

// newView builds a request whose context has only the attributes in reads. To build attributes takes longer than to
// decide, and no rule depends on an attribute that it does not read.
func newView(a *action, r *bailey.Request, reads []cedar.String) (*CedarRequest, error) {
	if err := validateRequest(r); err != nil {
		return nil, err
	}
	input, err := inputRecord(a.input, r.Input)
	if err != nil {
		return nil, err
	}
	w := &CedarRequest{act: a, principal: r.Principal, acts: r.Target, restores: r.Restores, egress: r.Egress,
		waivers: r.Waivers}
	w.agent.UID, w.target.UID = cedar.NewEntityUID("Agent", cedar.String(r.Principal.Agent)), targetUID(r.Target)
	w.context = make(cedar.RecordMap, len(reads)+1)
	for _, name := range reads {
		if name == "input" {
			w.context[name] = input
			continue
		}
		w.context[name] = attributeValue(name, a, r)
	}
	w.Request = cedar.Request{Principal: w.agent.UID, Action: a.uid, Resource: w.target.UID}
	w.setGrants(r.Approvals)
	return w, nil
}

// attributeValue returns the value of one attribute of context, other than input.
func attributeValue(name cedar.String, a *action, r *bailey.Request) cedar.Value {
	switch name {
	case "paths":
		return pathSet(r.Paths)
	case "dir":
		return cedar.String(r.Dir)
	case "cage":
		return cedar.String(r.Cage)
	case "absent":
		return stringSet(r.Absent)
	case "changed":
		return cedar.Boolean(r.Changed)
	case "profile":
		return cedar.String(r.Profile)
	case "environment":
		return cedar.String(r.Environ)
	case "session":
		return cedar.NewRecord(cedar.RecordMap{"id": cedar.String(r.Session.ID),
			"unattended": cedar.Boolean(r.Session.Unattended)})
	case "unattended":
		return cedar.Boolean(r.Session.Unattended)
	case "writes":
		return cedar.Boolean(r.Writes || a.changesState())
	case "restores":
		return stringSet(r.Restores)
	case "egress":
		return stringSet(r.Egress)
	case "waivers":
		return stringSet(r.Waivers)
	case "labels":
		return stringSet(r.Labels)
	case "commands":
		return stringSet(r.Commands)
	}
	return cedar.NewRecord(cedar.RecordMap{ // time
		"epoch":   cedar.Long(r.Time.Unix()),
		"hour":    cedar.Long(r.Time.Hour()),
		"weekday": cedar.Long(r.Time.Weekday()),
	})
}

// setGrants sets the grants.
func (w *CedarRequest) setGrants(ids []bailey.RuleID) {
	w.context["approvals"] = stringSet(ids)
	w.Request.Context = cedar.NewRecord(w.context)
}

func validateRequest(r *bailey.Request) error {
	switch {
	case r.Principal.Agent == "":
		return errors.New("the request names no agent")
	case r.Target.Kind == "":
		return errors.New("the request names no target")
	case !isValidTarget(r.Target):
		return fmt.Errorf("%q is not a target: %s", targetID(r.Target), targetForms)
	case r.Time.IsZero():
		return errors.New("the request has no time")
	}
	words := [...]string{r.Principal.Agent, r.Principal.Person, r.Principal.Organisation, r.Target.Kind, r.Target.Name,
		r.Dir, r.Cage, r.Profile, r.Environ, string(r.Session.ID)}
	for _, list := range [...][]string{words[:], r.Principal.Roles, r.Restores, r.Absent, r.Egress, r.Waivers, r.Labels,
		r.Commands} {
		for _, w := range list {
			if !utf8.ValidString(w) {
				return notText(w)
			}
		}
	}
	for _, p := range r.Paths {
		if !utf8.ValidString(p) {
			return notText(p)
		}
	}
	return nil
}

func notText(w string) error { return fmt.Errorf("%q is not UTF-8", w) }

func agentRecord(p bailey.Principal) cedar.Record {
	return cedar.NewRecord(cedar.RecordMap{
		"person":       cedar.String(p.Person),
		"organisation": cedar.String(p.Organisation),
		"roles":        stringSet(p.Roles),
	})
}

func targetUID(t bailey.Target) cedar.EntityUID {
	return cedar.NewEntityUID("Target", cedar.String(targetID(t)))
}

func targetRecord(t bailey.Target) cedar.Record {
	return cedar.NewRecord(cedar.RecordMap{"kind": cedar.String(t.Kind), "name": cedar.String(t.Name)})
}

func pathSet(m map[string]string) cedar.Set {
	list := make([]string, 0, len(m))
	for _, p := range m {
		list = append(list, p)
	}
	return stringSet(list)
}

func stringSet[T ~string](in []T) cedar.Set {
	if len(in) == 0 {
		return cedar.Set{}
	}
	values := make([]cedar.Value, len(in))
	for i, s := range in {
		values[i] = cedar.String(s)
	}
	return cedar.NewSet(values...)
}
