package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/localapi"
	"bailey/internal/receipts"
)

// exported is a receipt outside the ledger. It refers to its entries by number and hash, and to the ledger by origin
// and by the number of entries at the time of the export. Origin and size are the same in all records of one export.
type exported struct {
	Origin      string           `json:"origin"`
	Size        uint64           `json:"size"`
	Receipt     bailey.ReceiptID `json:"receipt"`
	Status      bailey.Status    `json:"status"` // "open" until there is an outcome
	Seq         uint64           `json:"seq"`
	Hash        audit.Hash       `json:"hash"`
	OutcomeSeq  *uint64          `json:"outcomeSeq"`
	OutcomeHash *audit.Hash      `json:"outcomeHash"`
	Intent      bailey.Intent    `json:"intent"`
	Outcome     *bailey.Outcome  `json:"outcome"`
}

func newExported(r receipts.Record, origin string, size uint64) exported {
	x := exported{Origin: origin, Size: size, Receipt: r.Intent.Receipt, Status: r.Status(), Seq: r.Seq, Hash: r.Hash, Intent: r.Intent, Outcome: r.Outcome}
	if r.Outcome != nil {
		x.OutcomeSeq, x.OutcomeHash = &r.OutcomeSeq, &r.OutcomeHash
	}
	return x
}

// exporter writes receipts in one format. begin and end write additional text before the first and after the last
// receipt.
type exporter struct {
	begin  func(w io.Writer, origin string, size uint64) error
	record func(w io.Writer, first bool, r exported) error
	end    func(w io.Writer) error
}

// formats returns the export formats by name.
func formats() map[string]exporter {
	nothing := func(io.Writer) error { return nil }
	return map[string]exporter{
		"jsonl": {
			begin:  func(io.Writer, string, uint64) error { return nil },
			record: func(w io.Writer, _ bool, r exported) error { return writeJSON(w, r) },
			end:    nothing,
		},
		"json": {
			begin: func(w io.Writer, origin string, size uint64) error {
				_, err := fmt.Fprintf(w, "{\"origin\":%q,\"size\":%d,\"receipts\":[\n", origin, size)
				return err
			},
			record: func(w io.Writer, first bool, r exported) error {
				if !first {
					io.WriteString(w, ",")
				}
				return writeJSON(w, r)
			},
			end: func(w io.Writer) error { _, err := io.WriteString(w, "]}\n"); return err },
		},
		"csv": {
			begin:  func(w io.Writer, _ string, _ uint64) error { return writeCSV(w, csvHeader()) },
			record: func(w io.Writer, _ bool, r exported) error { return writeCSV(w, csvCells(r)) },
			end:    nothing,
		},
		"ocsf": {
			begin:  func(io.Writer, string, uint64) error { return nil },
			record: func(w io.Writer, _ bool, r exported) error { return writeJSON(w, newOCSF(r)) },
			end:    nothing,
		},
	}
}

func formatNames() []string { return []string{"jsonl", "json", "csv", "ocsf"} }

func (a *App) exportVerb() *cobra.Command {
	var w receiptFilter
	var format, dir string
	cmd := &cobra.Command{
		Use: "export", Short: "Write receipts for other programs: JSON lines, JSON, CSV, OCSF", Args: cobra.NoArgs,
		Long: `Write receipts to stdout, oldest first, as the ledger is when the export begins: what ends later is open.
The ledger's files are read, twice, and its chain checked; no index and no gateway is asked.
Each record says where it stands in the ledger: origin, number and hash of its entries, and the size,
which is how many entries the ledger had. Filters are those of receipts list.

  jsonl  one JSON object a line
  json   one JSON document
  csv    RFC 4180, a line for each receipt; what cannot be seen is escaped, and what a spreadsheet could take for a
         formula gets a ' in front
  ocsf   one event a line, class API Activity (6003) of OCSF ` + ocsfVersion + `

Memory is bounded. An export that was not written whole ends with an exit code other than 0.`,
		Example: "  bailey receipts export --since 7d --format csv > week.csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format == "" {
				format = map[bool]string{true: "json", false: "jsonl"}[a.JSON]
			}
			form, ok := formats()[format]
			if !ok {
				return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("there is no format %q", format), Hint: "there are " + strings.Join(formatNames(), ", ")}
			}
			f, err := w.filter(time.Now())
			if err != nil {
				return err
			}
			a.JSON = false // standard output must contain only records
			return a.export(cmd.Context(), dir, f, form)
		},
	}
	w.flags(cmd)
	copyFlag(cmd, &dir)
	cmd.Flags().StringVar(&format, "format", "", "`"+strings.Join(formatNames(), "|")+"`; jsonl, or json with --json")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// export reads the ledger itself, because an index may lack entries without any sign of it.
func (a *App) export(ctx context.Context, dir string, f receipts.Filter, form exporter) error {
	r, err := a.reader(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	out := bufio.NewWriterSize(a.Stdout, 64<<10)
	var from string
	var size uint64
	first := true
	begin := func(origin string, head audit.Head) error {
		from, size = origin, head.Seq
		return form.begin(out, from, size)
	}
	err = r.Each(ctx, f, begin, func(r receipts.Record) error {
		err := form.record(out, first, newExported(r, from, size))
		first = false
		return err
	})
	if err == nil {
		err = form.end(out)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// eachPage queries all receipts that match f, oldest first, and calls do for each page. Every page has the head that
// the ledger had at the first page.
func (a *App) eachPage(ctx context.Context, f receipts.Filter, do func(receipts.Page) error) error {
	c, err := a.Client()
	if err != nil {
		return err
	}
	f.Oldest, f.Limit = true, receipts.MaxLimit
	var begun receipts.Page
	for {
		var p receipts.Page
		if err := c.Look(ctx, localapi.Query{Verb: "records", Args: filterArgs(f)}, &p); err != nil {
			return err
		}
		if f.Size == 0 {
			begun, f.Size = p, p.Head.Seq
		}
		if p.Origin != begun.Origin || p.Head.Seq < begun.Head.Seq {
			return &bailey.Error{Kind: bailey.Conflict, Message: "the ledger was replaced meanwhile", Hint: "begin again; bailey audit verify looks at the one that is there"}
		}
		p.Head = begun.Head
		if err := do(p); err != nil || !p.More {
			return err
		}
		f.After = slices.MaxFunc(p.Records, func(x, y receipts.Record) int { return int(x.Seq) - int(y.Seq) }).Seq
	}
}
