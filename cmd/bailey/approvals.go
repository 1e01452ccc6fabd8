package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/canon"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// openQuestion is the JSON form of a question. The question is open, or granted while its call has not come back, or
// over.
type openQuestion struct {
	bailey.Question
	State   string          `json:"state"`            // open, granted or over
	Waits   bool            `json:"waits"`            // a caller waits for the answer
	RunBy   time.Time       `json:"runBy,omitzero"`   // deadline of the call, if granted
	Lapsed  string          `json:"lapsed,omitempty"` // why a grant no longer counts
	Ended   string          `json:"ended,omitempty"`  // how it ended, if it is over
	Agent   string          `json:"agent"`
	Impact  string          `json:"impact"`
	Inputs  string          `json:"inputs"` // names and JSON values, on one line
	Argv    []string        `json:"argv"`   // readable; the text contains the escaped form
	Preview string          `json:"preview,omitempty"`
	Rules   []bailey.Rule   `json:"rules"`
	Open    bool            `json:"contentsNotBound"`
	Roles   []string        `json:"roles"` // each approver must hold all of them
	Count   int             `json:"count"` // required number of approvers
	Level   bailey.Level    `json:"level,omitempty"`
	Answers []approve.Event `json:"answers"`
}

const stateOpen, stateGranted, stateOver = "open", "granted", "over"

// newQuestion returns the JSON form of q.
func newQuestion(q bailey.Question) openQuestion {
	o := openQuestion{Question: q, State: stateOpen, Agent: q.Principal.Agent, Impact: q.Impact, Preview: q.Preview.Output.Text, Rules: q.Rules,
		Open: q.Contents == bailey.NotBound, Answers: []approve.Event{}}
	for _, in := range q.Inputs {
		o.Inputs += fmt.Sprintf(" %s=%s", in.Name, in.Text)
	}
	for _, arg := range q.Argv {
		o.Argv = append(o.Argv, arg.Text)
	}
	w := bailey.Combine(q.Rules)
	o.Roles, o.Count, o.Level = w.Roles, w.Count, w.Level
	return o
}

type questionList struct {
	Approvals []openQuestion `json:"approvals"`
}

func (a *app) approvalsVerb() *cobra.Command {
	list := a.approvalsList()
	cmd := &cobra.Command{
		Use: "approvals", Args: cobra.NoArgs, RunE: list.RunE, Short: "What waits for a person",
		Long: "List and show the questions that rules ask. A question is answered by bailey approve and bailey deny.",
	}
	cmd.AddCommand(list, a.approvalsShow(), a.approvalsServe())
	return cmd
}

func (a *app) approvalsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The questions that are open, oldest first", Args: cobra.NoArgs,
		Long: "List what waits for a person, and what was granted and waits for its call to come back. Questions about the same call\nof several sessions stand together.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, wire.Query{Verb: "approvals"}, func(l questionList) {
				if len(l.Approvals) == 0 {
					fmt.Fprintln(a.stdout, "no question is open")
				}
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for i, q := range l.Approvals {
					words := fmt.Sprintf("%s\tby %s\t%s\t%s", cell(string(q.Call)), cell(q.Agent), cell(strings.TrimSpace(q.Inputs)), q.waits())
					if i > 0 && l.Approvals[i-1].Alike == q.Alike {
						words = "the same\t\t\t" + q.waits()
					}
					fmt.Fprintf(w, "%s\t%s\tuntil %s\n", q.ID, words, q.until().Local().Format(time.TimeOnly))
				}
				w.Flush()
			})
		},
	}
}

func (q openQuestion) waits() string {
	switch {
	case q.Lapsed != "":
		return "asked anew when its call comes again: " + q.Lapsed
	case q.State == stateGranted:
		return "granted, not used yet"
	case q.Waits:
		return "waits"
	}
	return "parked"
}

func (q openQuestion) until() time.Time {
	if q.State == stateGranted {
		return q.RunBy
	}
	return q.Expires
}

func (a *app) approvalsShow() *cobra.Command {
	var plain bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "All that a question asks",
		Long: `Show a question whole: the text that an answer binds, and what it takes to grant it, or how it ended. docs/approvals.md
says how to read the text.

With --text it prints the text alone, byte for byte, which is what is signed:

  bailey approvals show ID --text | ssh-keygen -Y sign -n approval@bailey -f KEY > FILE`,
		Args: oneArg("a question: bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client()
			if err != nil {
				return err
			}
			q, err := questionOf(cmd.Context(), c, args[0])
			switch {
			case err != nil:
				return err
			case a.json:
				return a.print(q)
			case plain:
				_, err = a.stdout.Write([]byte(q.Text))
				return err
			}
			_, err = fmt.Fprint(a.stdout, q.words())
			return err
		},
	}
	cmd.Flags().BoolVar(&plain, "text", false, "the text alone, as it is signed")
	return cmd
}

// questionOf queries one question and checks that its text matches its digest. The details of the call are parsed from
// the text on this side, so that other fields of the reply cannot contradict them.
func questionOf(ctx context.Context, c *wire.Client, id string) (openQuestion, error) {
	var l questionList
	if err := c.Look(ctx, wire.Query{Verb: "approvals", Args: map[string]any{"id": id}}, &l); err != nil {
		return openQuestion{}, err
	}
	if len(l.Approvals) != 1 {
		return openQuestion{}, &bailey.Error{Kind: bailey.Internal, Message: "the gateway answered with another number of questions than one"}
	}
	return l.Approvals[0].read(id)
}

// read returns the question with the details that its text contains. Only the state, the answers and the sources of the
// rules come from other fields.
func (o openQuestion) read(id string) (openQuestion, error) {
	text, err := canon.Parse(o.Text)
	if err != nil || canon.Digest(o.Text) != o.Digest || string(o.ID) != id || text.ID != o.ID {
		return openQuestion{}, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the text of question %s is not the one that its digest names", o.ID), Err: err, Hint: "do not answer it; bailey gateway stop"}
	}
	text.Text, text.Digest, text.Subject, text.Alike = o.Text, o.Digest, o.Subject, o.Alike
	for i := range text.Rules {
		if i < len(o.Rules) && o.Rules[i].ID == text.Rules[i].ID {
			text.Rules[i].Source = o.Rules[i].Source
		}
	}
	q := newQuestion(text)
	q.State, q.Waits, q.RunBy, q.Lapsed, q.Ended, q.Answers = o.State, o.Waits, o.RunBy, o.Lapsed, o.Ended, o.Answers
	return q, nil
}

// words returns the text with explanations for the reader. An answer binds only the text.
func (q openQuestion) words() string {
	var b strings.Builder
	for _, line := range splitLines(q.Text) {
		fmt.Fprintf(&b, "  %s\n", terminal.Shown(line))
	}
	fmt.Fprintf(&b, "\nreads     %s\n", terminal.Shown(strings.Join(q.Argv, " ")))
	for i, line := range splitLines(q.Preview) {
		fmt.Fprintf(&b, "%-9s %s\n", map[bool]string{true: "shows"}[i == 0], terminal.Shown(line))
	}
	fmt.Fprintf(&b, "call      %s%s, by %s\n", terminal.Shown(string(q.Call)), terminal.Shown(q.Inputs), terminal.Shown(q.Agent))
	fmt.Fprintf(&b, "impact    %s\n", terminal.Shown(q.Impact))
	if q.Open {
		b.WriteString("unbound   what lies in the files and directories that it names: that may change until it runs\n")
	}
	for _, r := range q.Rules {
		fmt.Fprintf(&b, "asked by  %s: %s\n", strings.TrimSuffix(fmt.Sprintf("%s (%s)", r.ID, terminal.Shown(r.Source)), " ()"), terminal.Shown(r.Reason))
	}
	b.WriteString("wants     " + q.wanted())
	for _, e := range q.Answers {
		if e.Granted {
			fmt.Fprintf(&b, "; %s has granted it (%s)", terminal.Shown(e.Name), e.Level)
		}
	}
	fmt.Fprintf(&b, "\nstate     %s\ndigest    %s\n", q.stands(), q.Digest)
	return b.String()
}

// wanted describes the answers that are required for a grant.
func (q openQuestion) wanted() string {
	words := counts(q.Count, "answer")
	if q.Level != "" {
		words += " that is " + string(q.Level)
	}
	if len(q.Roles) > 0 {
		words += ", each by somebody with " + strings.Join(q.Roles, ", ")
	}
	return words
}

// stands describes the state of the question.
func (q openQuestion) stands() string {
	if q.State == stateOver {
		return "over: " + terminal.Shown(q.Ended)
	}
	return q.waits() + ", until " + q.until().Local().Format(time.RFC3339)
}

// approvals is a query. It returns the open questions, grouped by call, or the question with the given ID, which may be
// over.
func (s *stack) approvals(_ context.Context, q wire.Query, _ bailey.Call) (any, error) {
	id := bailey.ApprovalID(text(q.Args, "id"))
	out := questionList{Approvals: []openQuestion{}}
	for _, o := range s.queue.Open() {
		if id == "" || o.ID == id {
			out.Approvals = append(out.Approvals, seen(o))
		}
	}
	if id == "" {
		together(out.Approvals)
		return out, nil
	}
	if len(out.Approvals) == 0 {
		past, err := s.pastQuestion(id)
		if err != nil {
			return nil, err
		}
		out.Approvals = append(out.Approvals, past)
	}
	return out, nil
}

func seen(o approve.Seen) openQuestion {
	q := newQuestion(o.Question)
	q.Waits = o.Waits > 0
	if q.Answers = o.Answers; !o.Granted.IsZero() {
		q.State, q.RunBy, q.Lapsed = stateGranted, o.RunBy, o.Lapsed
	}
	return q
}

// Limits in bytes per question in a list. A thousand questions must fit in one frame even if every byte is escaped.
const maxListedInputs, maxListedArgv = 256, 512

// brief shortens the question for a list. Text of agents is cut, because a question that a long list hides cannot be
// answered.
func (o *openQuestion) brief() {
	o.Text, o.Preview = "", ""
	o.Inputs = cutAt(o.Inputs, maxListedInputs)
	room := maxListedArgv
	for i, arg := range o.Argv {
		if o.Argv[i] = cutAt(arg, room); len(arg) > room {
			o.Argv = o.Argv[:i+1]
			break
		}
		room -= len(arg)
	}
	o.Argv = o.Argv[:min(len(o.Argv), maxListedArgv/4)]
}

// cutAt returns s, cut to most bytes and an ellipsis if it is longer.
func cutAt(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// together moves each question behind the oldest one about the same call, and shortens all of them with brief. The
// digests stay.
func together(list []openQuestion) {
	first := map[string]int{}
	for i := range list {
		list[i].brief()
		if _, ok := first[list[i].Alike]; !ok {
			first[list[i].Alike] = i
		}
	}
	slices.SortStableFunc(list, func(a, b openQuestion) int { return first[a.Alike] - first[b.Alike] })
}
