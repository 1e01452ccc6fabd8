package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"bailey"
)

// verdictOf is what hooks say of the call: what they said of it before, while its question is open, or else what they say now. A
// hook that has changed its mind since cannot exchange what a person was asked about, nor does one run twice for one call.
func (c *course) verdictOf(ctx context.Context, view bailey.Call) (Verdict, error) {
	of := c.matter(view)
	if of != "" {
		if h, ok := c.Approver.Parked(of); ok {
			if v, err := recalled(h); err == nil {
				c.heard, c.hooksAt = h, h.Receipt
				return v, nil
			}
		}
	}
	v, err := c.Hooks.Pre(ctx, view)
	if err != nil || of == "" {
		return v, err
	}
	c.heard = bailey.Heard{Of: of, Receipt: c.receipt, Effect: v.Effect, Rule: v.Rule}
	if v.Input != nil {
		if c.heard.Input, err = json.Marshal(v.Input); err != nil {
			c.heard, err = bailey.Heard{}, nil // it is asked about again
		}
	}
	return v, err
}

// recalled is a verdict as it was given. The input is read anew each time: what a call makes of its own is no other's.
func recalled(h bailey.Heard) (v Verdict, err error) {
	v = Verdict{Effect: h.Effect, Rule: h.Rule}
	if h.Input == nil {
		return v, nil
	}
	d := json.NewDecoder(bytes.NewReader(h.Input))
	d.UseNumber()
	return v, d.Decode(&v.Input)
}

// matter names what hooks are asked about: the hooks, whose call it is, in which session, the manifest, the input as it would run and
// as they see it, in which a token stands for the same as before only if both are the same. "" is what cannot be told apart.
func (c *course) matter(view bailey.Call) string {
	edition := c.Hooks.Edition()
	if edition == "" || c.call.Within != nil { // a step of a workflow is never parked
		return ""
	}
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode([]any{edition, c.cameFrom(), c.call.Principal, c.call.Session.Unattended, c.call.Own,
		c.manifest.ID, c.manifest.Digest, c.call.Dir, c.input, view.Dir, view.Input}); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
