package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"bailey"
	"bailey/pack"
)

// injectPlaceholders replaces each value that only the edge of the cage may know with a placeholder. No variable, plan or receipt
// contains the value.
func (c *callState) injectPlaceholders(wants []bailey.Want) error {
	for _, w := range wants {
		if w.Inject == nil {
			continue
		}
		if w.Inject.Sign != "" || w.Inject.Tokens != "" {
			if err := c.hideInFile(w); err != nil {
				return err
			}
			continue
		}
		i := slices.IndexFunc(c.lease.Env, func(pair string) bool { return strings.HasPrefix(pair, w.Env+"=") })
		if i < 0 || c.job.Network == nil {
			return bailey.Internal.Errorf("", "%s was not lent in a way that hides it from the tool", w.Name)
		}
		in := bailey.Injection{Name: w.Name, Placeholder: bailey.NewPlaceholder(),
			Value: bailey.NewSecret(c.lease.Env[i][len(w.Env)+1:]),
			To:    w.Inject.To, Headers: w.Inject.Headers, Query: w.Inject.Query,
			Paths: w.Inject.Paths}
		c.lease.Env[i] = w.Env + "=" + w.Inject.Shown(in.Placeholder)
		c.inject = append(c.inject, in)
	}
	return nil
}

// hideInFile replaces a lent file of keys or tokens with one in which placeholders stand for them.
func (c *callState) hideInFile(w bailey.Want) error {
	i := slices.IndexFunc(c.lease.Files, func(f bailey.LentFile) bool { return f.Env == w.Env })
	if i < 0 || c.job.Network == nil {
		return bailey.Internal.Errorf("", "%s was not lent in a way that hides it from the tool", w.Name)
	}
	hide := pack.SignOutside
	if w.Inject.Tokens != "" {
		hide = pack.HideTokens
	}
	inject, shown, err := hide(w, c.lease.Files[i].Value)
	if err != nil {
		return err
	}
	c.inject = append(c.inject, inject...)
	c.lease.Files[i].Value = shown
	return nil
}

// reachableTargets lists the destinations that the tool could reach, formatted by as. It returns nil if neither the cage nor
// the machine of the call has a network.
func (c *callState) reachableTargets(as func(bailey.Endpoint) string) (list []string) {
	if run, ok := c.run.(bailey.ReachingRun); ok {
		for _, e := range run.Reaches() {
			list = append(list, as(e))
		}
		return list
	}
	if c.job.Network == nil {
		return nil
	}
	for _, e := range c.job.Network.Endpoints {
		list = append(list, as(e))
	}
	if api := c.job.Network.API; api != nil {
		list = append(list, api.String())
	}
	return list
}

// openNetwork opens the outer side of the cage's network. It exists only during this call.
func (c *callState) openNetwork(context.Context) (err error) {
	// A private loopback needs no way out.
	n := c.ownNetwork()
	if n == nil || len(n.Endpoints)+len(n.Listen) == 0 {
		return nil
	}
	c.way, err = c.Egress.Open(n, c.inject)
	return err
}

// Limits of an egress report in a receipt: the number of events, and the bytes of each text.
const (
	maxTold  = 16
	maxWords = 512
)

// recordEgress stores the network activity of the call. If there are more events than a receipt holds, refusals come first.
// Omitted events are counted.
func (c *callState) recordEgress() {
	var whole bailey.EgressReport
	run, ok := c.run.(bailey.ReachingRun)
	switch {
	case c.way != nil:
		whole = c.way.Report()
	case ok && run.Connections() != nil:
		whole = *run.Connections()
	default:
		return
	}
	keep, left := make([]bool, len(whole.Events)), maxTold
	for _, first := range []bool{true, false} {
		for i, e := range whole.Events {
			if refusal := e.Kind == bailey.EgressRefused || e.Kind == bailey.EgressMisused; refusal == first &&
				left > 0 {
				keep[i], left = true, left-1
			}
		}
	}
	told := &bailey.EgressReport{EgressTotals: whole.EgressTotals}
	for i, e := range whole.Events {
		if !keep[i] {
			told.Untold++
			continue
		}
		for _, s := range []*string{&e.Target, &e.Address, &e.Reason, &e.Hint} {
			*s = clipText(c.redactMessage(*s), maxWords) // redact before cutting: a truncated secret cannot be recognised
		}
		told.Events = append(told.Events, e)
	}
	c.egress, c.refused = told, told.Refusals()
}

// refusedHint describes which connection of a failed tool was refused or could not be made, because that may be the reason
// for the failure.
func (c *callState) refusedHint() string {
	switch len(c.refused) {
	case 0:
		if c.egress != nil {
			for _, e := range c.egress.Events {
				if e.Kind == bailey.EgressFailed {
					return e.Words()
				}
			}
		}
		return ""
	case 1:
		return "one of its requests was refused: " + c.refused[0]
	}
	return fmt.Sprintf("%d of its requests were refused, the first: %s", len(c.refused), c.refused[0])
}
