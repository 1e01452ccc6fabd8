package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

func (a *App) receiptsVerb() *cobra.Command {
	cmd := &cobra.Command{Use: "receipts", Short: "List, show, report and export receipts"}
	var w receiptFilter
	var limit int
	var dir string
	list := &cobra.Command{
		Use: "list", Short: "List receipts, newest first", Args: cobra.NoArgs,
		Long:    "List receipts, newest first. Filters combine. An index finds them; their contents are read from the ledger.\nUse bailey receipts export, which reads the ledger itself, if none may be missing.",
		Example: "  bailey receipts list --status denied --since 7d\n  bailey receipts list --capability git.push --since 2026-11-03T09:00:00Z --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := w.buildFilter(time.Now())
			if err != nil {
				return err
			}
			if f.Limit = limit; limit < 1 || limit > receipts.MaxLimit {
				return bailey.Invalid.Errorf("use --before to continue a list, or bailey receipts export for all",
					"--limit must be from 1 to %d", receipts.MaxLimit)
			}
			copied := func(r ReceiptReader) (apitype.ReceiptList, error) {
				page, err := r.Find(cmd.Context(), f)
				return apitype.NewReceiptList(page), err
			}
			return receiptsFrom(cmd.Context(), a, dir, apitype.ListReceipts, f, copied, a.printReceipts)
		},
	}
	w.addFlags(list)
	list.Flags().IntVar(&limit, "limit", 50, "maximum number of receipts")
	list.Flags().Uint64Var(&w.Before, "before", 0, "only receipts before this `number`: continues a list")
	copyFlag(list, &dir)
	cmd.AddCommand(list, a.forgetVerb(), a.showVerb(), a.exportVerb(), a.reportVerb())
	return cmd
}

func (a *App) showVerb() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "show RECEIPT", Short: "Show a receipt with its stored arguments and output",
		Args: OneArg("a receipt"),
		Long: "Show one receipt, and its stored arguments and output. A receipt is reported as missing only after the ledger\nwas read through. With --ledger only the receipt is shown.",
		RunE: func(cmd *cobra.Command, args []string) error {
			id := bailey.ReceiptID(args[0])
			copied := func(r ReceiptReader) (apitype.ShownReceipt, error) {
				page, err := r.Find(cmd.Context(), receipts.Filter{ID: id, Limit: 1})
				if err == nil && (id == "" || len(page.Records) == 0) {
					err = apitype.NoReceipt(id)
				}
				if err != nil {
					return apitype.ShownReceipt{}, err
				}
				return apitype.ShownReceipt{Record: page.Records[0]}, nil
			}
			return receiptsFrom(cmd.Context(), a, dir, apitype.ShowReceipt, apitype.ID{ID: args[0]}, copied,
				func(w io.Writer, r apitype.ShownReceipt) { fmt.Fprintln(w, terminal.IndentValue(r)) })
		},
	}
	copyFlag(cmd, &dir)
	return cmd
}

func (a *App) printReceipts(w io.Writer, l apitype.ReceiptList) {
	PrintTable(w, "", l.Receipts, func(r apitype.ReceiptRow) []any {
		return []any{r.StartedAt.Local().Format(time.DateTime), r.ID, r.Session, terminal.TableCell(string(r.Capability) + r.Below()),
			r.Status(), terminal.TableCell(r.Why())}
	})
	switch {
	case len(l.Receipts) == 0:
		fmt.Fprintln(a.Stderr, "bailey: no matching receipts")
	case l.Next > 0:
		fmt.Fprintf(a.Stderr, "bailey: there are more: --before %d\n", l.Next)
	}
}

func (a *App) forgetVerb() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "forget RECEIPT", Short: "Delete the stored arguments and output of a call",
		Long: `Delete the stored long arguments and output of a call, and the salts of their commitments. The
receipt stays, with their lengths; an entry of the ledger, which still verifies, records the deletion and the
person who made it. Afterwards the texts cannot be recovered, and no text can be checked against the
commitments.`,
		Example: "  bailey receipts forget r-…",
		Args:    OneArg("a receipt, for example: bailey receipts forget r-…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := Operate(cmd.Context(), a, "receipts forget", apitype.ForgetReceipt, apitype.ID{ID: args[0]},
				"Delete the stored arguments and output of "+terminal.CutLine(args[0])+" permanently?")
			if err != nil {
				return err
			}
			return a.PrintLine(f, "deleted of %s: %s\n", f.Receipt, strings.Join(f.Parts, ", "))
		},
	})
}

// copyFlag adds the flag for a ledger other than that of the home.
func copyFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "ledger", "",
		"read the ledger in this `directory`, for example a copy: uses no gateway, writes nothing")
	cmd.MarkFlagDirname("ledger")
}

// requireLedger returns an error if the home has no ledger. Otherwise a query would start a gateway, which would create an
// empty ledger.
func (a *App) requireLedger() error {
	home, err := localapi.FindHome()
	if err != nil {
		return err
	}
	if !a.Local.Begun(home.Ledger()) {
		return bailey.NotFound.New("there is no ledger in "+string(home),
			"make a call first, which creates the ledger; BAILEY_HOME names the home. --ledger DIR reads a copy")
	}
	return nil
}

// openReader opens the ledger in dir or, if dir is empty, the ledger of the home.
func (a *App) openReader(dir string) (ReceiptReader, error) {
	if dir != "" {
		return a.Local.Ledger(a, dir, true)
	}
	if err := a.requireLedger(); err != nil {
		return nil, err
	}
	home, err := localapi.FindHome()
	if err != nil {
		return nil, err
	}
	return a.Local.Ledger(a, home.Ledger(), false)
}

// isTerminal reports whether standard error is a terminal.
func (a *App) isTerminal() bool {
	f, ok := a.Stderr.(*os.File)
	return ok && terminal.Is(f)
}

// Progress returns a function that prints progress, or nil without a terminal.
func (a *App) Progress(what string) func(done, all int64) {
	if !a.isTerminal() {
		return nil
	}
	next := time.Now().Add(2 * time.Second)
	return func(done, all int64) {
		if now := time.Now(); now.After(next) {
			next = now.Add(5 * time.Second)
			fmt.Fprintf(a.Stderr, "bailey: %s: %d %%\n", what, done*100/all)
		}
	}
}

// withSlowNotice prints a message if the answer takes more than a second.
func (a *App) withSlowNotice(do func() error) error {
	if a.isTerminal() {
		defer time.AfterFunc(time.Second, func() {
			fmt.Fprintln(a.Stderr, "bailey: still searching: the first query after the index was lost takes longest")
		}).Stop()
	}
	return do()
}

// receiptsFrom looks up receipts in the index of the gateway or, if dir is set, in the copy of a ledger.
func receiptsFrom[Request, Answer any](ctx context.Context, a *App, dir string, e localapi.Endpoint[Request, Answer],
	q Request, copied func(ReceiptReader) (Answer, error), inWords func(io.Writer, Answer)) error {
	if dir == "" {
		if err := a.requireLedger(); err != nil {
			return err
		}
		return a.withSlowNotice(func() error { return Show(ctx, a, e, q, inWords) })
	}
	r, err := a.openReader(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	answer, err := copied(r)
	if err != nil {
		return err
	}
	return PrintAnswer(a, answer, inWords)
}

// receiptFilter is a filter for receipts, as given by flags.
type receiptFilter struct {
	receipts.Filter
	since, until string
}

func (w *receiptFilter) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar((*string)(&w.Status), "status", "", "only those with this status: `"+strings.Join(statusNames(), "|")+"`")
	f.StringVar((*string)(&w.Capability), "capability", "", "only calls of this `capability`")
	f.StringVar(&w.Agent, "agent", "", "only calls of this `agent`")
	f.StringVar((*string)(&w.Session), "session", "", "only calls of this `session`")
	f.StringVar(&w.since, "since", "",
		"started at or after `7d`, 36h or 90m ago, a date, or a time such as 2026-11-03T09:00:00Z")
	f.StringVar(&w.until, "until", "", "started before `1d` ago, a date or a time")
	cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statusNames(), cobra.ShellCompDirectiveNoFileComp))
}

// buildFilter returns the filter with times relative to now. It rejects invalid values before a gateway is started.
func (w *receiptFilter) buildFilter(now time.Time) (f receipts.Filter, err error) {
	f = w.Filter
	if f.Status != "" && !slices.Contains(receipts.Statuses(), f.Status) {
		return f, bailey.Invalid.Errorf("there are "+strings.Join(statusNames(), ", "),
			"unknown status %q of receipts", f.Status)
	}
	if f.Since, err = parseTime("--since", w.since, now); err != nil {
		return f, err
	}
	if f.Until, err = parseTime("--until", w.until, now); err != nil {
		return f, err
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		return f, bailey.Invalid.New("--since is not before --until: there is nothing between them",
			"use for example --since 7d --until 1d: from seven days ago to one day ago")
	}
	return f, nil
}

func statusNames() (names []string) {
	for _, s := range receipts.Statuses() {
		names = append(names, string(s))
	}
	return names
}

// parseTime parses a time in one of these forms: an age in units from weeks to seconds (for example 7d, 1d12h, 90m), a
// date, which means midnight in the local time zone, or an RFC 3339 time. "" is the zero time.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, now.Location()); err == nil {
		return t, nil
	}
	if ago, ok := parseDuration(text); ok {
		return now.Add(-ago), nil
	}
	return time.Time{}, bailey.Invalid.Errorf("as in "+flag+" 7d, 36h, 1d12h, 2026-11-03 or 2026-11-03T09:00:00Z",
		"%s %q is neither a duration nor a time", flag, text)
}

// durationUnits in descending order. Each unit may occur once, and smaller units must follow larger ones.
const durationUnits = "wdhms"

// parseDuration parses an age: numbers with units, larger units first. A day is 24 hours.
func parseDuration(text string) (sum time.Duration, ok bool) {
	lengths := [...]time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}
	for from := 0; text != ""; {
		n, digits := int64(0), 0
		for ; digits < len(text) && text[digits] >= '0' && text[digits] <= '9'; digits++ {
			if n = 10*n + int64(text[digits]-'0'); n > math.MaxInt32 {
				return 0, false
			}
		}
		if digits == 0 || digits == len(text) {
			return 0, false
		}
		for from < len(durationUnits) && durationUnits[from] != text[digits] {
			from++
		}
		if from == len(durationUnits) || n > int64((math.MaxInt64-sum)/lengths[from]) {
			return 0, false
		}
		sum += time.Duration(n) * lengths[from]
		from++
		text = text[digits+1:]
		ok = true
	}
	return sum, ok
}
