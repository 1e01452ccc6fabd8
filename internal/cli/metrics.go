package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
)

func (a *App) metricsVerb() *cobra.Command {
	return &cobra.Command{
		Use: "metrics", Short: "Print the running gateway's metrics for Prometheus",
		Long: `Print what the running gateway counted, in Prometheus' text format: calls by status and class, how long their stages took, the
ledger's size, open calls, sessions, calls that were suppressed, redactions by category. It starts no gateway and opens no
port: node_exporter's textfile collector takes the output of a timer.`,
		Example: "  bailey metrics > metrics.new && mv metrics.new /var/lib/node_exporter/bailey.prom",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := localapi.FindHome()
			if err != nil {
				return err
			}
			var r apitype.MetricsReply
			if err := (&localapi.Client{Home: home}).Look(cmd.Context(), localapi.Query{Verb: "metrics"}, &r); err != nil {
				return unmeasured(home, err)
			}
			if a.JSON {
				return a.Print(r)
			}
			_, err = fmt.Fprint(a.Stdout, r.Text)
			return err
		},
	}
}

// unmeasured adds a hint if no gateway is running.
func unmeasured(home localapi.Home, err error) error {
	if !errors.Is(err, localapi.ErrUnreachable) || bailey.HintOf(err) != "" {
		return err
	}
	return &bailey.Error{Kind: bailey.Unavailable, Message: "no gateway runs in " + string(home) + ", and its counts ended with it", Hint: "the next call starts one, which counts from zero; bailey status tells what runs", Err: err}
}
