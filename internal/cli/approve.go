package cli

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
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/terminal"
)

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

func (a *App) approveVerb() *cobra.Command {
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

func (a *App) approve(ctx context.Context, id string, how answering) error {
	op, err := a.Operator("approve", how.yes)
	if err != nil {
		return err
	}
	c, err := a.Client()
	if err != nil {
		return err
	}
	q, err := questionOf(ctx, c, id)
	switch {
	case err != nil:
		return err
	case q.State == apitype.StateOver:
		return &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("no question %q is open: %s", id, terminal.CutLine(q.Ended)), Hint: "bailey approvals list shows those that are"}
	}
	if !how.yes || !a.JSON {
		fmt.Fprint(a.Dialog(), q.Summary())
	}
	if how.long != "" {
		return a.approveFor(ctx, c, op, q, how)
	}
	if !how.yes {
		if err := a.Confirm(ctx, "Grant this?"); err != nil {
			return err
		}
	}
	query := map[string]any{"id": id, "digest": q.Digest}
	if query["signature"], err = how.signed(ctx, q.Text); err != nil {
		return err
	}
	out := answered{ID: q.ID}
	if err := Command(ctx, c, op, apitype.ApproveVerb, query, &out.Tally); err != nil {
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
func (a *App) answered(out answered) error {
	if out.OK = true; a.JSON {
		return a.Print(out)
	}
	var err error
	switch {
	case out.Granted && out.waited:
		_, err = fmt.Fprintln(a.Stdout, "granted: the policy of now decides, and the call goes on")
	case out.Granted:
		_, err = fmt.Fprintln(a.Stdout, "granted: nobody waits for it now, and the same call runs once when it comes again")
	case out.Settled:
		_, err = fmt.Fprintln(a.Stdout, "denied")
	default:
		_, err = fmt.Fprintf(a.Stdout, "recorded: %d of %s, by %s\n", len(out.Names), apitype.Counts(out.Count, "answer"), terminal.Shown(strings.Join(out.Names, ", ")))
	}
	return err
}

// signAnswer runs ssh-keygen to sign text. It asks for the passphrase or the touch on the operator's terminal.
func signAnswer(ctx context.Context, key, text string) (string, error) {
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-Y", "sign", "-n", canon.Namespace, "-f", key)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return "", &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("ssh-keygen did not sign with %s", terminal.CutLine(key)), Err: err,
			Hint: "see what it says; a signature made elsewhere is taken with --signature"}
	}
	return out.String(), nil
}

func (a *App) denyVerb() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "deny ID…", Short: "Refuse what a question asks",
		Long: `Refuse a question: its call ends, and the same call is answered so for ten minutes. What was granted and has not run yet is
taken back. Everybody may. The reason is told to the agent, and stands in the ledger.`,
		Args: someArgs("a question: bailey approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(reason) > apitype.MaxDenial || !utf8.ValidString(reason) {
				return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("a reason is at most %d bytes of UTF-8", apitype.MaxDenial), Hint: "say less, or nothing"}
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			for _, id := range args {
				out := answered{ID: bailey.ApprovalID(id)}
				if err := c.Look(cmd.Context(), localapi.Query{Verb: apitype.DenyVerb, Args: map[string]any{"id": id, "reason": reason}}, &out.Tally); err != nil {
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
