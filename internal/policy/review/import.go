package review

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bailey"
	"bailey/internal/policy"
)

// Command is an action and the command lines that its manifest gives it, such as "git status".
type Command struct {
	policy.Action
	Patterns []string
}

// Import is a set of rules derived from permission lists, for a person to review, and the result for each entry.
type Import struct {
	Text        []byte     `json:"text"`
	Imported    []Imported `json:"imported"`
	NotImported []Left     `json:"notImported"`
	rights      map[bailey.CapabilityID]*actionRights
	commands    []Command
	everything  bool // every permitted call asks
}

// Imported is an entry that became part of a rule.
type Imported struct {
	Listed
	Capability bailey.CapabilityID `json:"capability"`
	As         string              `json:"as"` // allow, ask, deny
	Note       string              `json:"note,omitempty"`
}

// Left is an entry or a setting that no rule represents.
type Left struct {
	Listed
	Why string `json:"why"`
}

// actionRights collects the entries for one action.
type actionRights struct {
	allow   bool // an entry allows all its calls
	part    bool // an entry allows some of its calls
	ask     bool
	deny    bool
	entries []Listed
}

// shell is the tool whose patterns are command lines.
const shell = "Bash"

// ImportLists derives rules from permission lists. The rules never allow more than the lists do. If an allowed action
// changes something, or an entry allows only a part of it, the rule asks. If an entry denies a part of an action, the
// whole action is denied. Entries that no capability represents are left out and reported. If a deny entry cannot be
// parsed, everything asks.
func ImportLists(commands []Command, lists []Lists) Import {
	im := Import{Imported: []Imported{}, NotImported: []Left{}, rights: map[bailey.CapabilityID]*actionRights{},
		commands: commands}
	for _, l := range lists {
		for _, e := range l.Entries {
			im.importEntry(e)
		}
		for _, s := range l.Left {
			im.NotImported = append(im.NotImported,
				Left{Listed{Entry: s},
					"it is a setting of the client, not a rule: here nothing runs unless a rule allows it"})
		}
	}
	for i := range im.Imported {
		im.Imported[i].As, im.Imported[i].Note = im.entryOutcome(im.Imported[i])
	}
	im.Text = im.formatPolicy(lists)
	return im
}

func (im *Import) leaveOut(e Listed, format string, args ...any) {
	im.NotImported = append(im.NotImported, Left{e, fmt.Sprintf(format, args...)})
}

func (im *Import) importEntry(e Listed) {
	tool, pattern, ok := e.splitTool()
	switch {
	case !ok:
		im.leaveOutUnmapped(e, "it is not of the form Tool(pattern)")
		return
	case strings.HasPrefix(tool, "mcp__"):
		im.leaveOut(e, "tools of other MCP servers are not capabilities here")
		return
	case strings.Contains(tool, "*"):
		im.leaveOutUnmapped(e, "it covers several tools")
		return
	case tool != shell:
		im.leaveOut(e, "no capability corresponds to the tool %s", tool)
		return
	}
	w, why := parseWords(pattern)
	if why == "" && w.cut && e.List == "allow" {
		why = "a * inside it could match anything"
	}
	switch {
	case why != "":
		im.leaveOutUnmapped(e, why)
	case len(w.words) == 0 && w.cut:
		im.leaveOutUnmapped(e, "it begins with a *: write a forbid with the intended meaning")
	case len(w.words) == 0 && e.List == "allow":
		im.leaveOut(e, "it allows every command, which no rule here does")
	case len(w.words) == 0 && e.List == "ask":
		im.everything = true
		im.leaveOut(e, "it allows nothing by itself; everything that the other entries allow asks")
	default:
		im.assignEntry(e, w)
	}
}

// leaveOutUnmapped leaves out an entry that cannot be mapped to commands. If the entry denies or asks, it might mean
// any command, so everything asks.
func (im *Import) leaveOutUnmapped(e Listed, why string) {
	if e.List != "allow" {
		im.everything = true
		why += "; everything that the other entries allow asks"
	}
	im.leaveOut(e, "%s", why)
}

// commandPattern is the command line that a pattern describes.
type commandPattern struct {
	words []string
	more  bool // any further words may follow
	cut   bool // cut at a * inside: the pattern matches less than every line that starts with these words
}

// parseWords parses the pattern of a shell tool, for example "git status", "git status:*", "git status *" or "git *
// main".
func parseWords(pattern string) (w commandPattern, why string) {
	body, more := strings.CutSuffix(pattern, ":*")
	if !more {
		body, more = strings.CutSuffix(body, " *")
	}
	if body = strings.TrimSpace(body); body == "" || body == "*" {
		return commandPattern{more: true}, ""
	}
	if !plainWords().MatchString(body) {
		return w, "it is more than a command and plain words"
	}
	w = commandPattern{words: strings.Fields(body), more: more}
	if i := slices.IndexFunc(w.words, func(s string) bool { return strings.Contains(s, "*") }); i >= 0 {
		w = commandPattern{words: w.words[:i], more: true, cut: true}
	}
	return w, ""
}

var plainWords = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./^~* -]+$`) })

// assignEntry assigns an entry to every action whose command line the entry includes. If it includes none, the entry is
// a part of the action with the longest command line that the entry starts with.
func (im *Import) assignEntry(e Listed, w commandPattern) {
	var all, one []Command
	longest := 0
	for _, c := range im.commands {
		for _, p := range c.Patterns {
			pw := strings.Fields(p)
			switch {
			case len(pw) == 0:
			case slices.Equal(pw, w.words), w.more && hasWordPrefix(pw, w.words):
				all = append(all, c)
			case hasWordPrefix(w.words, pw) && len(pw) > longest:
				one, longest = []Command{c}, len(pw)
			}
		}
	}
	part := w.cut
	if len(all) == 0 {
		all, part = one, true
	}
	if len(all) == 0 {
		im.leaveOut(e, "no capability corresponds to this command")
		return
	}
	seen := map[bailey.CapabilityID]bool{}
	for _, c := range all {
		if !seen[c.ID] {
			seen[c.ID] = true
			im.Imported = append(im.Imported,
				Imported{Listed: e, Capability: c.ID, Note: map[bool]string{true: "part"}[part]})
			im.rightsFor(c.ID).addEntry(e, part)
		}
	}
}

// hasWordPrefix reports whether a command line starts with the words in with.
func hasWordPrefix(line, with []string) bool {
	return len(line) >= len(with) && slices.Equal(line[:len(with)], with)
}

func (im *Import) rightsFor(id bailey.CapabilityID) *actionRights {
	r := im.rights[id]
	if r == nil {
		r = &actionRights{}
		im.rights[id] = r
	}
	return r
}

func (r *actionRights) addEntry(e Listed, part bool) {
	r.entries = append(r.entries, e)
	switch e.List {
	case "deny":
		r.deny = true
	case "ask":
		r.ask = true
	case "allow":
		r.allow, r.part = r.allow || !part, r.part || part
	}
}

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
			note = "it denies all calls of the capability, more than the entry does"
		case i.List != "deny" && effect == bailey.Deny:
			note = "another entry denies it"
		case i.List == "ask" && part:
			note = "it asks for all calls of the capability, more than the entry does"
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
		return "it asks, because the capability does more than the entry states"
	}
	return fmt.Sprintf("it asks, because its effect is %s", c.SideEffect)
}

func (im *Import) formatPolicy(lists []Lists) []byte {
	var b bytes.Buffer
	b.WriteString("// Rules converted from permission lists, for review. They have no effect yet, and are no complete policy:\n" +
		"// put the file beside the rules of yours, then bailey policy check DIR and bailey policy apply DIR.\n")
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
	effect, uid := im.ruleEffect(c, r), policy.ActionUID(string(c.ID))
	if effect == bailey.Deny {
		fmt.Fprintf(b, "@id(%q)\n@reason(\"an imported list denies it\")\nforbid (principal, action == %s, resource);\n", ruleID("imported-deny", c.ID), uid)
		return
	}
	cage := `context.cage == "full" && !context.absent.contains("landlock")`
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
