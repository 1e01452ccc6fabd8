package apitype

import (
	"fmt"
	"strings"

	"bailey/internal/packstore"
	"bailey/internal/terminal"
)

const PackCompareQuery = "pack.compare"

func (p PackProposal) Summary() string {
	var b strings.Builder
	by := "signed by " + p.Key
	if p.Dev {
		by = "unsigned"
	}
	fmt.Fprintf(&b, "%s %s, %s, %s, digest %s\n", p.Name, p.Version, Counts(p.Capabilities, "capability"), by, p.Digest)
	if p.Was != nil {
		fmt.Fprintf(&b, "in place of %s, digest %s\n", p.Was.Version, p.Was.Digest)
	}
	b.WriteString(packstore.ChangeLines(p.Changes))
	if len(p.Changes) == 0 {
		b.WriteString("  it may do nothing that what is installed could not\n")
	}
	for _, w := range p.Loud {
		terminal.WriteLine(&b, '!', w)
	}
	return b.String()
}
