package cedar

import (
	"fmt"
	"testing"

	"bailey"
)

// tally counts the comparisons.
type tally struct {
	rules, loaded, looser, raw, errors int
	outcomes                           [3]int
}

func (n tally) String() string {
	return fmt.Sprintf("%d rules, %d of them load, %d parse here alone and do not load; %d raw decisions, %d with errors; decisions %d allow, %d ask, %d deny",
		n.rules, n.loaded, n.looser, n.raw, n.errors, n.outcomes[bailey.Allow], n.outcomes[bailey.Ask], n.outcomes[bailey.Deny])
}

// enough fails the test if the cases were too uniform to show a difference.
func (n tally) enough(t *testing.T) {
	if n.loaded < n.rules/4 || n.errors < n.raw/100 || n.raw == 0 {
		t.Errorf("too few rules load or err: the test says little")
	}
	for _, e := range []bailey.Effect{bailey.Allow, bailey.Ask, bailey.Deny} {
		if n.outcomes[e] < n.raw/100 {
			t.Errorf("only %d decisions are %v: the test says little", n.outcomes[e], e)
		}
	}
}
