package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/receipts"
)

// receiptFilter is a filter for receipts, as given by flags.
type receiptFilter struct {
	receipts.Filter
	since, until string
}

func (w *receiptFilter) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar((*string)(&w.Status), "status", "", "only those that ended so: `"+strings.Join(statusNames(), "|")+"`")
	f.StringVar((*string)(&w.Capability), "capability", "", "only calls of this `capability`")
	f.StringVar(&w.Agent, "agent", "", "only calls of this `agent`")
	f.StringVar((*string)(&w.Session), "session", "", "only calls of this `session`")
	f.StringVar(&w.since, "since", "", "started so long ago or later: `7d`, 36h, 90m, a date, or a time as in 2026-11-03T09:00:00Z")
	f.StringVar(&w.until, "until", "", "started before that: `1d`, a date or a time")
	cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statusNames(), cobra.ShellCompDirectiveNoFileComp))
}

// filter returns the filter with times relative to now. It rejects invalid values before a gateway is started.
func (w *receiptFilter) filter(now time.Time) (f receipts.Filter, err error) {
	f = w.Filter
	if f.Status != "" && !slices.Contains(receipts.Statuses(), f.Status) {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("no receipt has the status %q", f.Status), Hint: "there are " + strings.Join(statusNames(), ", ")}
	}
	if f.Since, err = parseTime("--since", w.since, now); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("--until", w.until, now); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, &bailey.Error{Kind: bailey.Invalid, Message: "--since is not before --until: nothing lies between them", Hint: "--since 7d --until 1d is from seven days ago to one day ago"}
	}
	return f, nil
}

func statusNames() (names []string) {
	for _, s := range receipts.Statuses() {
		names = append(names, string(s))
	}
	return names
}

// filterArgs and filterOf encode and decode a filter for a query.
func filterArgs(f receipts.Filter) map[string]any { return map[string]any{"filter": f} }
