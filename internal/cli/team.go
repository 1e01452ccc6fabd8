package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/localapi/apitype"
	"bailey/internal/safefile"
	"bailey/internal/terminal"
)

// teamVerb is the group of commands that talk to the control plane of a team instead of a gateway of this machine.
func (a *App) teamVerb() *cobra.Command {
	var s teamServer
	cmd := GroupVerb("team", "Answer the questions of a team's gateways, and use its machines",
		"Use the control plane of a team with an API token. No gateway is needed on this machine.", a.teamApprovals(&s),
		a.teamSandboxes(&s), a.teamSources(&s), a.teamOperations(&s), a.teamSpend(&s), a.teamBudgets(&s))
	cmd.PersistentFlags().StringVar(&s.url, "server", os.Getenv("BAILEY_TEAM_URL"),
		"`URL` of the control plane (default $BAILEY_TEAM_URL)")
	cmd.PersistentFlags().StringVar(&s.tokenFile, "token-file", os.Getenv("BAILEY_TEAM_TOKEN_FILE"),
		"`file` with an API token (default $BAILEY_TEAM_TOKEN_FILE)")
	return cmd
}

func (a *App) teamApprovals(s *teamServer) *cobra.Command {
	list := &cobra.Command{Use: "list", Short: "List the open questions", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listTeamQuestions(cmd.Context(), s) }}
	var plain bool
	show := &cobra.Command{Use: "show ID", Short: "Show a question",
		Long: "Show a question. The text that an answer binds is compared with its digest, and what is shown is read from it.",
		Args: OneArg("a question: see bailey team approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, _, err := s.questionOf(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			text := q.Summary()
			if plain {
				text = q.Text
			}
			return a.PrintLine(q, "%s", text)
		}}
	show.Flags().BoolVar(&plain, "text", false, "print only the text that gets signed")
	var key, reason string
	approve := a.YesFlag(&cobra.Command{Use: "approve ID --key FILE", Short: "Approve a question with an SSH key",
		Long: `Approve a question: sign its text with an SSH key. The gateway that asks verifies the signature against the
approvers of its own settings.yaml, so that the control plane cannot approve anything.`,
		Args: OneArg("a question: see bailey team approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.approveTeamQuestion(cmd.Context(), s, args[0], key)
		}}, "do not ask for a confirmation")
	approve.Flags().StringVar(&key, "key", "", "sign with the key in this `file`, or with its public half in an ssh agent")
	approve.MarkFlagRequired("key")
	deny := &cobra.Command{Use: "deny ID", Short: "Deny a question, as an admin of the organisation",
		Args: OneArg("a question: see bailey team approvals list"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.answerTeamQuestion(cmd.Context(), s, args[0], teamAnswer{Reason: reason})
		}}
	deny.Flags().StringVar(&reason, "reason", "", "what the agent is told")
	return GroupVerb("approvals", "List, show and answer questions", "", list, show, approve, deny)
}

// teamServer is a control plane.
type teamServer struct{ url, tokenFile string }

// teamQuestion is a question as the control plane lists it.
type teamQuestion struct {
	ID         string    `json:"id"`
	HostName   string    `json:"hostName"`
	Agent      string    `json:"agent"`
	For        string    `json:"for,omitempty"`
	Capability string    `json:"capability"`
	Impact     string    `json:"impact"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"`
	Roles      []string  `json:"roles,omitempty"`
	Count      int       `json:"count"`
	Asked      time.Time `json:"asked"`
	Expires    time.Time `json:"expires"`
	Digest     string    `json:"digest"`
	Text       string    `json:"text,omitempty"`
}

type teamQuestions struct {
	Items []teamQuestion `json:"items"`
}

func (a *App) listTeamQuestions(ctx context.Context, s *teamServer) error {
	var l teamQuestions
	if err := s.sendRequest(ctx, "GET", "approvals?state=open", nil, &l); err != nil {
		return err
	}
	return PrintAnswer(a, l, func(w io.Writer, l teamQuestions) {
		if len(l.Items) == 0 {
			fmt.Fprintln(w, "no questions are open")
		}
		PrintTable(w, "", l.Items, func(q teamQuestion) []any {
			return []any{terminal.TableCell(q.ID), terminal.TableCell(q.Capability), "by " + terminal.TableCell(q.Agent),
				"on " + terminal.TableCell(q.HostName), terminal.TableCell(strings.Join(q.Roles, ",")),
				"until " + q.Expires.Local().Format(time.TimeOnly)}
		})
	})
}

// questionOf returns a question, read from its text: other members of the answer are those of a server, which must not be
// able to show another call than the one that is signed.
func (s *teamServer) questionOf(ctx context.Context, id string) (q apitype.OpenQuestion, state string, err error) {
	var got teamQuestion
	if err := s.sendRequest(ctx, "GET", "approvals/"+url.PathEscape(id), nil, &got); err != nil {
		return q, "", err
	}
	parsed, err := approvaltext.Parse(got.Text)
	if err != nil || approvaltext.Digest(got.Text) != got.Digest || string(parsed.ID) != id {
		return q, "", bailey.Denied.Wrap(err, "the control plane sent a text that is not that of the question",
			"do not sign it, and tell the people who run the control plane")
	}
	parsed.Text, parsed.Digest = got.Text, got.Digest
	return apitype.NewQuestion(parsed), got.State, nil
}

func (a *App) approveTeamQuestion(ctx context.Context, s *teamServer, id, key string) error {
	q, state, err := s.questionOf(ctx, id)
	if err != nil {
		return err
	}
	if state != "open" {
		return bailey.Conflict.Errorf("run bailey team approvals list", "question %q is %s", id, terminal.CutLine(state))
	}
	a.Explain(q.FirstScreen(briefLines()))
	if err := a.confirmWithDetails(ctx, "Grant this?", q.Summary()); err != nil {
		return err
	}
	signature, err := signAnswer(ctx, key, q.Text)
	if err != nil {
		return err
	}
	return a.answerTeamQuestion(ctx, s, id, teamAnswer{Grant: true, Digest: q.Digest, Signature: signature})
}

type teamAnswer struct {
	Grant     bool   `json:"grant"`
	Digest    string `json:"digest,omitempty"`
	Signature string `json:"signature,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

func (a *App) answerTeamQuestion(ctx context.Context, s *teamServer, id string, answer teamAnswer) error {
	out := answerResult{ID: bailey.ApprovalID(id), waited: true}
	if err := s.sendRequest(ctx, "POST", "approvals/"+url.PathEscape(id)+"/answer", answer, &out.Tally); err != nil {
		return err
	}
	return a.printAnswer(out)
}

// maxTeamAnswer limits what a control plane may answer, in bytes.
const maxTeamAnswer = 16 << 20

// sendRequest sends a request about the organisation of the token, with headers as pairs of a name and a value.
func (s *teamServer) sendRequest(ctx context.Context, method, path string, body, into any, headers ...string) error {
	base, token, err := s.openToken()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var mine struct{ Items []struct{ ID string } }
	if err := sendJSON(ctx, token, "GET", base+"/api/v1/organisations", nil, &mine); err != nil {
		return err
	}
	if len(mine.Items) != 1 {
		return bailey.Denied.New("the token does not belong to one organisation", "use an API token of the organisation")
	}
	return sendJSON(ctx, token, method, base+"/api/v1/organisations/"+url.PathEscape(mine.Items[0].ID)+"/"+path, body, into,
		headers...)
}

// openToken returns the URL and the token. The token must not cross a network in clear, nor be readable for other users.
func (s *teamServer) openToken() (base, token string, err error) {
	u, err := url.Parse(s.url)
	if s.url == "" || err != nil || u.Host == "" || u.User != nil {
		return "", "", bailey.Invalid.New("the URL of the control plane is missing or malformed",
			"give --server https://NAME, or set BAILEY_TEAM_URL")
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())) {
		return "", "", bailey.Denied.New("the token would cross the network in clear", "use the https:// URL of the control plane")
	}
	if s.tokenFile == "" {
		return "", "", bailey.Invalid.New("the API token is missing",
			"give --token-file FILE, or set BAILEY_TEAM_TOKEN_FILE")
	}
	info, err := os.Stat(s.tokenFile)
	if err == nil && safefile.Wide(info) {
		return "", "", bailey.Denied.Errorf("chmod 600 the file", "other users may read %s", terminal.Shown(s.tokenFile))
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(s.tokenFile)
	}
	if err != nil {
		return "", "", bailey.NotFound.Wrap(err, "the API token cannot be read", "make one on the pages of the control plane")
	}
	return u.Scheme + "://" + u.Host, strings.TrimSpace(string(text)), nil
}

// sendJSON sends a request to a control plane. A redirection is not followed: it would take the token elsewhere.
func sendJSON(ctx context.Context, token, method, address string, body, into any, headers ...string) error {
	var text []byte
	var err error
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(text))
	if err != nil {
		return bailey.Invalid.Wrap(err, "the request cannot be made", "check --server and --token-file")
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return bailey.Unavailable.Wrap(err, "the control plane cannot be reached", "check --server")
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxTeamAnswer))
	if err != nil {
		return bailey.Unavailable.Wrap(err, "the answer of the control plane broke off", "try again")
	}
	if resp.StatusCode/100 != 2 {
		var p struct{ Title, Detail, Hint string }
		json.Unmarshal(got, &p) // an answer of another program has no such members
		kind := bailey.Kind(cmp.Or(p.Title, string(bailey.Unavailable)))
		return kind.New(cmp.Or(terminal.CutLine(p.Detail), "the control plane answered "+resp.Status), terminal.CutLine(p.Hint))
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(got, into); err != nil {
		return bailey.Unavailable.Wrap(err, "the answer of the control plane cannot be read", "check --server")
	}
	return nil
}
