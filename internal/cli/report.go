package cli

import (
	"cmp"
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

// maxReported limits the calls that a report lists. All are counted.
const maxReported = 10_000

// sessionReport summarizes a session. All of its content comes from receipts.
type sessionReport struct {
	Session   bailey.SessionID      `json:"session"`
	Agents    []string              `json:"agents"`
	People    []string              `json:"people"`
	Hosts     []string              `json:"hosts"`
	Doors     []string              `json:"doors"`
	Clients   []string              `json:"clients"` // as they name themselves
	From      time.Time             `json:"from"`
	Until     time.Time             `json:"until"`
	Counts    map[bailey.Status]int `json:"counts"`
	Asked     map[string]int        `json:"asked"` // by capability
	Cages     map[string]int        `json:"cages"` // of calls that were executed
	Models    *modelSum             `json:"models,omitempty"`
	Calls     []reportedCall        `json:"calls"`
	NotListed int                   `json:"notListed,omitempty"`
	Ledger    reportedLedger        `json:"ledger"`
	copied    string                // the directory of the copy that was read; "" for the home
}

type reportedCall struct {
	Receipt    bailey.ReceiptID    `json:"receipt"`
	Seq        uint64              `json:"seq"`
	OutcomeSeq uint64              `json:"outcomeSeq,omitempty"`
	StartedAt  time.Time           `json:"startedAt"`
	Capability bailey.CapabilityID `json:"capability"`
	Input      json.RawMessage     `json:"input,omitempty"`
	InputBytes int                 `json:"inputBytes,omitempty"` // if the input was too long for the ledger entry
	Argv       []string            `json:"argv,omitempty"`
	Status     bailey.Status       `json:"status"`
	Decision   string              `json:"decision,omitempty"`
	Policy     string              `json:"policyDigest,omitempty"` // of the rules that decided
	Rules      []string            `json:"rules,omitempty"`
	Cage       string              `json:"cage,omitempty"`
	Executed   *bool               `json:"executed"` // null if it is not known or the call is open
	ExitCode   *int                `json:"exitCode,omitempty"`
	DryRun     bool                `json:"dryRun,omitempty"`
	Approval   bailey.ApprovalID   `json:"approval,omitempty"`
	Why        string              `json:"why,omitempty"` // if the call did not succeed
	Model      *bailey.ModelUse    `json:"model,omitempty"`
}

// modelSum is the sum of the requests to models.
type modelSum struct {
	Requests int   `json:"requests"`
	Input    int64 `json:"inputTokens"` // with those of the cache
	Output   int64 `json:"outputTokens"`
	MicroUSD int64 `json:"microUsd"`
}

func (m *modelSum) String() string {
	return fmt.Sprintf("%s, %d tokens in, %d out, %s", apitype.Counts(m.Requests, "request"), m.Input, m.Output,
		apitype.Dollars(m.MicroUSD))
}

// addModel adds a request to a model.
func (r *sessionReport) addModel(u *bailey.ModelUse) {
	if u == nil {
		return
	}
	if r.Models == nil {
		r.Models = &modelSum{}
	}
	in, out := u.Tokens()
	r.Models.Requests++
	r.Models.Input += in
	r.Models.Output += out
	r.Models.MicroUSD += u.MicroUSD
}

// modelText describes a request to a model: the prompt by its length, the answer, and the tools that the model called.
func modelText(u *bailey.ModelUse) string {
	text := ""
	if u.PromptBytes > 0 {
		text = fmt.Sprintf("a prompt of %d bytes; ", u.PromptBytes)
	}
	in, out := u.Tokens()
	text += fmt.Sprintf("%s, %d tokens in, %d out, %s, first byte after %d ms", cmp.Or(u.Model, "no model"), in, out,
		apitype.Dollars(u.MicroUSD), u.FirstMillis)
	if u.Estimated {
		text += ", counted by Bailey"
	}
	if len(u.Tools) > 0 {
		text += "; it called " + strings.Join(u.Tools, ", ")
	}
	return text
}

type reportedLedger struct {
	Origin string     `json:"origin"`
	Size   uint64     `json:"size"` // number of entries when the report was made
	Head   audit.Hash `json:"head"`
}

func (a *App) reportVerb() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "report SESSION", Short: "Summarise a session on one page: agents, calls, decisions, failures",
		Args: cobra.MaximumNArgs(1),
		Long: "Summarise a session on one page, from its receipts only: the callers and their calls, the rules that decided,\nthe jails, failures and denials with their reasons, and how to verify it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.offerSession(cmd.Context(), dir)
			}
			r, err := a.reportOf(cmd.Context(), bailey.SessionID(args[0]), dir)
			if err != nil {
				return err
			}
			return PrintAnswer(a, r, func(w io.Writer, r *sessionReport) { r.writePage(w) })
		},
	}
	copyFlag(cmd, &dir)
	return cmd
}

// offerSession returns an error that names the session of the latest receipt.
func (a *App) offerSession(ctx context.Context, dir string) error {
	r, err := a.openReader(dir)
	if err != nil {
		return err
	}
	defer r.Close()
	page, err := r.Find(ctx, receipts.Filter{Limit: 1})
	if err != nil {
		return err
	}
	hint := "make a call first"
	if rows := apitype.NewReceiptList(page).Receipts; len(rows) > 0 {
		hint = "the latest is " + string(rows[0].Session) + ": bailey receipts report " + string(rows[0].Session)
	}
	return bailey.Invalid.New("one argument is needed, a session", hint)
}

func (a *App) reportOf(ctx context.Context, id bailey.SessionID, dir string) (r *sessionReport, err error) {
	r = &sessionReport{Session: id, copied: dir, Counts: map[bailey.Status]int{}, Asked: map[string]int{},
		Cages: map[string]int{}, Calls: []reportedCall{}}
	switch {
	case id == "": // every call has a session
	case dir != "":
		err = r.fromCopy(ctx, a, dir)
	default:
		if err = a.requireLedger(); err == nil {
			err = a.withSlowNotice(func() error { return a.eachPage(ctx, receipts.Filter{Session: id}, r.addPage) })
		}
	}
	if err == nil && len(r.Calls) == 0 {
		err = bailey.NotFound.Errorf("run bailey receipts list --json to see the session of each",
			"no receipt belongs to session %q", id)
	}
	return r, err
}

func (r *sessionReport) fromCopy(ctx context.Context, a *App, dir string) error {
	from, err := a.openReader(dir)
	if err != nil {
		return err
	}
	defer from.Close()
	begin := func(origin string, head audit.Head) error {
		r.Ledger = reportedLedger{origin, head.Seq, head.Hash}
		return nil
	}
	return from.Each(ctx, receipts.Filter{Session: r.Session}, begin,
		func(record receipts.Record) error { r.addRecord(record); return nil })
}

func (r *sessionReport) addPage(p receipts.Page) error {
	r.Ledger = reportedLedger{p.Origin, p.Head.Seq, p.Head.Hash}
	for _, record := range p.Records {
		r.addRecord(record)
	}
	return nil
}

func (r *sessionReport) addRecord(record receipts.Record) {
	in, o := &record.Intent, record.Outcome
	for _, v := range []struct {
		list *[]string
		text string
	}{{&r.Agents, in.Agent}, {&r.People, in.Person}, {&r.Hosts, in.Host}, {&r.Doors, in.Door},
		{&r.Clients, in.Client}} {
		if i, found := slices.BinarySearch(*v.list, v.text); v.text != "" && !found {
			*v.list = slices.Insert(*v.list, i, v.text)
		}
	}
	if r.From.IsZero() || in.StartedAt.Before(r.From) {
		r.From = in.StartedAt
	}
	last := in.StartedAt
	c := reportedCall{Receipt: in.Receipt, Seq: record.Seq, StartedAt: in.StartedAt, Capability: in.Capability,
		Status: record.Status(), DryRun: in.DryRun, Input: in.Input, InputBytes: in.InputBytes}
	if o != nil {
		last = o.EndedAt
		c.setOutcome(record.OutcomeSeq, o)
		r.addModel(o.Model)
		if o.Executed != nil && *o.Executed && o.Cage != nil {
			r.Cages[o.Cage.Kind]++
		}
	}
	if last.After(r.Until) {
		r.Until = last
	}
	r.Counts[c.Status]++
	r.Asked[string(in.Capability)]++
	if len(r.Calls) == maxReported {
		r.NotListed++
		return
	}
	r.Calls = append(r.Calls, c)
}

func (c *reportedCall) setOutcome(seq uint64, o *bailey.Outcome) {
	c.OutcomeSeq, c.Decision, c.Policy, c.Executed, c.ExitCode, c.Approval, c.Argv = seq, o.Decision, o.PolicyDigest, o.Executed, o.ExitCode, o.Approval, o.Argv
	c.Model = o.Model
	for _, rule := range o.Rules {
		c.Rules = append(c.Rules, string(rule.ID))
	}
	if o.Cage != nil {
		c.Cage = o.Cage.Kind
	}
	if o.Status != bailey.OK {
		c.Why = o.Reason
	}
}

// writePage prints the page. External text is escaped, so that it cannot forge lines.
func (r *sessionReport) writePage(w io.Writer) {
	line := func(format string, args ...any) {
		for i, v := range args {
			args[i] = terminal.Shown(fmt.Sprint(v))
		}
		fmt.Fprintf(w, format+"\n", args...)
	}
	when := func(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }
	listed := func(list []string) string { return cmp.Or(strings.Join(list, ", "), "not said") }
	line("Session %s", r.Session)
	line("  agent   %s", listed(r.Agents))
	line("  person  %s", listed(r.People))
	line("  client  %s (as reported by itself)", listed(r.Clients))
	line("  host    %s, by %s", listed(r.Hosts), listed(r.Doors))
	line("  from    %s", when(r.From))
	line("  until   %s", when(r.Until))
	line("\nCalls     %s", formatCounts(r.Counts))
	line("Asked for %s", formatCounts(r.Asked))
	line("Ran in    %s", cmp.Or(formatCounts(r.Cages), "no jail: nothing was executed"))
	if r.Models != nil {
		line("Models    %s", r.Models)
	}
	line("")
	for _, c := range r.Calls {
		line("%s  %s  %s%s", c.StartedAt.Local().Format(time.TimeOnly), c.Capability, c.Status,
			apitype.DryRun(c.DryRun))
		line("    asked    %s", c.inputText())
		line("    decided  %s%s", c.decisionText(),
			map[bool]string{true: ", asked as " + string(c.Approval)}[c.Approval != ""])
		if c.Model != nil {
			line("    model    %s", modelText(c.Model))
		} else {
			line("    ran      %s", c.executionText())
		}
		if c.Why != "" {
			line("    why      %s", c.Why)
		}
		line("    receipt  %s (entries %s)", c.Receipt, entryNumbers(c))
	}
	if r.NotListed > 0 {
		line("… and %s more: bailey receipts export --session %s", r.NotListed, r.Session)
	}
	line("\nTo verify: %s. The ledger %s had %s entries; the hash of the last was\n%s.",
		strings.TrimSpace("bailey audit verify "+r.copied), r.Ledger.Origin, r.Ledger.Size, r.Ledger.Head)
	line("Calls that did not pass the gate are not in it, and without a witness it proves order, not honesty.")
}

// inputText returns a short form of the input; the receipt contains it in full.
func (c *reportedCall) inputText() string {
	if c.InputBytes > 0 {
		return fmt.Sprintf("%d bytes of input, which are not in the ledger", c.InputBytes)
	}
	return cmp.Or(shortenMiddle(string(c.Input)), "no input")
}

// decisionText returns the decision with its rules, or the reason if there are none.
func (c *reportedCall) decisionText() string {
	switch {
	case c.Decision == "":
		return "nothing: it was not decided"
	case len(c.Rules) > 0:
		return c.Decision + " by " + strings.Join(c.Rules, ", ")
	case c.Policy == "":
		return c.Decision + " before any rule was evaluated"
	case c.Decision == bailey.Deny.String():
		return c.Decision + ": no rule permits it"
	}
	return c.Decision + " by no rule"
}

// shortenMiddle returns the beginning and the end of a long text.
func shortenMiddle(s string) string {
	r := []rune(s)
	if len(r) <= 200 {
		return s
	}
	return string(r[:100]) + " … " + string(r[len(r)-100:])
}

// executionText describes which command ran, and in which cage.
func (c *reportedCall) executionText() string {
	switch {
	case c.Executed == nil:
		return "unknown"
	case !*c.Executed:
		return "nothing"
	}
	code := ""
	if c.ExitCode != nil {
		code = fmt.Sprintf(", exit code %d", *c.ExitCode)
	}
	where := "in the jail " + c.Cage
	if c.Cage == bailey.Uncaged || c.Cage == "" {
		where = "without a jail"
	}
	return fmt.Sprintf("%s%s: %s", where, code,
		cmp.Or(shortenMiddle(strings.Join(c.Argv, " ")), "arguments too long for the ledger"))
}

func entryNumbers(c reportedCall) string {
	if c.OutcomeSeq == 0 {
		return fmt.Sprintf("%d, no outcome yet", c.Seq)
	}
	return fmt.Sprintf("%d and %d", c.Seq, c.OutcomeSeq)
}

// formatCounts formats counts as text, the largest first.
func formatCounts[K ~string](counts map[K]int) string {
	var names []K
	total := 0
	for name, n := range counts {
		names, total = append(names, name), total+n
	}
	slices.SortFunc(names, func(a, b K) int { return cmp.Or(counts[b]-counts[a], strings.Compare(string(a), string(b))) })
	var words []string
	for i, name := range names {
		if i == 20 {
			words = append(words, fmt.Sprintf("%d other kinds", len(names)-i))
			break
		}
		words = append(words, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(words, ", ")
}
