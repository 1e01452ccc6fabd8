package onboard

import (
	"fmt"
	"slices"
	"strings"
)

// manifestHead returns the beginning of the manifest.
func (d *drafter) manifestHead() string {
	var b strings.Builder
	b.WriteString("# Drafted from the tool's help and not reviewed. Before you install it, read each line\n" +
		"# after review:, and README.md beside this file.\n")
	about := d.tool.Root.Help.Summary
	if about == "" {
		about = "what " + d.tool.Name + " does"
	}
	fmt.Fprintf(&b, "name: %s\nversion: 0.1.0\ndescription: %s\n\ncapabilities:\n", yamlName(d.out.Pack),
		quoteYAML(about, maxTells))
	return b.String()
}

// leftOutComment lists the commands that were left out.
func (d *drafter) leftOutComment() string {
	if len(d.out.LeftOut) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n")
	writeComment(&b, "", d.out.LeftOut)
	return b.String()
}

// writeCapability writes a capability.
func (d *drafter) writeCapability(b *strings.Builder, name string, c *capability, t *Tree) {
	risk, effect, back := "high", "mutating", "irreversible"
	if c.looks {
		risk, effect, back = "low", "readOnly", "readOnly"
		b.WriteString("  # review: according to its name it only reads. Check this for all options.\n")
	} else {
		b.WriteString("  # review: worst case assumed. Lower it only if you know better.\n")
	}
	writeComment(b, "  ", c.left)
	if t.Help.Shared > 0 {
		fmt.Fprintf(b, "  # left out, shared with the commands above it: %d\n", t.Help.Shared)
	}
	about := t.Summary
	if about == "" {
		about = t.Help.Summary
	}
	if about == "" {
		about = strings.TrimSpace(d.tool.Name + " " + t.fullName())
	}
	fmt.Fprintf(b, "  - name: %s\n    description: %s\n    risk: %s\n    sideEffectClass: %s\n    reversibility: %s\n    isolation: jail\n    timeout: 1m\n",
		yamlName(name), quoteYAML(about, maxTells), risk, effect, back)
	fmt.Fprintf(b, "    backend:\n      type: subprocess\n      command: %s\n", quoteYAML(d.tool.Command, 4096))
	if len(c.args) > 0 {
		b.WriteString("      args:\n")
		for _, a := range c.args {
			fmt.Fprintf(b, "        - '%s'\n", a) // built from own text and checked names: never contains a quote
		}
	}
	proc := slices.Contains(vocabulary().proc, d.tool.Name)
	if proc || len(d.tool.Read) > 0 {
		b.WriteString("    sandboxProfile:\n")
	}
	if proc {
		b.WriteString("      proc: true\n")
	}
	if len(d.tool.Read) > 0 {
		b.WriteString("      fs:\n        ro:\n")
		for _, dir := range d.tool.Read {
			fmt.Fprintf(b, "          - %s\n", quoteYAML(dir, 4096))
		}
	}
	writeSchema(b, c.inputs)
	d.out.Capabilities = append(d.out.Capabilities, Drafted{d.out.Pack + "." + name, effect})
}

func writeSchema(b *strings.Builder, inputs []input) {
	if len(inputs) == 0 {
		return
	}
	b.WriteString("    inputSchema:\n      type: object\n")
	var required []string
	for _, in := range inputs {
		if in.required {
			required = append(required, yamlName(in.name))
		}
	}
	if len(required) > 0 {
		fmt.Fprintf(b, "      required: [%s]\n", strings.Join(required, ", "))
	}
	b.WriteString("      properties:\n")
	for _, in := range inputs {
		fmt.Fprintf(b, "        %s:\n", yamlName(in.name))
		in.writeProperty(b)
	}
}

func (in input) writeProperty(b *strings.Builder) {
	pad := "          "
	if in.list {
		fmt.Fprintf(b, "%stype: array\n%smaxItems: 32\n%sitems:\n", pad, pad, pad)
		pad += "  "
	}
	fmt.Fprintf(b, "%stype: %s\n", pad, in.typ)
	if in.format != "" {
		fmt.Fprintf(b, "%sformat: %s\n", pad, in.format)
	}
	if list := in.enumList(); list != "" {
		fmt.Fprintf(b, "%senum: [%s]\n", pad, list)
	}
	if in.tells != "" {
		fmt.Fprintf(b, "          description: %s\n", quoteYAML(in.tells, maxTells))
	}
}

// enumList returns the choices, or "" if there are none or so many that the tool's own text is more useful to an agent.
func (in input) enumList() string {
	if in.typ != "string" || in.format != "" || len(in.choices) == 0 {
		return ""
	}
	list := make([]string, len(in.choices))
	for i, c := range in.choices {
		list[i] = quoteYAML(c, 64)
	}
	if s := strings.Join(list, ", "); len(s) <= maxChooses {
		return s
	}
	return ""
}

// yamlName returns a safe name, quoted if YAML would otherwise take it for something else.
func yamlName(s string) string {
	switch s {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n", "Y", "N":
		return `"` + s + `"`
	}
	return s
}

// quoteYAML returns foreign text as a double-quoted YAML string.
func quoteYAML(s string, most int) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(flattenText(s, most)) + `"`
}

// writeComment writes the omitted parts as a comment, one folded paragraph of limited length for each reason.
func writeComment(b *strings.Builder, pad string, list []Left) {
	var reasons []string
	what := map[string][]string{}
	for _, l := range list {
		if what[l.Why] == nil {
			reasons = append(reasons, l.Why)
		}
		what[l.Why] = append(what[l.Why], flattenText(l.What, 200))
	}
	for _, why := range reasons {
		writeFolded(b, pad+"# ", "left out, "+flattenText(why, 200)+":", what[why])
	}
}

func writeFolded(b *strings.Builder, lead, line string, items []string) {
	const width = 116
	total := 0
	for i, item := range items {
		if i < len(items)-1 {
			item += ","
		}
		if total += len(item); total > maxNoted {
			item = fmt.Sprintf("and %d more", len(items)-i)
		}
		if len(line)+len(item) > width {
			b.WriteString(lead + line + "\n")
			line = " "
		}
		line += " " + item
		if total > maxNoted {
			break
		}
	}
	b.WriteString(lead + line + "\n")
}
