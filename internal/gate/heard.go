package gate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"bailey"
)

// verdictOf returns the verdict of the hooks on the call. If the same call has an open question, it returns the verdict
// from that time. A hook that gives another answer later therefore cannot replace the call that a person was asked
// about, and no hook runs twice for one call.
func (c *callState) verdictOf(ctx context.Context, view bailey.Call) (Verdict, error) {
	of := c.cacheKey(view)
	if of != "" {
		if h, ok := c.Approver.Parked(of); ok {
			if v, err := decodeVerdict(h); err == nil {
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
			c.heard, err = bailey.Heard{}, nil // the hooks are asked again
		}
	}
	return v, err
}

// decodeVerdict returns a verdict as it was given. It decodes the input each time, because a call may change its own copy.
func decodeVerdict(h bailey.Heard) (v Verdict, err error) {
	v = Verdict{Effect: h.Effect, Rule: h.Rule}
	if h.Input == nil {
		return v, nil
	}
	d := json.NewDecoder(bytes.NewReader(h.Input))
	d.UseNumber()
	return v, d.Decode(&v.Input)
}

// cacheKey returns a digest of everything that the hooks judge: the edition of the hooks, the principal, the session, the
// manifest, the input as it would run and the redacted input. A token has the same meaning as before only if both
// inputs are the same. matter returns "" if the call must not be matched with another one.
func (c *callState) cacheKey(view bailey.Call) string {
	edition := c.Hooks.Edition()
	if edition == "" || c.call.Within != nil { // a step of a workflow never becomes pending
		return ""
	}
	sum := sha256.New()
	if err := json.NewEncoder(sum).Encode([]any{edition, c.cameFrom(), c.call.Principal, c.call.Session.Unattended,
		c.call.Own,
		c.manifest.ID, c.manifest.Digest, c.call.Dir, c.input, view.Dir, view.Input}); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil))
}
