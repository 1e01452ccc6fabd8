package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/receipts"
	"bailey/internal/terminal"
	"bailey/internal/tui"
)

func (a *App) tuiVerb() *cobra.Command {
	var key string
	var plain bool
	cmd := &cobra.Command{
		Use: "tui", Short: "Show questions, calls, receipts and grants on one screen", Args: cobra.NoArgs,
		Long: `Show open questions, running calls, receipts, active grants, and the kill switch, in a
terminal, operated by keys: ? lists them. A new question rings the bell.

Anyone may look. To approve, revoke or resume needs an operator, as on the command line: a terminal, or
BAILEY_OPERATOR=1 and --yes. With --key, ssh-keygen signs the answers and uses the terminal for a passphrase
or a touch.

--plain works line by line, for screen readers and simple terminals: nothing is redrawn, and commands
are words. The default answer of every dialog is No.`,
		Example: "  bailey tui --key ~/.ssh/id_ed25519_sk\n  bailey tui --plain",
		RunE: func(cmd *cobra.Command, _ []string) error {
			plain = plain || os.Getenv("TERM") == "dumb"
			if err := a.checkScreen(plain); err != nil {
				return err
			}
			c, err := a.Client()
			if err != nil {
				return err
			}
			desk := &tuiBackend{app: a, home: c.Home}
			// the first query starts a gateway
			if _, err := apitype.ShowPresent.Ask(cmd.Context(), c, localapi.None{}); err != nil {
				return err
			}
			conf := tui.Config{Look: desk, Hand: desk, Color: os.Getenv("NO_COLOR") == "", Yes: a.Yes}
			if key != "" {
				conf.Key = terminal.CutLine(key)
				conf.Sign = func(ctx context.Context, text string) (string, error) { return signAnswer(ctx, key, text) }
			}
			if plain {
				return tui.Plain(cmd.Context(), conf, a.Stdin, a.Stdout)
			}
			// On the screen Ctrl-C is a key. The SIGINT is meant for ssh-keygen while it has the terminal.
			ctx, stop := terminal.UntilSignal(context.WithoutCancel(cmd.Context()), syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return tui.Run(ctx, conf, os.Stdin, os.Stdout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "sign answers with this SSH key, a `file`")
	f.BoolVar(&plain, "plain", false, "work line by line")
	return a.YesFlag(cmd, "with --plain: do not ask for confirmation")
}

// checkScreen returns an error if the screen cannot be shown here.
func (a *App) checkScreen(plain bool) error {
	switch {
	case a.JSON:
		return bailey.Invalid.New("tui has no JSON output",
			"use bailey approvals list --json, bailey status --json or bailey receipts list --json")
	case plain:
		return nil
	case a.Yes:
		return bailey.Invalid.New("--yes needs --plain: the screen always asks", "leave it out")
	case !terminal.Is(os.Stdin) || !terminal.Is(os.Stdout):
		return bailey.Invalid.New("tui needs a terminal: "+noTerminal(), "use bailey tui --plain to work line by line")
	}
	return nil
}

// act sends an operator command, if the user has the right.
func act[Request, Answer any](ctx context.Context, d *tuiBackend, e localapi.Endpoint[Request, Answer],
	r Request) (out Answer, err error) {
	op, err := d.app.Operator(e.Name)
	if err != nil {
		return out, err
	}
	return e.Do(ctx, d.newClient(), op, r)
}

// Grant sends the digest of the text that was shown.
func (d *tuiBackend) Grant(ctx context.Context, q tui.Question, signature string) (string, error) {
	tally, err := act(ctx, d, apitype.ApproveQuestion,
		apitype.QuestionApproval{ID: q.ID, Digest: q.Digest, Signature: signature})
	if err != nil {
		return "", err
	}
	return answerResult{Tally: tally, waited: q.Waits}.text(), nil
}

func (d *tuiBackend) Deny(ctx context.Context, id bailey.ApprovalID, reason string) (string, error) {
	tally, err := apitype.DenyQuestion.Ask(ctx, d.newClient(), apitype.QuestionDenial{ID: id, Reason: reason})
	if err != nil {
		return "", err
	}
	return answerResult{Tally: tally}.text(), nil
}

func (d *tuiBackend) Revoke(ctx context.Context, id bailey.GrantID) (string, error) {
	_, err := act(ctx, d, apitype.RevokeGrant, apitype.ID{ID: string(id)})
	return "revoked", err
}

func (d *tuiBackend) Kill(ctx context.Context, reason string) (string, error) {
	k, err := apitype.KillCalls.Ask(ctx, d.newClient(), apitype.KillRequest{Reason: reason})
	return "stopped: " + apitype.Counts(k.Calls, "call") + " ended", err
}

func (d *tuiBackend) Resume(ctx context.Context) (string, error) {
	_, err := act(ctx, d, apitype.ResumeCalls, localapi.None{})
	return "calls are allowed again", err
}

// Wake starts a gateway if none is running. Its messages are discarded, because they would damage the screen.
func (d *tuiBackend) Wake(ctx context.Context) error {
	_, err := apitype.ShowPresent.Ask(ctx, &localapi.Client{Home: d.home, Start: spawnGateway}, localapi.None{})
	return err
}

// tuiBackend connects the terminal UI with the gateway. Its queries do not start a gateway.
type tuiBackend struct {
	app  *App
	home localapi.Home
}

func (d *tuiBackend) newClient() *localapi.Client { return &localapi.Client{Home: d.home} }

func (d *tuiBackend) Now(ctx context.Context) (tui.Now, error) {
	at, err := apitype.ShowPresent.Ask(ctx, d.newClient(), localapi.None{})
	if err != nil {
		return tui.Now{}, err
	}
	var now tui.Now
	for _, q := range at.Approvals {
		now.Questions = append(now.Questions, q.Listed())
	}
	for _, c := range at.Calls {
		now.Calls = append(now.Calls,
			tui.Call{Receipt: c.Receipt, Capability: c.Capability, Agent: c.Agent, Door: c.Door, Session: c.Session,
				Since: c.Since})
	}
	if at.Killed != nil {
		now.Killed = apitype.KilledText(*at.Killed)
	}
	for _, r := range at.Wraps.Runs {
		if r.Ended.IsZero() {
			now.Walls = append(now.Walls, tui.Wall{Agent: r.Agent, Project: r.Project, Since: r.Started})
		}
	}
	for _, r := range at.Wraps.Refused {
		now.Refused = append(now.Refused,
			tui.Refusal{Agent: at.Wraps.Agent(r), Reason: r.Reason, Hint: r.Hint, At: r.At})
	}
	return now, nil
}

func (d *tuiBackend) Question(ctx context.Context, id bailey.ApprovalID) (tui.Question, error) {
	o, err := questionOf(ctx, d.newClient(), string(id))
	if err != nil {
		return tui.Question{}, err
	}
	return o.Bound()
}

func (d *tuiBackend) Receipts(ctx context.Context, words string, before uint64) (tui.Receipts, error) {
	f, err := filterWords(words, time.Now())
	if err != nil {
		return tui.Receipts{}, err
	}
	f.Limit, f.Before = 50, before
	l, err := apitype.ListReceipts.Ask(ctx, d.newClient(), f)
	if err != nil {
		return tui.Receipts{}, err
	}
	page := tui.Receipts{Next: l.Next}
	for _, r := range l.Receipts {
		page.Rows = append(page.Rows,
			tui.Receipt{ID: r.ID, Capability: r.Capability, Agent: r.Agent, Status: r.Status(), Why: r.Why(),
				Started: r.StartedAt})
	}
	return page, nil
}

// filterWords parses a search: a status, a receipt id, a capability, or name=value as for the flags of receipts list.
func filterWords(words string, now time.Time) (receipts.Filter, error) {
	var w receiptFilter
	for _, word := range strings.Fields(words) {
		name, value, named := strings.Cut(word, "=")
		switch {
		case !named && apitype.Possible(bailey.ReceiptID(word)):
			w.ID = bailey.ReceiptID(word)
		case !named && slices.Contains(statusNames(), word):
			w.Status = bailey.Status(word)
		case !named, name == "capability":
			w.Capability = bailey.CapabilityID(strings.TrimPrefix(word, "capability="))
		case name == "agent":
			w.Agent = value
		case name == "session":
			w.Session = bailey.SessionID(value)
		case name == "status":
			w.Status = bailey.Status(value)
		case name == "since":
			w.since = value
		case name == "until":
			w.until = value
		default:
			return receipts.Filter{},
				bailey.Invalid.Errorf("use a capability, a status, a receipt's ID, agent=, session=, since=, until=",
					"unknown search term %q", terminal.CutLine(name))
		}
	}
	return w.buildFilter(now)
}

func (d *tuiBackend) Receipt(ctx context.Context, id bailey.ReceiptID) ([]string, error) {
	r, err := apitype.ShowReceipt.Ask(ctx, d.newClient(), apitype.ID{ID: string(id)})
	if err != nil {
		return nil, err
	}
	return terminal.SplitLines(terminal.IndentValue(r)), nil
}

// Verify returns the output of bailey audit verify --verbose.
func (d *tuiBackend) Verify(ctx context.Context) (tui.Verdict, error) {
	var said bytes.Buffer
	err := d.app.Local.Verify(ctx, &App{Stdout: &said, Stderr: &said})
	var code Exit
	if err != nil && !errors.As(err, &code) {
		return tui.Verdict{}, err
	}
	return tui.Verdict{OK: err == nil, Lines: terminal.SplitLines(said.String())}, nil
}

func (d *tuiBackend) Grants(ctx context.Context) ([]tui.Grant, error) {
	l, err := apitype.ListGrants.Ask(ctx, d.newClient(), localapi.None{})
	if err != nil {
		return nil, err
	}
	var out []tui.Grant
	for _, g := range l.Grants {
		one := tui.Grant{ID: g.ID, Capability: g.Capability, Agent: g.Agent, Person: g.Person, Until: g.Until, By: g.By,
			Level: g.Level}
		for _, r := range g.Rules {
			one.Rules = append(one.Rules, string(r.ID))
		}
		out = append(out, one)
	}
	return out, nil
}

// Before returns the question that an earlier call of the same capability and agent asked within a day, or nil.
// Receipts name it, and the ledger contains it.
func (d *tuiBackend) Before(ctx context.Context, q tui.Question) (*tui.Question, error) {
	f := receipts.Filter{Capability: q.Call, Agent: q.Agent, Since: q.AskedAt.Add(-24 * time.Hour), Limit: 20}
	page, err := apitype.ListRecords.Ask(ctx, d.newClient(), f)
	if err != nil {
		return nil, err
	}
	for _, r := range page.Records {
		if r.Outcome == nil || r.Outcome.Approval == "" || r.Outcome.Approval == q.ID ||
			!r.Intent.StartedAt.Before(q.AskedAt) {
			continue
		}
		last, err := d.Question(ctx, r.Outcome.Approval)
		if err == nil && last.AskedAt.Before(q.AskedAt) {
			return &last, nil
		}
	}
	return nil, nil
}
