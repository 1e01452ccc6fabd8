package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/audit"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
)

// exportRecord is a receipt outside the ledger. It refers to its entries by number and hash, and to the ledger by origin
// and by the number of entries at the time of the export. Origin and size are the same in all records of one export.
type exportRecord struct {
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

func newExported(r receipts.Record, origin string, size uint64) exportRecord {
	x := exportRecord{Origin: origin, Size: size, Receipt: r.Intent.Receipt, Status: r.Status(), Seq: r.Seq,
		Hash: r.Hash, Intent: r.Intent, Outcome: r.Outcome}
	if r.Outcome != nil {
		x.OutcomeSeq, x.OutcomeHash = &r.OutcomeSeq, &r.OutcomeHash
	}
	return x
}

// exportFormat writes receipts in one format. begin and end write additional text before the first and after the last
// receipt.
type exportFormat struct {
	begin  func(w io.Writer, origin string, size uint64) error
	record func(w io.Writer, first bool, r exportRecord) error
	end    func(w io.Writer) error
}

// exportFormats returns the export formats by name.
func exportFormats() map[string]exportFormat {
	lines := exportFormat{
		begin:  func(io.Writer, string, uint64) error { return nil },
		record: func(w io.Writer, _ bool, r exportRecord) error { return writeJSON(w, r) },
		end:    func(io.Writer) error { return nil },
	}
	table, events, document := lines, lines, lines
	table.begin = func(w io.Writer, _ string, _ uint64) error { return writeCSV(w, csvHeader()) }
	table.record = func(w io.Writer, _ bool, r exportRecord) error { return writeCSV(w, csvCells(r)) }
	events.record = func(w io.Writer, _ bool, r exportRecord) error { return writeJSON(w, newOCSF(r)) }
	document.begin = func(w io.Writer, origin string, size uint64) error {
		_, err := fmt.Fprintf(w, "{\"origin\":%q,\"size\":%d,\"receipts\":[\n", origin, size)
		return err
	}
	document.record = func(w io.Writer, first bool, r exportRecord) error {
		if !first {
			io.WriteString(w, ",")
		}
		return writeJSON(w, r)
	}
	document.end = func(w io.Writer) error { _, err := io.WriteString(w, "]}\n"); return err }
	return map[string]exportFormat{"jsonl": lines, "json": document, "csv": table, "ocsf": events}
}

func formatNames() []string { return []string{"jsonl", "json", "csv", "ocsf"} }

func (a *App) exportVerb() *cobra.Command {
	var w receiptFilter
	var format, dir string
	cmd := &cobra.Command{
		Use: "export", Short: "Export receipts as JSON lines, JSON, CSV or OCSF", Args: cobra.NoArgs,
		Long: `Write receipts to stdout, oldest first, in the state of the ledger at the start: a call that ends
later is open. The ledger's files are read twice and its chain is checked, without the index or the gateway.
Each record has its place in the ledger: origin, number and hash of its entries, and the size, the number of
entries of the ledger. Filters are those of receipts list.

  jsonl  one JSON object a line
  json   one JSON document
  csv    RFC 4180, a line for each receipt; invisible characters are escaped, and text that a spreadsheet
         could read as a formula gets a ' in front
  ocsf   one event a line, class API Activity (6003) of OCSF ` + ocsfVersion + `

Memory use is bounded. If the export is incomplete, the exit code is not 0.`,
		Example: "  bailey receipts export --since 7d --format csv > week.csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format == "" {
				format = map[bool]string{true: "json", false: "jsonl"}[a.JSON]
			}
			form, ok := exportFormats()[format]
			if !ok {
				return bailey.Invalid.Errorf("there are "+strings.Join(formatNames(), ", "),
					"unknown format %q", format)
			}
			f, err := w.buildFilter(time.Now())
			if err != nil {
				return err
			}
			a.JSON = false // standard output must contain only records
			return a.exportReceipts(cmd.Context(), dir, f, form)
		},
	}
	w.addFlags(cmd)
	copyFlag(cmd, &dir)
	cmd.Flags().StringVar(&format, "format", "", "`"+strings.Join(formatNames(), "|")+"`; jsonl, or json with --json")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(formatNames(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// exportReceipts reads the ledger itself, because an index may lack entries without any sign of it.
func (a *App) exportReceipts(ctx context.Context, dir string, f receipts.Filter, form exportFormat) error {
	r, err := a.openReader(dir)
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
		p, err := apitype.ListRecords.Ask(ctx, c, f)
		if err != nil {
			return err
		}
		if f.Size == 0 {
			begun, f.Size = p, p.Head.Seq
		}
		if p.Origin != begun.Origin || p.Head.Seq < begun.Head.Seq {
			return bailey.Conflict.New("the ledger was replaced during the export",
				"export again; bailey audit verify checks the current ledger")
		}
		p.Head = begun.Head
		if err := do(p); err != nil || !p.More {
			return err
		}
		f.After = slices.MaxFunc(p.Records, func(x, y receipts.Record) int { return int(x.Seq) - int(y.Seq) }).Seq
	}
}

// csvHeader returns the column names of csvCells. Lists and objects are JSON within their cell.
func csvHeader() []string {
	return strings.Fields(`receipt status decision started_at ended_at capability agent person roles organisation host session door client dir
		unattended dry_run input input_bytes rules reason executed exit_code timed_out argv cwd paths env_names cage enforced layers plan_digest binary binary_digest
		stdout_bytes stderr_bytes truncated redactions restored leases approval manifest_digest policy_digest
		reaches egress
		seq hash outcome_seq outcome_hash origin size`)
}

func csvCells(r exportRecord) []string {
	in, o, cage := r.Intent, r.Outcome, &bailey.Cage{}
	if o == nil {
		o = &bailey.Outcome{}
	}
	if o.Cage != nil {
		cage = o.Cage
	}
	texts := []any{
		r.Receipt, r.Status, o.Decision, in.StartedAt, o.EndedAt, in.Capability, in.Agent, in.Person, in.Roles,
		in.Organisation, in.Host, in.Session, in.Door, in.Client, in.Dir,
		in.Unattended, in.DryRun, in.Input, in.InputBytes, o.Rules, o.Reason, o.Executed, o.ExitCode, o.TimedOut,
		o.Argv, o.Cwd, o.Paths, o.EnvNames, cage.Kind, cage.Enforced, cage.Layers, cage.PlanDigest, cage.Binary,
		cage.BinaryDigest,
		o.StdoutBytes, o.StderrBytes, o.Truncated, o.Redactions, o.Restored, o.Leases, o.Approval, o.ManifestDigest,
		o.PolicyDigest,
		o.Reaches, o.Egress,
		r.Seq, r.Hash, r.OutcomeSeq, r.OutcomeHash, r.Origin, r.Size,
	}
	cells := make([]string, len(texts))
	for i, v := range texts {
		cells[i] = csvCell(v)
	}
	return cells
}

// csvCell formats one value: a time as RFC 3339, an absent value as "", a text unchanged, and any other value as JSON.
func csvCell(v any) string {
	if t, ok := v.(time.Time); ok {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	b, err := json.Marshal(v)
	if err != nil || string(b) == "null" {
		return ""
	}
	var text string
	if json.Unmarshal(b, &text) == nil {
		return text
	}
	return string(b)
}

// writeCSV writes a row according to RFC 4180, with each cell in quotes.
func writeCSV(w io.Writer, cells []string) error {
	quoted := make([]string, len(cells))
	for i, c := range cells {
		quoted[i] = `"` + strings.ReplaceAll(escapeFormula(terminal.Shown(c)), `"`, `""`) + `"`
	}
	_, err := fmt.Fprintf(w, "%s\r\n", strings.Join(quoted, ","))
	return err
}

// escapeFormula puts a ' before text that a spreadsheet could take for a formula, because agents choose some of these texts
// and a formula can send data out. Line feeds and full-width forms count too, because some programs trim or fold them
// first. So does text after a semicolon, which separates cells where the comma is the decimal point (OWASP, CSV
// injection).
func escapeFormula(cell string) string {
	var b strings.Builder
	before := ';'
	for _, c := range cell {
		if before == ';' && strings.ContainsRune("=+-@\t\r\n＝＋－＠", c) {
			b.WriteByte('\'')
		}
		b.WriteRune(c)
		before = c
	}
	return b.String()
}

// ocsfVersion is the version of the Open Cybersecurity Schema Framework that defines the class API Activity
// (github.com/ocsf/ocsf-schema, events/application/api_activity.json).
const ocsfVersion = "1.6.0"

// Identifiers of the class. activity_id is Other, because a receipt does not say whether its capability, for example,
// creates or reads.
const (
	ocsfApplication = 6
	ocsfAPIActivity = 6003
	ocsfOther       = 99
)

// ocsf is a receipt as an API Activity event. Unmapped has what the class does not have: the position of the receipt in the
// ledger, and the receipt itself.
type ocsf struct {
	ActivityID   int    `json:"activity_id"`
	ActivityName string `json:"activity_name"`
	CategoryUID  int    `json:"category_uid"`
	CategoryName string `json:"category_name"`
	ClassUID     int    `json:"class_uid"`
	ClassName    string `json:"class_name"`
	TypeUID      int    `json:"type_uid"`
	TypeName     string `json:"type_name"`
	SeverityID   int    `json:"severity_id"`
	StatusID     int    `json:"status_id"`
	Status       string `json:"status"`
	StatusDetail string `json:"status_detail,omitempty"`
	Time         int64  `json:"time"` // milliseconds since 1970, like all OCSF times
	StartTime    int64  `json:"start_time"`
	EndTime      int64  `json:"end_time,omitempty"`
	Duration     *int64 `json:"duration,omitempty"`
	Message      string `json:"message"`
	Metadata     struct {
		Version string `json:"version"`
		Product struct {
			Name       string `json:"name"`
			VendorName string `json:"vendor_name"`
			Version    string `json:"version"`
		} `json:"product"`
		UID          string `json:"uid"`
		LogName      string `json:"log_name"`
		Sequence     uint64 `json:"sequence"`
		OriginalTime string `json:"original_time"`
	} `json:"metadata"`
	Actor struct {
		AppName string    `json:"app_name"` // the agent
		User    *ocsfUser `json:"user,omitempty"`
		Session struct {
			UID string `json:"uid"`
		} `json:"session"`
	} `json:"actor"`
	API struct {
		Operation string `json:"operation"`
		Request   struct {
			UID  string          `json:"uid"`
			Data json.RawMessage `json:"data,omitempty"`
		} `json:"request"`
		Response *ocsfResponse `json:"response,omitempty"`
	} `json:"api"`
	SrcEndpoint struct {
		Hostname string `json:"hostname,omitempty"`
		Name     string `json:"name"` // the interface of the call
	} `json:"src_endpoint"`
	Unmapped struct {
		Ledger struct {
			Origin      string  `json:"origin"`
			Size        uint64  `json:"size"`
			Seq         uint64  `json:"seq"`
			Hash        string  `json:"hash"`
			OutcomeSeq  *uint64 `json:"outcome_seq"`
			OutcomeHash *string `json:"outcome_hash"`
		} `json:"ledger"`
		Intent  bailey.Intent   `json:"intent"`
		Outcome *bailey.Outcome `json:"outcome"`
	} `json:"unmapped"`
}

type ocsfUser struct {
	Name string `json:"name"`
}

type ocsfResponse struct {
	Code    *int   `json:"code,omitempty"`
	Error   string `json:"error,omitempty"`
	Message string `json:"message,omitempty"`
}

func newOCSF(r exportRecord) ocsf {
	in := r.Intent
	e := ocsf{
		ActivityID: ocsfOther, ActivityName: "Call", CategoryUID: ocsfApplication, CategoryName: "Application Activity",
		ClassUID: ocsfAPIActivity, ClassName: "API Activity", TypeUID: ocsfAPIActivity*100 + ocsfOther,
		TypeName: "API Activity: Other",
		Status:   string(r.Status), Time: in.StartedAt.UnixMilli(), StartTime: in.StartedAt.UnixMilli(),
		Message: string(in.Capability) + ": " + string(r.Status) + apitype.DryRun(in.DryRun),
	}
	m, l := &e.Metadata, &e.Unmapped.Ledger
	m.Version, m.UID, m.LogName, m.Sequence = ocsfVersion, string(r.Receipt), "ledger", r.Seq
	m.OriginalTime = csvCell(in.StartedAt)
	m.Product.Name, m.Product.VendorName, m.Product.Version = "Bailey", "Bailey", apitype.Version
	e.Actor.AppName, e.Actor.Session.UID = in.Agent, string(in.Session)
	e.API.Operation, e.API.Request.UID, e.API.Request.Data = string(in.Capability), string(r.Receipt), in.Input
	e.SrcEndpoint.Hostname, e.SrcEndpoint.Name = in.Host, in.Door
	l.Origin, l.Size, l.Seq, l.Hash, l.OutcomeSeq = r.Origin, r.Size, r.Seq, r.Hash.String(), r.OutcomeSeq
	e.Unmapped.Intent, e.Unmapped.Outcome = in, r.Outcome
	e.StatusID, e.SeverityID = ocsfStatus(r.Status)
	if in.Person != "" {
		e.Actor.User = &ocsfUser{in.Person}
	}
	if o := r.Outcome; o != nil {
		took, hash := o.EndedAt.Sub(in.StartedAt).Milliseconds(), r.OutcomeHash.String()
		e.EndTime, e.Duration, e.StatusDetail, l.OutcomeHash = o.EndedAt.UnixMilli(), &took, o.Reason, &hash
		e.API.Response = &ocsfResponse{Code: o.ExitCode, Message: o.Reason}
		if r.Status != bailey.OK {
			e.API.Response.Error = string(r.Status)
		}
	}
	return e
}

// ocsfStatus returns status_id (0 unknown, 1 success, 2 failure, 99 other) and severity_id (1 informational, 2 low, 3
// medium).
func ocsfStatus(s bailey.Status) (status, severity int) {
	switch s {
	case bailey.OK:
		return 1, 1
	case bailey.Refused, bailey.Failed:
		return 2, 2
	case bailey.Killed, bailey.Interrupted:
		return 2, 3
	case bailey.Pending:
		return ocsfOther, 1
	}
	return 0, 1
}
