package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
	"bailey/internal/approvaltext"
)

// A client that can ask its person ("elicitation") gets the complete question: as a request of the server in the
// revisions 2025-06-18 to 2025-11-25, and as a missing input of the call from 2026-07-28 on. A client could answer such
// a question without its person. Therefore only clients that the settings name are asked, and only if an unsigned
// answer is sufficient.

// newRevision is the first revision without requests from server to client.
const newRevision, firstElicitation = "2026-07-28", "2025-06-18"

// inputKey is the name of the only input request.
const inputKey = "approval"

// elicitationSupport returns the elicitation capabilities of the client of a request. newer is true if the client states its revision
// in each request.
func elicitationSupport(req *sdk.CallToolRequest) (newer bool, can *sdk.ElicitationCapabilities) {
	if caps, newer := clientCapabilities(req.Params.GetMeta()); newer {
		return true, caps.Elicitation
	}
	p := req.Session.InitializeParams()
	if p == nil || p.Capabilities == nil || p.ProtocolVersion < firstElicitation {
		return false, nil
	}
	return false, p.Capabilities.Elicitation
}

// clientCapabilities returns the client capabilities that a request of the newer revisions contains.
func clientCapabilities(meta sdk.Meta) (caps sdk.ClientCapabilities, newer bool) {
	if v, ok := meta[sdk.MetaKeyProtocolVersion].(string); !ok || v < newRevision {
		return caps, false
	}
	if b, err := json.Marshal(meta[sdk.MetaKeyClientCapabilities]); err == nil {
		json.Unmarshal(b, &caps) // unreadable capabilities count as absent
	}
	return caps, true
}

// canShowForms reports whether a client can show forms. A client that names no kind can, because earlier revisions had only
// forms.
func canShowForms(can *sdk.ElicitationCapabilities) bool {
	return can != nil && (can.Form != nil || can.URL == nil)
}

// elicitationRequest returns the request, or nil if the client must not be asked. The name of the property is the id of the
// question, so an answer to another question does not contain it.
func elicitationRequest(q Question) *sdk.ElicitParams {
	message, whole := questionText(q.Question)
	if !q.Local || !whole {
		return nil
	}
	choices, description := []string{verdictNo, verdictYes}, "no: it does not run, and you are not asked again for a while"
	if q.Session {
		choices = append(choices, verdictSession)
		description += "; session: you are not asked about other calls of " + string(q.Call) + " until this session ends"
	}
	schema, err := json.Marshal(map[string]any{
		"type": "object", "required": []string{string(q.ID)},
		"properties": map[string]any{string(q.ID): map[string]any{
			"type": "string", "title": "Allow this call?",
			"description": description,
			"enum":        choices, "default": verdictNo,
		}},
	})
	if err != nil {
		return nil
	}
	return &sdk.ElicitParams{Mode: "form", Message: message, RequestedSchema: json.RawMessage(schema)}
}

// The answers of a person.
const verdictNo, verdictYes, verdictSession = "no", "yes", "session"

// parseVerdict returns the answer of the person, or "" for any other, which leaves the question open.
func parseVerdict(r *sdk.ElicitResult, id bailey.ApprovalID) string {
	if r == nil {
		return ""
	}
	switch r.Action {
	case "decline":
		return verdictNo
	case "accept":
		if v, _ := r.Content[string(id)].(string); slices.Contains([]string{verdictNo, verdictYes, verdictSession}, v) {
			return v
		}
	}
	return ""
}

// askClient lets the client ask its person and passes on the answer. The request is withdrawn when ctx ends, for example
// because the question was settled elsewhere.
func (w *waitingCall) askClient(ctx context.Context, id bailey.ApprovalID) {
	q, err := w.Gate.Question(ctx, w.call, id)
	if err != nil {
		return // settled in the meantime
	}
	p := elicitationRequest(q)
	if p == nil {
		return
	}
	r, err := w.req.Session.Elicit(ctx, p)
	if err != nil {
		if ctx.Err() == nil {
			w.Log.Info("a client did not ask its user", "question", id, "err", err)
		}
		return
	}
	w.submitAnswer(ctx, id, q.Digest, parseVerdict(r, id))
}

// submitAnswer passes on the answer of a client. An invalid answer leaves the question open, and the call continues to wait.
// A grant is accepted only if the client would be asked, whatever the client claims to have shown.
func (w *waitingCall) submitAnswer(ctx context.Context, id bailey.ApprovalID, digest, verdict string) {
	if verdict == "" {
		return
	}
	q, err := w.Gate.Question(ctx, w.call, id)
	if verdict != verdictNo && (err != nil || elicitationRequest(q) == nil || verdict == verdictSession && !q.Session) {
		w.Log.Info("a client's answer was ignored", "question", id, "err", err)
		return
	}
	switch ctx := context.WithoutCancel(ctx); verdict {
	case verdictSession:
		err = w.Gate.AnswerSession(ctx, w.call, id, digest)
	case verdictYes:
		err = w.Gate.Answer(ctx, w.call, id, digest, true, "")
	default:
		err = w.Gate.Answer(ctx, w.call, id, digest, false, "declined in the agent's client")
	}
	if err != nil {
		w.Log.Info("a client's answer was ignored", "question", id, "err", err)
	}
}

// requestState is the value that a client of the newer revisions returns together with the answer: the question, the digest of
// its text, and the call. It is not secret and proves nothing. An answer counts only for a question of the same
// session, and only while its text is unchanged.
type requestState struct {
	id           bailey.ApprovalID
	digest, call string
}

func (t requestState) String() string { return string(t.id) + "." + t.digest + "." + t.call }

// parseState parses a returned state.
func parseState(s string) (requestState, error) {
	f := strings.Split(s, ".")
	if len(f) != 3 || len(f[0]) > 64 || !strings.HasPrefix(f[0], "a-") || !isDigest(f[1]) || !isDigest(f[2]) {
		return requestState{}, invalidParams("the requestState was not issued here")
	}
	return requestState{bailey.ApprovalID(f[0]), f[1], f[2]}, nil
}

func isDigest(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// callDigest returns a digest of a call that does not depend on the order of its arguments.
func callDigest(c bailey.Call) string {
	b, _ := json.Marshal([]any{c.Capability, c.Input}) // decoded from JSON, so it cannot fail; keys are sorted
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// resumeCall processes the answer in a repeated call. A call without a state has no answer.
func (w *waitingCall) resumeCall(ctx context.Context) (resumed bool, err error) {
	p := w.req.Params
	if p.RequestState == "" {
		if len(p.InputResponses) > 0 {
			return false, invalidParams("inputResponses needs a requestState")
		}
		return false, nil
	}
	t, err := parseState(p.RequestState)
	if err != nil {
		return false, err
	}
	if t.call != callDigest(w.call) {
		return false, invalidParams("the requestState belongs to another call")
	}
	r, _ := p.InputResponses[inputKey].(*sdk.ElicitResult)
	w.submitAnswer(ctx, t.id, t.digest, parseVerdict(r, t.id))
	return true, nil
}

// requestInput returns the request for the answer of a person, or nil if the client must not ask.
func (w *waitingCall) requestInput(ctx context.Context, r bailey.Result, call string) *answer {
	q, err := w.Gate.Question(ctx, w.call, r.Approval)
	if err != nil {
		return nil
	}
	p := elicitationRequest(q)
	if p == nil {
		return nil
	}
	a := &answer{Type: "input_required", Inputs: sdk.InputRequestMap{inputKey: p},
		State: requestState{q.ID, q.Digest, call}.String()}
	a.Meta = sdk.Meta{ResultKey: factsOf(r, &q)}
	return a
}

func invalidParams(why string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: why}
}

// maxWords limits a question in the dialog of a client, in bytes. A person would not read a longer one to its end.
const maxWords = 16 << 10

// questionText returns a question for a person at a client. If the text is too long, whole is false and the client must not be
// asked.
func questionText(q bailey.Question) (text string, whole bool) {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s"+format+"\n", append([]any{name}, args...)...)
	}
	brief := approvaltext.NewBrief(q)
	writeBriefHead(line, brief)
	fmt.Fprintf(&b, "The agent %s wants to run %s. Nothing has run yet.\n", quoteWord(q.Principal.Agent),
		quoteWord(string(q.Call)))
	line("impact", "%s", escapeText(q.Impact))
	if len(brief.Places) > 0 {
		line("to", "%s", escapeText(strings.Join(brief.Places, ", ")))
	}
	b.WriteString("\n")
	for _, s := range brief.Sections {
		fmt.Fprintf(&b, "%s:\n", s.Title)
		for _, l := range s.Lines {
			line("", "| %s", escapeText(l))
		}
	}
	for _, r := range q.Rules {
		line("asked by", "%s: %s", quoteWord(string(r.ID)), escapeText(r.Reason))
	}
	for _, f := range q.Files {
		line("file", "%s, %d bytes, as it was when this question was asked", quoteWord(f.Input), f.Size)
	}
	if q.Contents == bailey.NotBound {
		line("not bound", "the contents of the files and directories that it names: they may change until it runs")
	}
	for _, l := range q.Leases {
		line("is lent", "%s as %s, from %s: %s", quoteWord(l.Name), quoteWord(l.Env), quoteWord(l.Adapter),
			escapeText(l.Scope))
	}
	dir := "an empty directory of its own"
	if q.Dir.Text != "" {
		dir = quoteWord(q.Dir.Text)
	}
	line("in", "%s", dir)
	for _, b := range q.Bound {
		line("of", "%s, to %s", quoteWord(b.Path.Text), b.Mode())
	}
	line("runs", "%s", commandLine(q.Argv))
	if len(q.Preview.Argv) > 0 {
		line("shown by", "%s", commandLine(q.Preview.Argv))
	}
	line("approval", "%s, open until %s", q.ID, formatTime(q.Expires))
	line("digest", "%s", q.Digest)
	for _, s := range brief.Rest {
		for _, l := range s {
			line("also", "| %s", escapeText(l))
		}
	}
	return b.String(), b.Len() <= maxWords
}

// writeBriefHead writes the message and the files first, because a dialog may show only a few lines.
func writeBriefHead(line func(name, format string, args ...any), brief approvaltext.Brief) {
	for _, m := range brief.Messages {
		for _, l := range strings.Split(m.Text, "\n") {
			line(m.Name, "| %s", escapeText(l))
		}
	}
	if len(brief.Files) > 0 {
		var files []string
		for _, f := range brief.Files {
			files = append(files, quoteWord(f))
		}
		line("files", "%s", strings.Join(files, ", "))
	}
}

func commandLine(argv []bailey.Shown) string {
	var all []string
	for _, a := range argv {
		all = append(all, quoteWord(a.Text))
	}
	return strings.Join(all, " ")
}

// quoteWord returns one argument: unchanged if it is unambiguous, otherwise quoted in printable ASCII.
func quoteWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-[]") == "" {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, replacement) {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return `"` + b.String() + `"`
}

// escapeText escapes all characters of a text that could begin a line, move the cursor or be invisible.
func escapeText(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, replacement) {
		if r == ' ' || unicode.IsGraphic(r) &&
			!unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector,
				unicode.Mn, unicode.Me) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}
