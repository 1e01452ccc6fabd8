package ledger

import (
	"crypto/sha256"

	"bailey"
	"bailey/audit"
)

// maxPlans bounds the plans that the writer knows to be in the ledger, at about 100 bytes each.
const maxPlans = 4096

// planOf returns the plan that the ledger must hold before an entry that names it, or nil if the entry names no plan.
// It refuses a text that does not match its digest, because no verification would accept the entry.
func planOf(c *bailey.Cage) (*audit.Plan, error) {
	if c == nil || c.PlanDigest == "" {
		return nil, nil
	}
	var named audit.Hash
	if err := named.UnmarshalText([]byte(c.PlanDigest)); err != nil || c.Plan != "" &&
		sha256.Sum256([]byte(c.Plan)) != named {
		return nil, bailey.Internal.New("the cage's plan is not what its digest stands for",
			"report it with the gateway's log")
	}
	return &audit.Plan{Digest: c.PlanDigest, Text: c.Plan, Redacted: c.Plan == ""}, nil
}

// knownPlans holds the digests of plans in the ledger. If it forgets a plan, the plan is recorded again.
type knownPlans map[string]struct{}

func (k *knownPlans) addPlans(digests ...string) {
	for _, d := range digests {
		if *k == nil || len(*k) >= maxPlans {
			*k = knownPlans{}
		}
		(*k)[d] = struct{}{}
	}
}

func (k knownPlans) hasPlan(digest string) bool { _, ok := k[digest]; return ok }
