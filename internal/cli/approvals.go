package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/approve"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

func (a *App) approvalsVerb() *cobra.Command {
	list := a.approvalsList()
	cmd := GroupVerb("approvals", "List and show questions that wait for a person",
		"List and show the questions that rules ask. Answer them with bailey approve and bailey deny.",
		list, a.approvalsShow(), a.approvalsServe())
	cmd.Args, cmd.RunE = cobra.NoArgs, list.RunE
	return cmd
}

func (a *App) approvalsList() *cobra.Command {
	return QueryVerb(a, &cobra.Command{
		Use: "list", Short: "List the open questions, oldest first",
		Long: "List questions that wait for an answer, and approvals that wait for their call to be repeated. Questions\nof several sessions about the same call are grouped.",
	}, apitype.ListQuestions, nil, func(w io.Writer, l apitype.QuestionList) {
		if len(l.Approvals) == 0 {
			fmt.Fprintln(w, "no questions are open")
		}
		last := ""
		PrintTable(w, "", l.Approvals, func(q apitype.OpenQuestion) []any {
			same := q.Alike == last && q.ID != l.Approvals[0].ID
			last = q.Alike
			end := "until " + q.Until().Local().Format(time.TimeOnly)
			if same {
				return []any{q.ID, "the same", "", "", q.WaitText(), end}
			}
			return []any{q.ID, terminal.TableCell(string(q.Call)), "by " + terminal.TableCell(q.Agent),
				terminal.TableCell(strings.TrimSpace(q.Inputs)), q.WaitText(), end}
		})
	})
}

func (a *App) approvalsShow() *cobra.Command {
	var plain, details bool
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a question",
		Long: `Show a question: effect, message, files, destination and difference, and what is needed to approve
it, or its outcome. With --details, show everything that an answer is bound to, with digests, arguments and
environment; docs/approvals.md explains that text.

With --text, print only the text, byte for byte, which is what gets signed:

  bailey approvals show ID --text | ssh-keygen -Y sign -n approval@bailey -f KEY > FILE`,
		Args: OneArg("a question: see bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.Client()
			if err != nil {
				return err
			}
			q, err := questionOf(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			text := q.FirstScreen(briefLines())
			switch {
			case plain:
				text = q.Text
			case details:
				text = q.Summary()
			}
			return a.PrintLine(q, "%s", text)
		},
	}
	cmd.Flags().BoolVar(&plain, "text", false, "print only the text that gets signed")
	cmd.Flags().BoolVar(&details, "details", false, "show everything that an answer is bound to")
	cmd.MarkFlagsMutuallyExclusive("text", "details")
	return cmd
}

// briefLines returns how many lines of a difference fit on the terminal together with the rest of a question.
func briefLines() int {
	const others, fewest, otherwise = 16, 8, 40
	if h := terminal.Height(os.Stdout); h > 0 {
		return max(fewest, h-others)
	}
	return otherwise
}

// questionOf queries one question and checks that its text matches its digest. The details of the call are parsed from
// the text on this side, so that other fields of the reply cannot contradict them.
func questionOf(ctx context.Context, c *localapi.Client, id string) (apitype.OpenQuestion, error) {
	l, err := apitype.ListQuestions.Ask(ctx, c, apitype.QuestionRequest{ID: bailey.ApprovalID(id)})
	if err != nil {
		return apitype.OpenQuestion{}, err
	}
	if len(l.Approvals) != 1 {
		return apitype.OpenQuestion{},
			bailey.Internal.New("the gateway did not answer with exactly one question",
				"")
	}
	return l.Approvals[0].Read(id)
}

// answerResult is the JSON result of an answer.
type answerResult struct {
	OK bool `json:"ok"`
	approve.Tally
	ID     bailey.ApprovalID `json:"id"`
	waited bool              // a caller waits for the answer
}

// answerFlags holds the flags that say how a person answers.
type answerFlags struct {
	key, signature string
	long           string // how long the grant is valid; "" for one call
	details        bool   // show everything that the answer is bound to
	session        bool   // valid until the session of the call ends
	always         bool   // write a rule
}

func (a *App) approveVerb() *cobra.Command {
	var how answerFlags
	cmd := &cobra.Command{
		Use: "approve ID…", Short: "Approve a question",
		Long: `Show a question, ask for confirmation, and approve it. Answer with d to see everything that the answer is
bound to, as with --details, and to be asked again. The waiting call then runs if the current
policy allows it. If its caller has disconnected, the same call runs once when it is repeated; until then
bailey deny takes the approval back.

If settings.yaml names approvers, one of them must sign the answer: with --key, ssh-keygen signs it here; with
--signature, give a signature of the output of bailey approvals show ID --text that was made elsewhere.

With --for, the approval becomes a grant: for that time, the rules that ask allow the same capability of the
same agent with any arguments. The text of the grant is signed instead of that of the question. With --session,
the grant is for the session of the call: it ends with the session, when the policy changes, and when everything
is stopped. bailey grants lists and revokes grants.

With --always, a rule is written and shown, as bailey allow does, and the question is approved.

The hook of an agent (docs/hooked.md) names questions that can be answered with --session or --always. Such a
grant covers the same command, the same tool, or the same host only.`,
		Example: "  bailey approve a-… --key ~/.ssh/id_ed25519_sk\n  bailey approve a-… --for 1h",
		Args:    someArgs("a question: see bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case how.key != "" && how.signature != "":
				return bailey.Invalid.New("--key and --signature cannot be combined", "see bailey approve --help")
			case how.session && how.always || how.long != "" && (how.session || how.always):
				return bailey.Invalid.New("--for, --session and --always exclude each other", "choose one")
			case how.always && how.signature != "":
				return bailey.Invalid.New("a rule has no text that a signature made elsewhere covers",
					"approve the question without --always")
			case how.signature != "" && (len(args) > 1 || how.long != "" || how.session):
				return bailey.Invalid.New("a signature made elsewhere covers the text of one question",
					"name one question without --for and --session, or sign with --key")
			}
			for _, id := range args {
				if err := a.approveQuestion(cmd.Context(), id, how); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&how.key, "key", "", "sign with this SSH key, a `file`")
	f.StringVar(&how.signature, "signature", "", "a detached SSH signature of the text, a `file`")
	f.BoolVar(&how.details, "details", false, "show everything that the answer is bound to")
	f.BoolVar(&how.session, "session", false, "approve such calls until the session of the call ends")
	f.BoolVar(&how.always, "always", false, "write a rule that allows such calls")
	f.StringVar(&how.long, "for", "", "approve such calls for this `duration`, for example 1h30m; at most a day")
	return a.OperatorVerb(cmd)
}

func (a *App) approveQuestion(ctx context.Context, id string, how answerFlags) error {
	op, c, err := a.OperatorClient("approve")
	if err != nil {
		return err
	}
	if asked, err := apitype.ShowAsked.Ask(ctx, c, apitype.ID{ID: id}); err == nil {
		return a.approveAsked(ctx, c, op, asked, how)
	}
	q, err := questionOf(ctx, c, id)
	switch {
	case err != nil:
		return err
	case q.State == apitype.StateOver:
		return bailey.NotFound.Errorf("run bailey approvals list to show the open questions",
			"no question %q is open: %s", id, terminal.CutLine(q.Ended))
	}
	text := q.FirstScreen(briefLines())
	if how.details {
		text = q.Summary()
	}
	a.Explain(text)
	switch {
	case how.long != "" || how.session:
		return a.approveFor(ctx, c, op, q, how)
	case how.always:
		if err := a.allowAlways(ctx, q); err != nil {
			return err
		}
	}
	if err := a.confirmWithDetails(ctx, "Grant this?", q.Summary()); err != nil {
		return err
	}
	approval := apitype.QuestionApproval{ID: q.ID, Digest: q.Digest}
	if approval.Signature, err = how.signatureOf(ctx, q.Text); err != nil {
		return err
	}
	tally, err := apitype.ApproveQuestion.Do(ctx, c, op, approval)
	if err != nil {
		return err
	}
	return a.printAnswer(answerResult{ID: q.ID, Tally: tally, waited: q.Waits})
}

// confirmWithDetails asks the person at standard input and output, unless --yes is given. The answer d shows the details and
// asks again.
func (a *App) confirmWithDetails(ctx context.Context, question, details string) error {
	if a.Yes {
		return nil
	}
	for {
		fmt.Fprintln(a.Dialog(), "(d shows all details)")
		word, err := askWord(ctx, os.Stdin, a.Stdin, a.Dialog(), question)
		switch {
		case err != nil:
			return err
		case word == "d" || word == "details":
			a.Explain(details)
		case isYes(word):
			return nil
		default:
			return errNotConfirmed("nothing was changed")
		}
	}
}

// signatureOf returns the signature over text, or "" if unsigned.
func (h answerFlags) signatureOf(ctx context.Context, text string) (string, error) {
	switch {
	case h.key != "":
		return signAnswer(ctx, h.key, text)
	case h.signature != "":
		return readSignature(h.signature, approvaltext.Namespace)
	}
	return "", nil
}

// printAnswer prints the result of an answer.
func (a *App) printAnswer(out answerResult) error {
	out.OK = true
	return a.PrintLine(out, "%s\n", out.text())
}

// text describes the result of an answer.
func (out answerResult) text() string {
	switch {
	case out.Granted && out.waited:
		return "approved: the call goes on if the current policy allows it"
	case out.Granted:
		return "approved: no caller waits for it, so the same call runs once when it is repeated"
	case out.Settled:
		return "denied"
	}
	return fmt.Sprintf("recorded: %d of %s, by %s", len(out.Names), apitype.Counts(out.Count, "answer"),
		terminal.Shown(strings.Join(out.Names, ", ")))
}

// signAnswer runs ssh-keygen to sign text. It asks for the passphrase or the touch on the operator's terminal.
func signAnswer(ctx context.Context, key, text string) (string, error) {
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-n", approvaltext.Namespace, "-f", key)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", bailey.Unavailable.Wrapf(err, "read its output; to use a signature made elsewhere, give --signature",
			"ssh-keygen could not sign with %s", terminal.CutLine(key))
	}
	return out.String(), nil
}

func (a *App) denyVerb() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "deny ID…", Short: "Deny a question",
		Long: `Deny a question: its call ends, and the same call is denied for ten minutes. An approval that was
not used yet is taken back. Anyone may deny. The agent is told the reason, and the ledger records it.`,
		Args: someArgs("a question: see bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(reason) > apitype.MaxDenial || !utf8.ValidString(reason) {
				return bailey.Invalid.Errorf("shorten or omit it",
					"a reason must be at most %d bytes of UTF-8", apitype.MaxDenial)
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			for _, id := range args {
				denial := apitype.QuestionDenial{ID: bailey.ApprovalID(id), Reason: reason}
				tally, err := apitype.DenyQuestion.Ask(cmd.Context(), c, denial)
				if err != nil {
					return err
				}
				if err := a.printAnswer(answerResult{ID: denial.ID, Tally: tally}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "the reason, shown to the agent")
	return cmd
}

func (a *App) grantsVerb() *cobra.Command {
	list := a.grantsList()
	cmd := GroupVerb("grants", "Manage grants that last for some time",
		"List and revoke active grants. Create one with bailey approve ID --for.", list, a.grantsRevoke())
	cmd.Args, cmd.RunE = cobra.NoArgs, list.RunE
	return cmd
}

func (a *App) grantsList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the grants, oldest first"}
	return QueryVerb(a, cmd, apitype.ListGrants, nil, func(w io.Writer, l apitype.GrantList) {
		if len(l.Grants) == 0 {
			fmt.Fprintln(w, "no grants are active")
		}
		PrintTable(w, "", l.Grants, func(g apitype.StandingGrant) []any {
			what := strings.TrimSpace(string(g.Capability) + " " + g.Covers)
			return []any{g.ID, terminal.TableCell(what), "of " + terminal.TableCell(g.Agent),
				terminal.TableCell(askingRules(g.Rules)), fmt.Sprintf("by %s (%s)", terminal.TableCell(g.By), g.Level),
				endOfGrant(g)}
		})
	})
}

// endOfGrant says when a grant ends.
func endOfGrant(g apitype.StandingGrant) string {
	if g.Session != "" {
		return "until its session ends"
	}
	return "until " + g.Until.Local().Format(time.DateTime)
}

func askingRules(rules []bailey.Rule) string {
	var ids []string
	for _, r := range rules {
		ids = append(ids, string(r.ID))
	}
	return strings.Join(ids, ", ")
}

func (a *App) grantsRevoke() *cobra.Command {
	return a.OperatorVerb(&cobra.Command{
		Use: "revoke ID…", Short: "Revoke a grant",
		Long: "End a grant. The next call that its rules cover needs an approval again, as does a call that the grant allowed\nbut that has not run yet.",
		Args: someArgs("a grant: see bailey grants list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			op, c, err := a.OperatorClient("grants")
			if err != nil {
				return err
			}
			for _, id := range args {
				if _, err := apitype.RevokeGrant.Do(cmd.Context(), c, op, apitype.ID{ID: id}); err != nil {
					return err
				}
				if !a.JSON {
					fmt.Fprintf(a.Stdout, "revoked %s\n", terminal.CutLine(id))
				}
			}
			return a.PrintLine(map[string]any{"ok": true, "revoked": args}, "")
		},
	})
}

// approveFor gives a standing grant. The question that was shown is its first use.
func (a *App) approveFor(ctx context.Context, c *localapi.Client, op localapi.Operator, q apitype.OpenQuestion,
	how answerFlags) error {
	long, ok := parseDuration(how.long)
	if how.session {
		long, ok = approve.MaxStanding, true
	}
	if !ok {
		return bailey.Invalid.Errorf("write --for 1h30m", "--for %s is not a duration", terminal.CutLine(how.long))
	}
	wish := apitype.GrantDraftRequest{ID: q.ID, Seconds: int64(long / time.Second), Session: how.session}
	d, err := apitype.DraftGrant.Ask(ctx, c, wish)
	if err != nil {
		return err
	}
	g, err := approvaltext.ParseGrant(d.Text)
	if err != nil || g.Capability != q.Call || g.Principal.Agent != q.Agent || time.Until(g.Until) > long+time.Minute ||
		how.session && g.Session == "" {
		return bailey.Denied.Wrap(err, "the gateway drafted another grant than the one requested",
			"do not approve it; run: bailey gateway stop")
	}
	end := g.Until.Local().Format(time.DateTime)
	if how.session {
		end = "its session ends, the policy changes or everything is stopped, and at most until " + end
	}
	a.Explain(fmt.Sprintf(
		"\nThe grant would allow every %s of %s that %s asks about, with any arguments, until %s.\n",
		terminal.Shown(string(g.Capability)), terminal.Shown(g.Principal.Agent), askingRules(g.Rules), end))
	if err := a.confirmWithDetails(ctx, "Give this grant?", q.Summary()); err != nil {
		return err
	}
	signature, err := how.signatureOf(ctx, d.Text)
	if err != nil {
		return err
	}
	out, err := apitype.GiveGrant.Do(ctx, c, op,
		apitype.GrantRequest{ID: g.ID, Digest: approvaltext.Digest(d.Text), Signature: signature})
	if err != nil {
		return err
	}
	return a.PrintLine(out, "granted until %s; to end it earlier: bailey grants revoke %s\n",
		out.Until.Local().Format(time.DateTime), out.ID)
}
