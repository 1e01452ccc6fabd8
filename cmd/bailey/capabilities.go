package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/terminal"
	"bailey/internal/wire"
	"bailey/pack"
)

// capability is the command-line form of a manifest.
type capability struct {
	ID            bailey.CapabilityID `json:"id"`
	Description   string              `json:"description"`
	Pack          string              `json:"pack"`
	Version       string              `json:"version"`
	Risk          string              `json:"risk"`
	SideEffect    string              `json:"sideEffectClass"`
	Reversibility string              `json:"reversibility"`
	Isolation     string              `json:"isolation"`
	Digest        string              `json:"digest"`
	Command       string              `json:"command,omitempty"`
	Absent        bool                `json:"absent,omitempty"`  // its program is not installed on this machine
	Preview       [][]string          `json:"preview,omitempty"` // command lines
	Covers        bool                `json:"previewCoversContents,omitempty"`
	Egress        []string            `json:"egress,omitempty"` // as in the manifest
	InputSchema   json.RawMessage     `json:"inputSchema,omitempty"`
	OutputSchema  json.RawMessage     `json:"outputSchema,omitempty"`
}

func newCapability(m *pack.Capability, whole bool) capability {
	c := capability{
		ID: m.ID, Description: m.Description, Pack: m.Pack, Version: m.Version, Risk: string(m.Risk),
		SideEffect: string(m.SideEffect), Reversibility: string(m.Reversibility), Isolation: string(m.Isolation), Digest: m.Digest,
	}
	if whole {
		c.Command, c.InputSchema, c.Preview, c.Covers = m.Command, m.InputSchema(), m.Previews(), m.Covers()
		c.Egress, c.OutputSchema = m.Reaches(), m.OutputSchema()
	}
	return c
}

type capabilityList struct {
	Capabilities []capability `json:"capabilities"`
}

func (a *app) capabilitiesVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "capabilities", Short: "What can be asked for"}
	var all bool
	list := &cobra.Command{
		Use: "list", Short: "List the capabilities whose programs are on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: "capabilities"}, func(l capabilityList) {
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				absent := 0
				for _, c := range l.Capabilities {
					if c.Absent && !all {
						absent++
						continue
					}
					kind := c.SideEffect
					if c.Isolation == string(pack.Agent) {
						kind += ", the agent's own"
					}
					if c.Isolation == string(pack.Open) {
						kind += ", without a cage"
					}
					if c.Absent {
						kind += ", not installed"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\n", c.ID, kind, c.Description)
				}
				w.Flush()
				if absent > 0 {
					fmt.Fprintf(a.stderr, "bailey: %d more are of programs that are not on this machine: --all\n", absent)
				}
			})
		},
	}
	list.Flags().BoolVar(&all, "all", false, "also those whose programs are not here")
	cmd.AddCommand(a.searchVerb(), list,
		&cobra.Command{
			Use: "show CAPABILITY", Short: "Show one capability and its inputs", Args: oneArg("a capability"),
			RunE: func(cmd *cobra.Command, args []string) error {
				q := wire.Query{Verb: "capability", Args: map[string]any{"id": args[0]}}
				return look(cmd.Context(), a, q, func(c capability) {
					fmt.Fprintf(a.stdout, "%s  %s\n\npack %s %s, risk %s, side effects %s, reversibility %s, isolation %s\n%s\n%s%s\ninputs %s\n",
						c.ID, c.Description, c.Pack, c.Version, c.Risk, c.SideEffect, c.Reversibility, c.Isolation, started(c), outside(c), previewed(c), indent(c.InputSchema))
					if c.OutputSchema != nil {
						fmt.Fprintf(a.stdout, "output %s\n", indent(c.OutputSchema))
					}
				})
			},
		})
	return cmd
}

// started describes the program that a call runs.
func started(c capability) string {
	if c.Isolation == string(pack.Agent) {
		return "the agent runs it itself, and the gate only decides"
	}
	if c.Isolation == string(pack.Open) {
		return "runs " + c.Command + " without a cage, with all that its user may do: a rule has to let it, by the waiver " + pack.NoIsolation
	}
	return "runs " + c.Command
}

// previewed describes in one line the preview that an approver sees, or returns "" without one.
func previewed(c capability) string {
	switch {
	case len(c.Preview) == 0:
		return ""
	case c.Covers:
		return "whoever is asked sees what it would do, and with that all that matters of the files and directories it names\n"
	}
	return "whoever is asked sees what it would do\n"
}

// outside describes in one line the hosts that the tool can reach, or returns "".
func outside(c capability) string {
	if len(c.Egress) == 0 {
		return ""
	}
	return "reaches " + strings.Join(c.Egress, ", ") + "\n"
}

func indent(raw json.RawMessage) string {
	b, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(b)
}

func indentValue(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return terminal.JSON(indent(b))
}
