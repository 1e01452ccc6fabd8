package ledger

import (
	"crypto/sha256"

	"bailey"
	"bailey/audit"
)

// maxPlans bounds the plans that the writer knows to be in the ledger, at some 100 bytes each.
const maxPlans = 4096

// planOf is what the ledger has to hold before an entry that names a cage's plan, nil when it names none. A
// text that its digest does not stand for is refused: no verification would accept the entry.
func planOf(c *bailey.Cage) (*audit.Plan, error) {
	if c == nil || c.PlanDigest == "" {
		return nil, nil
	}
	var named audit.Hash
	if err := named.UnmarshalText([]byte(c.PlanDigest)); err != nil || c.Plan != "" && sha256.Sum256([]byte(c.Plan)) != named {
		return nil, &bailey.Error{Kind: bailey.Internal, Message: "the cage's plan is not what its digest stands for", Hint: "report it with the gateway's log"}
	}
	return &audit.Plan{Digest: c.PlanDigest, Text: c.Plan, Redacted: c.Plan == ""}, nil
}

// known are the digests of plans in the ledger. It forgets: a plan it does not know is noted again.
type known map[string]struct{}

func (k *known) add(digests ...string) {
	for _, d := range digests {
		if *k == nil || len(*k) >= maxPlans {
			*k = known{}
		}
		(*k)[d] = struct{}{}
	}
}

func (k known) has(digest string) bool { _, ok := k[digest]; return ok }
