package onboard

import (
	"fmt"
	"strings"
)

// Notes returns the README.md for the draft, which a person should read before the first call. It contains no text of
// the tool.
func (d *Draft) Notes() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# Pack %s, a draft\n\nNobody has checked it: it was made of what the tool says of itself. In `pack.yaml`:\n\n", d.Pack)
	b.WriteString("1. Delete the capabilities that no agent needs.\n" +
		"2. At each `review:` see that risk, sideEffectClass and reversibility are true. `readOnly` was taken from a name; `mutating`,\n" +
		"   `high` and `irreversible` say that nothing is known.\n" +
		"3. At each `left out` add only what you understand, and give it the narrowest type: an `enum`, a `pattern`, a `format`.\n" +
		"4. Inputs with `format: path` were guessed from their names. An input that names a file and has no such format is not\n" +
		"   checked, and the cage does not show the file.\n" +
		"5. The tool has no network and writes nowhere. `sandboxProfile.network.egress` and `fs.rw` change that,\n" +
		"   `backend.cwdFromInput` says where it starts, `credentials` lends it a secret. Each is a decision.\n" +
		"6. Descriptions are read by agents, and they are the tool author's. Put them into your own words.\n\n")
	fmt.Fprintf(&b, "Capabilities, %d:\n\n", len(d.Capabilities))
	for _, c := range d.Capabilities {
		fmt.Fprintf(&b, "* `%s`: %s\n", c.ID, c.SideEffect)
	}
	fmt.Fprintf(&b, "\nLeft out: %d commands and %d options; `pack.yaml` names them, with the reasons.\n",
		len(d.LeftOut), d.Options)
	return []byte(b.String())
}
