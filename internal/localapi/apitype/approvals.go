package apitype

import (
	"fmt"
	"strings"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/approve"
	"bailey/internal/notify"
	"bailey/internal/terminal"
	"bailey/internal/tui"
)

// OpenQuestion is the JSON form of a question. The question is open, or granted while its call has not come back, or
// over.
type OpenQuestion struct {
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
	Signed  bool            `json:"signed,omitempty"` // the settings name approvers, so one of them must sign
	Answers []approve.Event `json:"answers"`
}

const stateOpen, StateGranted, StateOver = "open", "granted", "over"

// NewQuestion returns the JSON form of q.
func NewQuestion(q bailey.Question) OpenQuestion {
	o := OpenQuestion{Question: q, State: stateOpen, Agent: q.Principal.Agent, Impact: q.Impact,
		Preview: q.Preview.Output.Text, Rules: q.Rules,
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

// QuestionRequest asks for one question, which may be over, or for all that are open.
type QuestionRequest struct {
	ID bailey.ApprovalID `json:"id,omitempty"` // "": all that are open
}

// QuestionList is the answer to a [QuestionRequest].
type QuestionList struct {
	Approvals []OpenQuestion `json:"approvals"`
}

// WaitText returns the state of a question that is not over, as a list shows it.
func (q OpenQuestion) WaitText() string {
	switch {
	case q.Lapsed != "":
		return "asked again when its call is repeated: " + q.Lapsed
	case q.State == StateGranted:
		return "approved, not used yet"
	case q.Waits:
		return "waits"
	}
	return "parked"
}

// Until returns the deadline of the call if the question is granted, else the time at which the question expires.
func (q OpenQuestion) Until() time.Time {
	if q.State == StateGranted {
		return q.RunBy
	}
	return q.Expires
}

// Read returns the question with the details that its text contains. Only the state, the answers and the sources of the
// rules come from other fields.
func (o OpenQuestion) Read(id string) (OpenQuestion, error) {
	text, err := approvaltext.Parse(o.Text)
	if err != nil || approvaltext.Digest(o.Text) != o.Digest || string(o.ID) != id || text.ID != o.ID {
		return OpenQuestion{}, bailey.Denied.Wrapf(err, "do not answer it; run: bailey gateway stop",
			"the text of question %s does not match its digest", o.ID)
	}
	text.Text, text.Digest, text.Subject, text.Alike = o.Text, o.Digest, o.Subject, o.Alike
	for i := range text.Rules {
		if i < len(o.Rules) && o.Rules[i].ID == text.Rules[i].ID {
			text.Rules[i].Source = o.Rules[i].Source
		}
	}
	q := NewQuestion(text)
	q.State, q.Waits, q.RunBy, q.Lapsed, q.Ended, q.Answers = o.State, o.Waits, o.RunBy, o.Lapsed, o.Ended, o.Answers
	q.Signed = o.Signed
	return q, nil
}

// Summary returns the text with explanations for the reader. An answer binds only the text.
func (q OpenQuestion) Summary() string {
	var b strings.Builder
	for _, line := range terminal.SplitLines(q.Text) {
		fmt.Fprintf(&b, "  %s\n", terminal.Shown(line))
	}
	fmt.Fprintf(&b, "\nreads     %s\n", terminal.Shown(strings.Join(q.Argv, " ")))
	for i, line := range terminal.SplitLines(q.Preview) {
		fmt.Fprintf(&b, "%-9s %s\n", map[bool]string{true: "shows"}[i == 0], terminal.Shown(line))
	}
	fmt.Fprintf(&b, "call      %s%s, by %s\n", terminal.Shown(string(q.Call)), terminal.Shown(q.Inputs),
		terminal.Shown(q.Agent))
	fmt.Fprintf(&b, "impact    %s\n", terminal.Shown(q.Impact))
	b.WriteString(q.termLines())
	fmt.Fprintf(&b, "state     %s\ndigest    %s\n", q.stateText(), q.Digest)
	return b.String()
}

// termLines says what an answer does not bind, why a person is asked, and which answers are required and given.
func (q OpenQuestion) termLines() string {
	var b strings.Builder
	if q.Open {
		b.WriteString("unbound   contents of the files and directories that it names: they may change until it runs\n")
	}
	for _, r := range q.Rules {
		fmt.Fprintf(&b, "asked by  %s: %s\n",
			strings.TrimSuffix(fmt.Sprintf("%s (%s)", r.ID, terminal.Shown(r.Source)), " ()"), terminal.Shown(r.Reason))
	}
	b.WriteString("requires  " + q.requirementText())
	for _, e := range q.Answers {
		if e.Granted {
			fmt.Fprintf(&b, "; %s has approved it (%s)", terminal.Shown(e.Name), e.Level)
		}
	}
	b.WriteString("\n")
	return b.String()
}

// requirementText describes the answers that are required for a grant.
func (q OpenQuestion) requirementText() string {
	words := Counts(q.Count, "answer")
	if q.Level != "" {
		words += " that is " + string(q.Level)
	}
	if q.Signed && q.Level == "" && len(q.Roles) == 0 { // those imply it
		words += ", signed by an approver of settings.yaml"
	}
	if len(q.Roles) > 0 {
		words += ", each with " + strings.Join(q.Roles, ", ")
	}
	return words
}

// stateText describes the state of the question.
func (q OpenQuestion) stateText() string {
	if q.State == StateOver {
		return "over: " + terminal.Shown(q.Ended)
	}
	return q.WaitText() + ", until " + q.Until().Local().Format(time.RFC3339)
}

// Limits in bytes per question in a list. A thousand questions must fit in one frame even if every byte is escaped.
const maxListedInputs, maxListedArgv = 256, 512

// Brief shortens the question for a list. Text of agents is cut, because a question that a long list hides cannot be
// answered.
func (o *OpenQuestion) Brief() {
	o.Text, o.Preview = "", ""
	o.Inputs = terminal.CutAt(o.Inputs, maxListedInputs)
	room := maxListedArgv
	for i, arg := range o.Argv {
		if o.Argv[i] = terminal.CutAt(arg, room); len(arg) > room {
			o.Argv = o.Argv[:i+1]
			break
		}
		room -= len(arg)
	}
	o.Argv = o.Argv[:min(len(o.Argv), maxListedArgv/4)]
}

// ApprovalsServeEvent is the ledger event for the start of the HTTP interface for answers.
const ApprovalsServeEvent = "approvals.serve"

// AnswerListener is the HTTP interface for answers that an operator starts.
type AnswerListener struct {
	Listen string `json:"listen"` // address and port
	TLS    bool   `json:"tls"`
}

// QuestionApproval grants a question.
type QuestionApproval struct {
	ID        bailey.ApprovalID `json:"id"`
	Digest    string            `json:"digest"`              // of the text that was shown
	Signature string            `json:"signature,omitempty"` // of the text; "" if unsigned
}

// QuestionDenial denies a question.
type QuestionDenial struct {
	ID     bailey.ApprovalID `json:"id"`
	Reason string            `json:"reason,omitempty"` // for the agent
}

// MaxDenial limits the reason for a denial in bytes. The agent and the ledger get the reason.
const MaxDenial = 400

// GrantDraftRequest asks for the text of a standing grant.
type GrantDraftRequest struct {
	ID      bailey.ApprovalID `json:"id"` // of the question that the grant answers
	Seconds int64             `json:"seconds"`
	Session bool              `json:"session,omitempty"` // only for the session of the question
}

// GrantDraft has the text of a standing grant, which can be signed.
type GrantDraft struct {
	Text string `json:"text"`
}

// GrantRequest gives the standing grant of a draft.
type GrantRequest struct {
	ID        bailey.GrantID `json:"id"`
	Digest    string         `json:"digest"`              // of the draft
	Signature string         `json:"signature,omitempty"` // of the draft; "" if unsigned
}

// StandingGrant is the JSON form of a grant for a period of time.
type StandingGrant struct {
	ID         bailey.GrantID      `json:"id"`
	Capability bailey.CapabilityID `json:"capability"`
	Agent      string              `json:"agent"`
	Person     string              `json:"person,omitempty"`
	Session    bailey.SessionID    `json:"session,omitempty"` // the only one in which it is valid
	Covers     string              `json:"covers,omitempty"`  // of the capability; "" for any arguments
	Rules      []bailey.Rule       `json:"rules"`
	Given      time.Time           `json:"given"`
	Until      time.Time           `json:"until"`
	By         string              `json:"by"`
	Level      bailey.Level        `json:"level"`
	Question   bailey.ApprovalID   `json:"question"`
	Text       string              `json:"text"`
}

// GrantList is the answer with the standing grants.
type GrantList struct {
	Grants []StandingGrant `json:"grants"`
}

// Present is the current state of the gateway, for the screen, which repeats the query. It contains only state that can
// change at any time and is cheap to determine.
type Present struct {
	QuestionList
	Calls  []LiveCall `json:"calls"`
	Wraps  WrapsKnown `json:"wraps,omitzero"`
	Killed *Killed    `json:"killed,omitempty"`
}

// Listed returns the question as a list shows it.
func (o OpenQuestion) Listed() tui.Question {
	q := tui.Question{Question: o.Question, Agent: o.Agent, Given: o.Inputs, Waits: o.Waits, RunBy: o.RunBy,
		Signed: o.Signed}
	q.Rules = o.Rules
	for _, e := range o.Answers {
		q.Answers = append(q.Answers, tui.Answered{Name: e.Name, Level: e.Level})
	}
	return q
}

// Bound returns the question as its text describes it, because an answer binds only the text and not the fields beside
// it.
func (o OpenQuestion) Bound() (tui.Question, error) {
	q, err := o.Read(string(o.ID))
	if err != nil {
		return tui.Question{}, err
	}
	return q.Listed(), nil
}

// Kinds of ledger entries for a test of the notifications and for a new key. Their commands have the same names.
const NotifyTestEvent, NotifyKeyEvent = "notify.test", "notify.key"

// NotifyTested is the result of a test, as JSON.
type NotifyTested struct {
	OK   bool            `json:"ok"`
	Ways []notify.Result `json:"ways"`
}

// NotifyKeyRequest asks for the key that signs the messages to a webhook. It is created if there is none.
type NotifyKeyRequest struct {
	New bool `json:"new,omitempty"` // create one that replaces the present key
}

// NotifyKeyed describes the key that signs the messages to a webhook. The key itself is only in the file.
type NotifyKeyed struct {
	OK          bool   `json:"ok"`
	Made        bool   `json:"made"`
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint"`
}

// NotifyStatus is the state of the notification channels, and the number of rules that can ask.
type NotifyStatus struct {
	Ways  []notify.State `json:"ways"`
	Asks  int            `json:"askingRules"`     // of the policy itself, for callable capabilities
	Fault string         `json:"fault,omitempty"` // why the webhook cannot be called
}

// Summary returns the counts and the last problem of each channel, on one line. The caller must escape it for a
// terminal.
func (n *NotifyStatus) Summary() string {
	var list []string
	for _, w := range n.Ways {
		text := strings.TrimSpace(w.Way+" "+w.Where) + fmt.Sprintf(": %d sent", w.Sent)
		for _, c := range []struct {
			n    uint64
			what string
		}{{w.Failed, "failed"}, {w.Dropped, "dropped"}, {uint64(w.Waiting), "waiting"}} {
			if c.n > 0 {
				text += fmt.Sprintf(", %d %s", c.n, c.what)
			}
		}
		for _, why := range []string{w.Absent, w.Last} {
			if why != "" {
				text += " (" + why + ")"
				break
			}
		}
		list = append(list, text)
	}
	if n.Fault != "" {
		list = append(list, n.Fault)
	}
	if len(list) == 0 {
		list = append(list, "no notification channel is configured")
	}
	return strings.Join(list, "; ")
}
