package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approve"
	"bailey/internal/canon"
	"bailey/internal/terminal"
	"bailey/internal/wire"
)

// A grant requires operator rights. A denial requires none. No interface for agents offers either command.
const approveVerb, denyVerb = "approve", "deny"

// maxDenial limits the reason for a denial in bytes. The agent and the ledger get the reason.
const maxDenial = 400

// answered is the JSON result of an answer.
type answered struct {
	OK bool `json:"ok"`
	approve.Tally
	ID     bailey.ApprovalID `json:"id"`
	waited bool              // a caller waits for the answer
}

// answering holds the flags that say how a person answers.
type answering struct {
	key, signature string
	long           string // how long the grant is valid; "" for one call
	yes            bool
}

func (a *app) approveVerb() *cobra.Command {
	var how answering
	cmd := &cobra.Command{
		Use: "approve ID…", Short: "Grant what a question asks",
		Long: `Show a question whole, ask, and grant it. The call that waits for it goes on, if the policy of then still lets it; one whose
caller went away runs when the same call comes again, once. bailey deny takes it back until then.

Once settings.yaml names approvers the answer has to be signed by one of them: with --key by ssh-keygen here and now,
with --signature elsewhere, over what bailey approvals show ID --text prints.

With --for the grant stands: so long the rules that ask let the same capability of the same agent through, whatever its
arguments. What is signed then is the grant's own text. bailey grants lists and revokes what stands.

An operator verb: it wants a terminal, or BAILEY_OPERATOR=1 and --yes.`,
		Example: "  bailey approve a-… --key ~/.ssh/id_ed25519_sk\n  bailey approve a-… --for 1h",
		Args:    someArgs("a question: bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case how.key != "" && how.signature != "":
				return &bailey.Error{Kind: bailey.Invalid, Message: "--key and --signature exclude each other", Hint: "bailey approve --help"}
			case how.signature != "" && (len(args) > 1 || how.long != ""):
				return &bailey.Error{Kind: bailey.Invalid, Message: "a signature made elsewhere is of one question's text", Hint: "name one question, without --for; or sign with --key"}
			}
			for _, id := range args {
				if err := a.approve(cmd.Context(), id, how); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&how.key, "key", "", "sign with this SSH key, a `file`")
	f.StringVar(&how.signature, "signature", "", "a detached SSH signature of the text, a `file`")
	f.StringVar(&how.long, "for", "", "let the grant stand for this `long`, as in 1h30m; at most a day")
	f.BoolVar(&how.yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) approve(ctx context.Context, id string, how answering) error {
	op, err := a.operator("approve", how.yes)
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	q, err := questionOf(ctx, c, id)
	switch {
	case err != nil:
		return err
	case q.State == stateOver:
		return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no question %q is open: %s", id, visible(q.Ended)), Hint: "bailey approvals list shows those that are"}
	}
	if !how.yes || !a.json {
		fmt.Fprint(a.dialog(), q.words())
	}
	if how.long != "" {
		return a.approveFor(ctx, c, op, q, how)
	}
	if !how.yes {
		if err := a.confirm(ctx, "Grant this?"); err != nil {
			return err
		}
	}
	query := map[string]any{"id": id, "digest": q.Digest}
	if query["signature"], err = how.signed(ctx, q.Text); err != nil {
		return err
	}
	out := answered{ID: q.ID}
	if err := act(ctx, c, op, approveVerb, query, &out.Tally); err != nil {
		return err
	}
	out.waited = q.Waits
	return a.answered(out)
}

// signed returns the signature over text, or "" if unsigned.
func (h answering) signed(ctx context.Context, text string) (string, error) {
	switch {
	case h.key != "":
		return signAnswer(ctx, h.key, text)
	case h.signature != "":
		return readSignature(h.signature, canon.Namespace)
	}
	return "", nil
}

// answered prints the result of an answer.
func (a *app) answered(out answered) error {
	if out.OK = true; a.json {
		return a.print(out)
	}
	var err error
	switch {
	case out.Granted && out.waited:
		_, err = fmt.Fprintln(a.stdout, "granted: the policy of now decides, and the call goes on")
	case out.Granted:
		_, err = fmt.Fprintln(a.stdout, "granted: nobody waits for it now, and the same call runs once when it comes again")
	case out.Settled:
		_, err = fmt.Fprintln(a.stdout, "denied")
	default:
		_, err = fmt.Fprintf(a.stdout, "recorded: %d of %s, by %s\n", len(out.Names), counts(out.Count, "answer"), terminal.Shown(strings.Join(out.Names, ", ")))
	}
	return err
}

// signAnswer runs ssh-keygen to sign text. It asks for the passphrase or the touch on the operator's terminal.
func signAnswer(ctx context.Context, key, text string) (string, error) {
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-n", canon.Namespace, "-f", key)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("ssh-keygen did not sign with %s", visible(key)), Err: err,
			Hint: "see what it says; a signature made elsewhere is taken with --signature"}
	}
	return out.String(), nil
}

func (a *app) denyVerb() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "deny ID…", Short: "Refuse what a question asks",
		Long: `Refuse a question: its call ends, and the same call is answered so for ten minutes. What was granted and has not run yet is
taken back. Everybody may. The reason is told to the agent, and stands in the ledger.`,
		Args: someArgs("a question: bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(reason) > maxDenial || !utf8.ValidString(reason) {
				return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a reason is at most %d bytes of UTF-8", maxDenial), Hint: "say less, or nothing"}
			}
			c, err := a.client()
			if err != nil {
				return err
			}
			for _, id := range args {
				out := answered{ID: bailey.ApprovalID(id)}
				if err := c.Look(cmd.Context(), wire.Query{Verb: denyVerb, Args: map[string]any{"id": id, "reason": reason}}, &out.Tally); err != nil {
					return err
				}
				if err := a.answered(out); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, in words for the agent")
	return cmd
}

// approve grants a question. It requires operator rights.
func (s *stack) approve(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	return s.queue.Answer(ctx, approve.Given{Question: bailey.ApprovalID(text(q.Args, "id")), Digest: text(q.Args, "digest"), Grant: true,
		Signature: text(q.Args, "signature"), Person: from.Principal.Person, Operator: string(q.Operator)})
}

// deny is open to every user. The denial must be recorded even if the caller disconnects first.
func (s *stack) deny(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	reason := s.redaction.Text(from.Session.ID, text(q.Args, "reason"))
	if len(reason) > 2*maxDenial {
		reason = ""
	}
	return s.queue.Answer(context.WithoutCancel(ctx), approve.Given{Question: bailey.ApprovalID(text(q.Args, "id")), Reason: reason, Person: from.Principal.Person})
}
