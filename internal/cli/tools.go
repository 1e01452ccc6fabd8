package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/mcp"
	"bailey/internal/terminal"
)

func (a *App) toolsVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "tools", Short: "What agents are told of, for those that speak no MCP"}
	var format string
	export := &cobra.Command{
		Use: "export", Short: "Write the tools down as a model's interface takes them", Args: cobra.NoArgs,
		Long: `Write down the tools that an agent would be told of now, as JSON that a model's interface takes for its tools.

Formats: claude, openai and gemini have a definition for each capability, two-tool has one that searches and one that calls.
The capability of a tool is its name with the first _ as a dot. A call of it is: bailey run CAPABILITY --json, and a search is:
bailey capabilities search --json`,
		Example: "  bailey tools export --format openai > tools.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := localapi.Query{Verb: apitype.ToolsQuery, Args: map[string]any{"format": format}}
			return Query(cmd.Context(), a, q, func(tools json.RawMessage) { fmt.Fprintln(a.Stdout, terminal.Indent(tools)) })
		},
	}
	export.Flags().StringVar(&format, "format", "claude", "claude, gemini, openai or two-tool")
	export.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(mcp.Formats(), cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(export)
	return cmd
}
