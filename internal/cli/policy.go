package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/policy"
)

func (a *App) policyVerb() *cobra.Command {
	var inputs []string
	explain := &cobra.Command{
		Use: "explain CAPABILITY [-i key=value]... | RECEIPT", Short: "Say what would be decided about a call, and why",
		Long: `Say what would be decided about a call, by which rules, and what would change it. Of a receipt: what was decided then,
and what the policy of now would say about the same call.`,
		Example: "  bailey policy explain git.log -i repo=.\n  bailey policy explain r-…",
		Args:    OneArg("a capability or a receipt"),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := apitype.ParseInputs(inputs)
			if err != nil {
				return err
			}
			if id := bailey.ReceiptID(args[0]); apitype.Possible(id) {
				return a.explainReceipt(cmd.Context(), id, len(inputs) > 0)
			}
			q := localapi.Query{Verb: "explain", Call: &localapi.CallQuery{Capability: bailey.CapabilityID(args[0]), Input: input, Text: true}}
			return Query(cmd.Context(), a, q, func(e policy.Explanation) { fmt.Fprintln(a.Stdout, e) })
		},
	}
	explain.Flags().StringArrayVarP(&inputs, "input", "i", nil, "an input, `key=value`; may be repeated")
	cmd := &cobra.Command{Use: "policy", Short: "What the rules say"}
	cmd.AddCommand(explain, a.policyInit(), a.policyCheck(), a.policyApply(), a.policyShow(), a.policyTextVerb(), a.policyReplay(), a.policySuggest(), a.policyImport())
	return cmd
}
