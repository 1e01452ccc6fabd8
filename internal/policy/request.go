package policy

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"

	"bailey"
)

// world is one request in Cedar's terms, and the entities it speaks of.
type world struct {
	req     cedar.Request
	context cedar.RecordMap // what req.Context was made of
	agent   cedar.Entity
	target  cedar.Entity
	act     *action

	restores []string
}

// Get makes world an entity store of the three entities a rule can ask about.
func (w *world) Get(uid cedar.EntityUID) (cedar.Entity, bool) {
	switch uid {
	case w.agent.UID:
		return w.agent, true
	case w.act.uid:
		return w.act.entity, true
	case w.target.UID:
		return w.target, true
	}
	return cedar.Entity{}, false
}

// newWorld refuses a request that leaves open what rules rely on.
func newWorld(a *action, r bailey.Request) (*world, error) {
	if err := complete(r); err != nil {
		return nil, err
	}
	input, err := inputRecord(a.input, r.Input)
	if err != nil {
		return nil, err
	}
	w := &world{act: a, agent: agent(r.Principal), target: target(r.Target), restores: r.Restores}
	w.context = cedar.RecordMap{
		"input":       input,
		"paths":       paths(r.Paths),
		"dir":         cedar.String(r.Dir),
		"cage":        cedar.String(r.Cage),
		"absent":      set(r.Absent),
		"changed":     cedar.Boolean(r.Changed),
		"profile":     cedar.String(r.Profile),
		"environment": cedar.String(r.Environ),
		"session": cedar.NewRecord(cedar.RecordMap{
			"id":         cedar.String(r.Session.ID),
			"unattended": cedar.Boolean(r.Session.Unattended),
		}),
		"unattended": cedar.Boolean(r.Session.Unattended),
		"writes":     cedar.Boolean(r.Writes || a.writes()),
		"restores":   set(r.Restores),
		"time": cedar.NewRecord(cedar.RecordMap{
			"epoch":   cedar.Long(r.Time.Unix()),
			"hour":    cedar.Long(r.Time.Hour()),
			"weekday": cedar.Long(r.Time.Weekday()),
		}),
	}
	w.req = cedar.Request{Principal: w.agent.UID, Action: a.uid, Resource: w.target.UID}
	w.grant(r.Approvals)
	return w, nil
}

// grant sets the grants in hand.
func (w *world) grant(ids []bailey.RuleID) {
	w.context["approvals"] = set(ids)
	w.req.Context = cedar.NewRecord(w.context)
}

func complete(r bailey.Request) error {
	switch {
	case r.Principal.Agent == "":
		return errors.New("the request names no agent")
	case r.Target.Kind == "":
		return errors.New("the request names no target")
	case !known(r.Target):
		return fmt.Errorf("%q is no target: %s", targetID(r.Target), targetForms)
	case r.Time.IsZero():
		return errors.New("the request has no time")
	}
	words := []string{r.Principal.Agent, r.Principal.Person, r.Principal.Organisation, r.Target.Kind, r.Target.Name,
		r.Dir, r.Cage, r.Profile, r.Environ, string(r.Session.ID)}
	words = slices.Concat(words, r.Principal.Roles, r.Restores, r.Absent)
	for _, p := range r.Paths {
		words = append(words, p)
	}
	for _, w := range words {
		if !utf8.ValidString(w) {
			return fmt.Errorf("%q is not UTF-8", w)
		}
	}
	return nil
}

func agent(p bailey.Principal) cedar.Entity {
	return cedar.Entity{
		UID: cedar.NewEntityUID("Agent", cedar.String(p.Agent)),
		Attributes: cedar.NewRecord(cedar.RecordMap{
			"person":       cedar.String(p.Person),
			"organisation": cedar.String(p.Organisation),
			"roles":        set(p.Roles),
		}),
	}
}

func target(t bailey.Target) cedar.Entity {
	return cedar.Entity{
		UID: cedar.NewEntityUID("Target", cedar.String(targetID(t))),
		Attributes: cedar.NewRecord(cedar.RecordMap{
			"kind": cedar.String(t.Kind),
			"name": cedar.String(t.Name),
		}),
	}
}

func paths(m map[string]string) cedar.Set {
	list := make([]string, 0, len(m))
	for _, p := range m {
		list = append(list, p)
	}
	return set(list)
}

func set[T ~string](in []T) cedar.Set {
	values := make([]cedar.Value, len(in))
	for i, s := range in {
		values[i] = cedar.String(s)
	}
	return cedar.NewSet(values...)
}
