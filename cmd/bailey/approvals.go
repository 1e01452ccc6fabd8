package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/gateway"
)

// openQuestion is a question that waits for a person, as JSON.
type openQuestion struct {
	bailey.Question
	Waits   bool            `json:"waits"` // a caller stays for the answer
	Agent   string          `json:"agent"`
	Inputs  string          `json:"inputs"` // names and values in JSON, for a line
	Argv    []string        `json:"argv"`   // as it may be read; the text has it escaped
	Rules   []bailey.Rule   `json:"rules"`
	Open    bool            `json:"contentsNotBound"`
	Roles   []string        `json:"roles"` // that each who grants it holds
	Count   int             `json:"count"` // of how many
	Answers []approve.Event `json:"answers"`
}

type questionList struct {
	Approvals []openQuestion `json:"approvals"`
}

func (a *app) approvalsVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use: "approvals", Short: "Questions that wait for a person",
		Long: "List and show the questions that rules ask. A question is answered by bailey approve and bailey deny.",
	}
	cmd.AddCommand(a.approvalsList(), a.approvalsShow())
	return cmd
}

func (a *app) approvalsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "The questions that are open, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return look(cmd.Context(), a, gateway.Query{Verb: "approvals"}, func(l questionList) {
				if len(l.Approvals) == 0 {
					fmt.Fprintln(a.stdout, "no question is open")
				}
				w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
				for _, q := range l.Approvals {
					fmt.Fprintf(w, "%s\t%s\tby %s\t%s\t%s\tuntil %s\n", q.ID, cell(string(q.Call)), cell(q.Agent), cell(strings.TrimSpace(q.Inputs)), q.waits(), q.Expires.Local().Format(time.TimeOnly))
				}
				w.Flush()
			})
		},
	}
}

func (q openQuestion) waits() string {
	if q.Waits {
		return "waits"
	}
	return "nobody waits"
}

func (a *app) approvalsShow() *cobra.Command {
	var plain bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "All that a question asks",
		Long: `Show an open question whole: the text that an answer binds, and what it takes to grant it. docs/approvals.md says how to
read the text.

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

// questionOf asks for one open question, and sees that its text is the one that its digest names.
func questionOf(ctx context.Context, c *gateway.Client, id string) (openQuestion, error) {
	var l questionList
	if err := c.Look(ctx, gateway.Query{Verb: "approvals", Args: map[string]any{"id": id}}, &l); err != nil {
		return openQuestion{}, err
	}
	if len(l.Approvals) != 1 {
		return openQuestion{}, &bailey.Error{Kind: bailey.Internal, Message: "the gateway answered with another number of questions than one"}
	}
	q := l.Approvals[0]
	if sum := sha256.Sum256([]byte(q.Text)); hex.EncodeToString(sum[:]) != q.Digest || string(q.ID) != id {
		return q, &bailey.Error{Kind: bailey.Denied, Message: fmt.Sprintf("the text of question %s is not the one that its digest names", q.ID), Hint: "do not answer it; bailey gateway stop"}
	}
	return q, nil
}

// words are the text with what helps to read it: nothing of these is bound but the text.
func (q openQuestion) words() string {
	var b strings.Builder
	for _, line := range splitLines(q.Text) {
		fmt.Fprintf(&b, "  %s\n", shown(line))
	}
	fmt.Fprintf(&b, "\nreads     %s\n", shown(strings.Join(q.Argv, " ")))
	fmt.Fprintf(&b, "call      %s%s, by %s\n", shown(string(q.Call)), shown(q.Inputs), shown(q.Agent))
	if q.Open {
		b.WriteString("unbound   what lies in the files and directories that it names: that may change until it runs\n")
	}
	for _, r := range q.Rules {
		fmt.Fprintf(&b, "asked by  %s (%s): %s\n", r.ID, shown(r.Source), shown(r.Reason))
	}
	fmt.Fprintf(&b, "wants     %s", counts(q.Count, "answer"))
	if len(q.Roles) > 0 {
		fmt.Fprintf(&b, ", each by somebody with %s", strings.Join(q.Roles, ", "))
	}
	for _, e := range q.Answers {
		fmt.Fprintf(&b, "; %s has granted it (%s)", shown(e.Name), e.Level)
	}
	fmt.Fprintf(&b, "\ncaller    %s\ndigest    %s\nexpires   %s\n", q.waits(), q.Digest, q.Expires.Local().Format(time.RFC3339))
	return b.String()
}

// approvals is a look: the questions that are open, or the one that is named.
func (s *stack) approvals(_ context.Context, q gateway.Query, _ bailey.Call) (any, error) {
	id := bailey.ApprovalID(text(q.Args, "id"))
	out := questionList{Approvals: []openQuestion{}}
	for _, o := range s.queue.Open() {
		if id != "" && o.ID != id {
			continue
		}
		shown := openQuestion{Question: o, Waits: o.Patience > 0, Agent: o.Principal.Agent, Rules: o.Rules, Open: o.Contents == bailey.NotBound, Answers: s.queue.Answers(o.ID)}
		for _, in := range o.Inputs {
			shown.Inputs += fmt.Sprintf(" %s=%s", in.Name, in.Text)
		}
		for _, arg := range o.Argv {
			shown.Argv = append(shown.Argv, arg.Text)
		}
		w := bailey.Combine(o.Rules)
		shown.Roles, shown.Count = w.Roles, w.Count
		if id == "" {
			shown.Text = "" // a list stays short; its questions have their digests
		}
		out.Approvals = append(out.Approvals, shown)
	}
	if id != "" && !slices.ContainsFunc(out.Approvals, func(o openQuestion) bool { return o.ID == id }) {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no question %q is open", id), Hint: "bailey approvals list shows those that are; bailey receipts list shows how calls ended"}
	}
	return out, nil
}
