package mcp

import (
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// ResultKey is the member of an answer's _meta with the facts about the call, for programs.
const ResultKey = "bailey/result"

// DryRunKey is the member of a tools/call's _meta that requests a dry run if it is true: the call is checked and
// decided and leaves a receipt, but no tool runs.
const DryRunKey = "bailey/dryRun"

// answer is the result of a tools/call on the wire. The SDK type does not let other packages set resultType.
type answer struct {
	sdk.ResultBase
	Content    []sdk.Content `json:"content,omitempty"`           // empty if the answer asks for input
	Structured any           `json:"structuredContent,omitempty"` // the promised output, or the facts of a refusal
	IsError    bool          `json:"isError,omitempty"`
	Type       string        `json:"resultType,omitempty"` // from 2026-07-28 on

	Inputs sdk.InputRequestMap `json:"inputRequests,omitempty"`
	State  string              `json:"requestState,omitempty"`
}

// facts contains the properties of a call other than its output.
type facts struct {
	OK        bool             `json:"ok"`
	Receipt   bailey.ReceiptID `json:"receiptId,omitempty"`
	Status    bailey.Status    `json:"status"`
	Executed  bool             `json:"executed"`
	ExitCode  *int             `json:"exitCode,omitempty"`
	Truncated bool             `json:"truncated,omitempty"`
	Decision  string           `json:"decision,omitempty"` // absent if there was no decision
	DryRun    bool             `json:"dryRun,omitempty"`
	// only the rules that decided, without their source text
	Rules            []rule            `json:"rules,omitempty"`
	Reason           string            `json:"reason,omitempty"`
	Hint             string            `json:"hint,omitempty"`
	ApprovalRequired bool              `json:"approvalRequired,omitempty"`
	Approval         bailey.ApprovalID `json:"approvalId,omitempty"`
	Expires          string            `json:"approvalExpires,omitempty"` // RFC 3339
	Wants            *requiredAnswer   `json:"approvalWants,omitempty"`
	CallAgain        bool              `json:"callAgain,omitempty"` // the same call resumes it
	NotDurable       bool              `json:"notDurable,omitempty"`
	Refused          []string          `json:"refused,omitempty"` // refused network connections, one line each
}

// requiredAnswer describes the required answer.
type requiredAnswer struct {
	Count  int          `json:"count"`
	Roles  []string     `json:"roles,omitempty"`
	Level  bailey.Level `json:"level,omitempty"`
	Signed bool         `json:"signed"`
}

// rule is a rule that decided.
type rule struct {
	ID     bailey.RuleID `json:"id"`
	Reason string        `json:"reason,omitempty"`
}

// renderResult converts a result to an answer for an agent.
func renderResult(r bailey.Result, q *Question) *answer {
	f := factsOf(r, q)
	a := &answer{IsError: !f.OK}
	a.Meta = sdk.Meta{ResultKey: f}
	switch {
	case f.OK && f.DryRun:
		a.Content = []sdk.Content{textContent("it would be allowed: " + r.Decision.Reason + "\nreceipt: " +
			string(f.Receipt))}
	case f.OK:
		a.Content = outputBlocks(r)
		if len(r.Structured) > 0 && r.Structured[0] == '{' { // the protocol allows only objects
			a.Structured = r.Structured
		}
	case toolFailed(r):
		a.Content = []sdk.Content{textContent(failureText(r, f))}
	default:
		a.Content = []sdk.Content{textContent(refusalText(f, r.Err))}
		if !r.Promised { // clients validate it against the output schema of the tool, even for an error
			a.Structured = f
		}
	}
	return a
}

// toolFailed reports whether the tool ran and failed. The agent gets the output of the tool only in this case and after
// success.
func toolFailed(r bailey.Result) bool {
	return r.Status == bailey.Failed && r.Executed && !r.NotDurable &&
		(r.Err == nil || bailey.KindOf(r.Err) == bailey.ToolFailed)
}

func factsOf(r bailey.Result, q *Question) *facts {
	f := &facts{
		OK: r.Status == bailey.OK && r.Err == nil && !r.NotDurable, Receipt: r.Receipt, Status: r.Status,
		Executed: r.Executed, NotDurable: r.NotDurable, DryRun: r.DryRun,
	}
	for _, d := range r.Decision.Rules {
		f.Rules = append(f.Rules, rule{d.ID, d.Reason})
	}
	if f.OK && f.DryRun {
		f.Decision = bailey.Allow.String()
		return f
	}
	if f.OK || toolFailed(r) {
		f.Refused = r.Refused // contains text from the tool, so it is treated like output
		f.ExitCode, f.Truncated, f.Decision = &r.ExitCode, r.Truncated, bailey.Allow.String()
	}
	if f.OK {
		return f
	}
	f.Reason, f.Hint = reasonText(r), bailey.HintOf(r.Err)
	if f.Hint == "" {
		f.Hint = r.Decision.Hint
	}
	switch r.Status {
	case bailey.Refused:
		f.Decision = bailey.Deny.String()
	case bailey.Pending:
		f.Decision, f.ApprovalRequired, f.Approval = bailey.Ask.String(), true, r.Approval
		f.addQuestion(q)
	}
	return f
}

// addQuestion adds the requirements of an open question.
func (f *facts) addQuestion(q *Question) {
	if q == nil {
		return
	}
	w := bailey.Combine(q.Rules)
	f.Expires, f.CallAgain = formatTime(q.Expires), true
	f.Wants = &requiredAnswer{Count: w.Count, Roles: w.Roles, Level: w.Level, Signed: !q.Local}
}

// approversText describes the people that can answer a question, and the command for it.
func (f *facts) approversText() string {
	key, people := "", "a person"
	if f.Wants.Signed {
		key, people = " --key FILE", "an approver, who signs"
	}
	if f.Wants.Level == bailey.SignedTouch {
		people += " with a key that requires a touch"
	}
	if f.Wants.Count > 1 {
		people = fmt.Sprintf("%d approvers, who each sign", f.Wants.Count)
	}
	if len(f.Wants.Roles) > 0 {
		people += ", with the role " + strings.Join(f.Wants.Roles, " and ")
	}
	return fmt.Sprintf("%s: bailey approve %s%s", people, f.Approval, key)
}

// reasonText returns the message for a person. The error chain is for operators and may contain facts that an agent must
// not see.
func reasonText(r bailey.Result) string {
	if r.NotDurable {
		return "executed: " + yesOrNo(r.Executed) + ", receipt: not durable"
	}
	if e, ok := errors.AsType[*bailey.Error](r.Err); ok && e.Message != "" {
		return e.Message
	}
	switch {
	case r.Decision.Reason != "":
		return r.Decision.Reason
	case toolFailed(r):
		return fmt.Sprintf("the tool exited with code %d", r.ExitCode)
	case r.Err == nil && r.Status == "":
		return "the call ended without a status"
	case r.Err == nil:
		return "the call ended as " + string(r.Status)
	}
	return string(bailey.KindOf(r.Err)) + " error"
}

// refusalText describes the failure, its reason and the next step.
func refusalText(f *facts, err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", refusalHeadline(f, err), f.Reason)
	if !f.NotDurable {
		fmt.Fprintf(&b, "executed: %s\n", yesOrNo(f.Executed))
	}
	if f.Hint != "" {
		fmt.Fprintf(&b, "what to do: %s\n", f.Hint)
	}
	if len(f.Rules) > 0 {
		var ids []string
		for _, d := range f.Rules {
			ids = append(ids, string(d.ID))
		}
		fmt.Fprintf(&b, "decided by: %s\n", strings.Join(ids, ", "))
	}
	if f.Approval != "" {
		fmt.Fprintf(&b, "approval: %s, which only a person can grant\n", f.Approval)
	}
	if f.CallAgain {
		fmt.Fprintf(&b, "open until: %s\nwho answers: %s\n", f.Expires, f.approversText())
		b.WriteString("then: call again with the same arguments in this session; it continues waiting, and once approved, it runs once\n")
	}
	if f.Receipt != "" {
		fmt.Fprintf(&b, "receipt: %s\n", f.Receipt)
	}
	return strings.ToValidUTF8(b.String(), replacement)
}

func refusalHeadline(f *facts, err error) string {
	switch {
	case f.Status == bailey.Pending && f.DryRun:
		return "it would wait for an approval"
	case f.Status == bailey.Pending:
		return "waiting for approval"
	case f.Status == bailey.Refused && f.DryRun:
		return "it would be refused"
	case f.Status == bailey.Refused:
		return "refused"
	case f.Status == bailey.Killed, f.Status == bailey.Interrupted:
		return "stopped"
	case f.NotDurable, f.Executed:
		return "failed"
	case errors.Is(err, bailey.Invalid):
		return "wrong arguments"
	}
	return "not run"
}

// failureText returns one text with the exit status and the output of the tool.
func failureText(r bailey.Result, f *facts) string {
	var b strings.Builder
	fmt.Fprintf(&b, "failed: %s\nexit code: %d\n", f.Reason, r.ExitCode)
	if f.Hint != "" {
		fmt.Fprintf(&b, "what to do: %s\n", f.Hint)
	}
	fmt.Fprintf(&b, "receipt: %s\n", f.Receipt)
	for _, block := range outputBlocks(r) {
		b.WriteString("\n" + block.(*sdk.TextContent).Text)
	}
	return strings.ToValidUTF8(b.String(), replacement)
}

// outputBlocks returns the output of the tool. No block is empty, because some model interfaces refuse an empty text.
func outputBlocks(r bailey.Result) (blocks []sdk.Content) {
	if len(r.Stdout) > 0 {
		blocks = append(blocks, textContent(string(r.Stdout)))
	}
	if len(r.Stderr) > 0 {
		blocks = append(blocks, textContent("stderr:\n"+string(r.Stderr)))
	}
	if len(blocks) == 0 {
		blocks = append(blocks, textContent("(no output)"))
	}
	if len(r.Refused) > 0 {
		blocks = append(blocks, textContent("connections refused:\n"+strings.Join(r.Refused, "\n")))
	}
	if r.Truncated {
		cut := fmt.Sprintf("(truncated: each stream is kept up to %d bytes)", bailey.OutputCap)
		if r.Narrow != "" {
			cut = fmt.Sprintf("(truncated: each stream is kept up to %d bytes; %s)", bailey.OutputCap, r.Narrow)
		}
		blocks = append(blocks, textContent(cut))
	}
	return blocks
}

// replacement replaces bytes that are not UTF-8, because JSON cannot contain them.
const replacement = "\uFFFD"

func textContent(s string) *sdk.TextContent {
	return &sdk.TextContent{Text: strings.ToValidUTF8(s, replacement)}
}

func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
