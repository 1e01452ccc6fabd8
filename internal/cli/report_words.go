package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"bailey"
)

// asked returns a short form of the input; the receipt contains it in full.
func (c *reportedCall) asked() string {
	if c.InputBytes > 0 {
		return fmt.Sprintf("%d bytes of input, which the ledger does not hold", c.InputBytes)
	}
	return cmp.Or(brief(string(c.Input)), "no input")
}

// decided returns the decision with its rules, or the reason if there are none.
func (c *reportedCall) decided() string {
	switch {
	case c.Decision == "":
		return "nothing: it never came to a decision"
	case len(c.Rules) > 0:
		return c.Decision + " by " + strings.Join(c.Rules, ", ")
	case c.Policy == "":
		return c.Decision + " before any rule was asked"
	case c.Decision == bailey.Deny.String():
		return c.Decision + ": no rule permits it"
	}
	return c.Decision + " by no rule"
}

// brief returns the beginning and the end of a long text.
func brief(s string) string {
	r := []rune(s)
	if len(r) <= 200 {
		return s
	}
	return string(r[:100]) + " … " + string(r[len(r)-100:])
}

// ran describes which command ran, and in which cage.
func (c *reportedCall) ran() string {
	switch {
	case c.Executed == nil:
		return "nobody knows"
	case !*c.Executed:
		return "nothing"
	}
	code := ""
	if c.ExitCode != nil {
		code = fmt.Sprintf(", exit code %d", *c.ExitCode)
	}
	where := "in the cage " + c.Cage
	if c.Cage == bailey.Uncaged || c.Cage == "" {
		where = "without a cage"
	}
	return fmt.Sprintf("%s%s: %s", where, code, cmp.Or(brief(strings.Join(c.Argv, " ")), "arguments too long for the ledger"))
}

func entries(c reportedCall) string {
	if c.OutcomeSeq == 0 {
		return fmt.Sprintf("%d, no outcome yet", c.Seq)
	}
	return fmt.Sprintf("%d and %d", c.Seq, c.OutcomeSeq)
}

// counted formats counts as text, the largest first.
func counted[K ~string](counts map[K]int) string {
	var names []K
	total := 0
	for name, n := range counts {
		names, total = append(names, name), total+n
	}
	slices.SortFunc(names, func(a, b K) int { return cmp.Or(counts[b]-counts[a], strings.Compare(string(a), string(b))) })
	var words []string
	for i, name := range names {
		if i == 20 {
			words = append(words, fmt.Sprintf("%d other kinds", len(names)-i))
			break
		}
		words = append(words, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(words, ", ")
}
