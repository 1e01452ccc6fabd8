package cli

import (
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/packstore"
	"bailey/internal/policy"
	"bailey/internal/policyfiles"
)

// suggestion is the result of `policy suggest`.
type suggestion struct {
	File         string             `json:"file,omitempty"` // the new file
	Calls        int                `json:"calls"`
	Capabilities []policy.Suggested `json:"capabilities"`
	LeftOut      []policy.Cause     `json:"leftOut,omitempty"`
	Text         string             `json:"text,omitempty"` // only if no file was written
}

func (a *App) policySuggest() *cobra.Command {
	var s stretch
	var out string
	cmd := &cobra.Command{
		Use: "suggest [--since 7d] [-o DIR/FILE]", Short: "Suggest the least rules that fit the calls of the past", Args: cobra.NoArgs,
		Long: `Write rules that would have allowed what was allowed, asked for what was asked for, and denied what was denied, from
the receipts of the past. They are for a person to look at, and nothing takes effect: a comment at each says how many
calls it comes from, and what it leaves open.

A rule names the capability, who called it and in which cage, the directories, and the arguments where they were few.
Without -o the rules go to stdout. With -o they go into a new file; one that is there is never overwritten.`,
		Example: "  bailey policy suggest --since 7d\n  bailey policy suggest --since 7d -o policy/suggested.cedar",
		RunE: func(cmd *cobra.Command, _ []string) error {
			catalog, err := packstore.BuiltIn()
			if err != nil {
				return err
			}
			var made policy.Suggestion
			err = a.through(cmd.Context(), &s, catalog, func(past iter.Seq[policy.Past]) (err error) {
				made, err = policy.Suggest(policyfiles.Actions(catalog), past)
				return err
			})
			if err != nil {
				return err
			}
			if out != "" && len(made.Capabilities) == 0 {
				return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("none of %d calls was allowed or asked for: there is no rule to suggest", made.Calls), Hint: "a longer stretch of the past may have some: --since 30d"}
			}
			said := func(file string) any {
				v := suggestion{File: file, Calls: made.Calls, Capabilities: made.Capabilities, LeftOut: made.Undecided}
				if file == "" {
					v.Text = string(made.Text)
				}
				return v
			}
			return a.giveRules(out, "suggested.cedar", made.Text, said, func() {
				fmt.Fprintf(a.Stderr, "bailey: rules for %d capabilities, of %d calls\n", len(made.Capabilities), made.Calls)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "write a new `file` *.cedar, or suggested.cedar into a directory")
	return cmd
}
