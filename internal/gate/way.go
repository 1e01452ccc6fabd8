package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// withhold puts a placeholder in the place of each value that goes to the edge of the cage alone: no variable, no plan and no
// receipt has it.
func (c *course) withhold(wants []bailey.Want) error {
	for _, w := range wants {
		if w.Inject == nil {
			continue
		}
		i := slices.IndexFunc(c.lease.Env, func(pair string) bool { return strings.HasPrefix(pair, w.Env+"=") })
		if i < 0 || c.job.Network == nil {
			return &bailey.Error{Kind: bailey.Internal, Message: fmt.Sprintf("%s was not lent in a way that keeps it from the tool", w.Name)}
		}
		in := bailey.Injection{Name: w.Name, Placeholder: bailey.NewPlaceholder(), Value: bailey.NewSecret(c.lease.Env[i][len(w.Env)+1:]),
			To: w.Inject.To, Headers: w.Inject.Headers, Query: w.Inject.Query}
		c.lease.Env[i] = w.Env + "=" + w.Inject.Shown(in.Placeholder)
		c.inject = append(c.inject, in)
	}
	return nil
}

// reaches lists what the tool could reach, each as said; none where the cage has no network.
func (c *course) reaches(as func(bailey.Endpoint) string) (list []string) {
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

// connect makes the way out of the cage: for this call, and gone with it.
func (c *course) connect(context.Context) (err error) {
	if c.job.Network == nil || len(c.job.Network.Endpoints)+len(c.job.Network.Listen) == 0 { // a loopback of its own leads nowhere
		return nil
	}
	c.way, err = c.Egress.Open(c.job.Network, c.inject)
	return err
}

// What of a report stands in a receipt: so many events, and of each text so many bytes.
const (
	maxTold  = 16
	maxWords = 512
)

// report takes down what the call did outside of its cage. Refusals come before the rest, should there be more than a receipt
// holds; what is left out is counted.
func (c *course) report() {
	if c.way == nil {
		return
	}
	whole := c.way.Report()
	keep, left := make([]bool, len(whole.Events)), maxTold
	for _, first := range []bool{true, false} {
		for i, e := range whole.Events {
			if refusal := e.Kind == bailey.EgressRefused || e.Kind == bailey.EgressMisused; refusal == first && left > 0 {
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
			*s = clip(c.again(*s), maxWords) // redacted whole, for of a secret that is cut nobody could tell what it is
		}
		told.Events = append(told.Events, e)
	}
	c.egress, c.refused = told, told.Refusals()
}

// blocked says of a tool that failed what it was refused, or could not reach, since that may be why.
func (c *course) blocked() string {
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
		return "it was refused this: " + c.refused[0]
	}
	return fmt.Sprintf("it was refused %d things, the first: %s", len(c.refused), c.refused[0])
}
