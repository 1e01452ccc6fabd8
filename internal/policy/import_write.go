package policy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"bailey"
)

// maxCited limits the entries that are listed in the comment above a rule.
const maxCited = 50

// ruleEffect returns the effect of the rules for an action.
func (im *Import) ruleEffect(c Command, r *actionRights) bailey.Effect {
	looks := c.SideEffect == "none" || c.SideEffect == "readOnly"
	switch {
	case r.deny:
		return bailey.Deny
	case r.ask, im.everything, !r.allow, !looks:
		return bailey.Ask
	}
	return bailey.Allow
}

// entryOutcome returns the effect on an entry, and a note if it differs from the list.
func (im *Import) entryOutcome(i Imported) (as, note string) {
	for _, c := range im.commands {
		if c.ID != i.Capability {
			continue
		}
		r := im.rights[c.ID]
		part := i.Note != ""
		effect := im.ruleEffect(c, r)
		switch {
		case i.List == "deny" && part:
			note = "it denies all calls of the capability, which is more than the entry says"
		case i.List != "deny" && effect == bailey.Deny:
			note = "another entry denies it"
		case i.List == "ask" && part:
			note = "it asks for all calls of the capability, which is more than the entry says"
		case i.List == "allow" && effect == bailey.Ask:
			note = im.whyAsks(c, r)
		}
		return effect.String(), note
	}
	return bailey.Deny.String(), ""
}

func (im *Import) whyAsks(c Command, r *actionRights) string {
	switch {
	case r.ask, im.everything:
		return "another entry asks"
	case !r.allow:
		return "it asks, for the capability does more than the entry says"
	}
	return fmt.Sprintf("it asks, for what it does is %s", c.SideEffect)
}

func (im *Import) formatPolicy(lists []Lists) []byte {
	var b bytes.Buffer
	b.WriteString("// Rules made of lists of permissions, for a person to look at. Nothing here counts by itself:\n" +
		"// put the file into a policy directory, then bailey policy check DIR and bailey policy apply DIR.\n")
	for _, l := range lists {
		fmt.Fprintf(&b, "// from %s\n", quotedLine(l.Name))
	}
	if len(im.NotImported) > 0 {
		b.WriteString("//\n// Not imported:\n")
	}
	for _, l := range im.NotImported {
		fmt.Fprintf(&b, "//   %s: %s\n", quotedLine(strings.TrimSpace(l.List+" "+l.Entry)), commentLine(l.Why))
	}
	for _, c := range im.commands {
		if r := im.rights[c.ID]; r != nil {
			im.writeRules(&b, c, r)
		}
	}
	return b.Bytes()
}

func (im *Import) writeRules(b *bytes.Buffer, c Command, r *actionRights) {
	b.WriteString("\n")
	for i, e := range r.entries {
		if i == maxCited {
			fmt.Fprintf(b, "// and %d more entries\n", len(r.entries)-i)
			break
		}
		fmt.Fprintf(b, "// %s\n", quotedLine(e.List+" "+e.Entry))
	}
	effect, uid := im.ruleEffect(c, r), actionUID(string(c.ID))
	if effect == bailey.Deny {
		fmt.Fprintf(b, "@id(%q)\n@reason(\"an imported list denies it\")\nforbid (principal, action == %s, resource);\n", ruleID("imported-deny", c.ID), uid)
		return
	}
	cage := `context.cage == "full" && context.absent.isEmpty()`
	if c.SideEffect == "none" || c.SideEffect == "readOnly" {
		cage = `(context.cage == "full" || context.cage == "landlock") && !context.absent.contains("landlock")`
	}
	fmt.Fprintf(b, "@id(%q)\npermit (principal, action == %s, resource == Target::\"local\")\nwhen { %s };\n",
		ruleID("imported-allow", c.ID), uid, cage)
	if effect == bailey.Ask {
		id := ruleID("imported-ask", c.ID)
		fmt.Fprintf(b, "\n@id(%q)\n@reason(\"a person is asked about %s\")\n@approval(\"count=1,ttl=10m\")\nforbid (principal, action == %s, resource)\n"+
			"unless { context.approvals.contains(%q) };\n", id, c.ID, uid, id)
	}
}

// quotedLine quotes untrusted text for a comment, in ASCII, so that it cannot end the line or hide characters.
func quotedLine(s string) string { return commentLine(strconv.QuoteToASCII(s)) }
