package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/policy"
)

func (a *app) policyVerb() *cobra.Command {
	var inputs []string
	explain := &cobra.Command{
		Use: "explain CAPABILITY [-i key=value]...", Short: "Say what would be decided about a call, and why",
		Args: oneArg("a capability"),
		RunE: func(cmd *cobra.Command, args []string) error {
			input, err := parseInputs(inputs)
			if err != nil {
				return err
			}
			q := gateway.Query{Verb: "explain", Call: &gateway.CallQuery{Capability: bailey.CapabilityID(args[0]), Input: input, Text: true}}
			return look(cmd.Context(), a, q, func(e policy.Explanation) { fmt.Fprintln(a.stdout, e) })
		},
	}
	explain.Flags().StringArrayVarP(&inputs, "input", "i", nil, "an input, `key=value`; may be repeated")
	cmd := &cobra.Command{Use: "policy", Short: "What the rules say"}
	cmd.AddCommand(explain, a.policyInit(), a.policyCheck(), a.policyApply(), a.policyShow(), a.policyTextVerb())
	return cmd
}
