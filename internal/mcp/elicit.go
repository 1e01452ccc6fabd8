package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// A client that says it can ask its person ("elicitation") is given the question, whole: in a request of ours by the
// revisions 2025-06-18 to 2025-11-25, as an input that the call still needs from 2026-07-28 on. The client could have given
// such an answer by itself: only one that settings name is asked, and only if an unsigned answer is enough.

// newRevision is the first without requests from server to client.
const newRevision, firstElicitation = "2026-07-28", "2025-06-18"

// inputKey names our one input request.
const inputKey = "approval"

// era says how the client of a request can be asked, if it can: newer is one that says with each request what it speaks.
func era(req *sdk.CallToolRequest) (newer bool, can *sdk.ElicitationCapabilities) {
	if caps, newer := capabilities(req.Params.GetMeta()); newer {
		return true, caps.Elicitation
	}
	p := req.Session.InitializeParams()
	if p == nil || p.Capabilities == nil || p.ProtocolVersion < firstElicitation {
		return false, nil
	}
	return false, p.Capabilities.Elicitation
}

// capabilities are those that a request of the newer revisions names.
func capabilities(meta sdk.Meta) (caps sdk.ClientCapabilities, newer bool) {
	if v, ok := meta[sdk.MetaKeyProtocolVersion].(string); !ok || v < newRevision {
		return caps, false
	}
	if b, err := json.Marshal(meta[sdk.MetaKeyClientCapabilities]); err == nil {
		json.Unmarshal(b, &caps) // what cannot be read is not there
	}
	return caps, true
}

// form reports whether a client shows forms. One that names no kind shows them, as before there were kinds.
func form(can *sdk.ElicitationCapabilities) bool {
	return can != nil && (can.Form != nil || can.URL == nil)
}

// elicitation is the request, or nil where the client is not to be asked. The property is the question's id: an answer
// that was meant for another one has not that, whichever request it comes for.
func elicitation(q Question) *sdk.ElicitParams {
	message, whole := words(q.Question)
	if !q.Local || !whole {
		return nil
	}
	schema, err := json.Marshal(map[string]any{
		"type": "object", "required": []string{string(q.ID)},
		"properties": map[string]any{string(q.ID): map[string]any{
			"type": "string", "title": "Let it run?", "description": "no: it does not run, and is not asked again for a while",
			"enum": []string{"no", "yes"}, "default": "no",
		}},
	})
	if err != nil {
		return nil
	}
	return &sdk.ElicitParams{Mode: "form", Message: message, RequestedSchema: json.RawMessage(schema)}
}

// verdict reads what a person said. Whatever is neither yes nor no leaves the question open.
func verdict(r *sdk.ElicitResult, id bailey.ApprovalID) (grant, said bool) {
	if r == nil {
		return false, false
	}
	switch r.Action {
	case "decline":
		return false, true
	case "accept":
		v, _ := r.Content[string(id)].(string)
		return v == "yes", v == "yes" || v == "no"
	}
	return false, false
}

// ask has the client ask its person, and gives the answer. The request is withdrawn when ctx ends: the question was
// settled elsewhere, or the call waits no longer.
func (w *wait) ask(ctx context.Context, id bailey.ApprovalID) {
	q, err := w.Gate.Question(ctx, w.call, id)
	if err != nil {
		return // settled meanwhile
	}
	p := elicitation(q)
	if p == nil {
		return
	}
	r, err := w.req.Session.Elicit(ctx, p)
	if err != nil {
		if ctx.Err() == nil {
			w.Log.Info("a client did not ask its person", "question", id, "err", err)
		}
		return
	}
	if grant, said := verdict(r, id); said {
		w.answer(ctx, id, q.Digest, grant)
	}
}

// answer gives a client's answer. One that does not count leaves the question as it is: the call goes on waiting. Whatever
// the client says it was shown, nothing is granted that it would not be asked.
func (w *wait) answer(ctx context.Context, id bailey.ApprovalID, digest string, grant bool) {
	if q, err := w.Gate.Question(ctx, w.call, id); grant && (err != nil || elicitation(q) == nil) {
		w.Log.Info("a client's answer does not count", "question", id, "err", err)
		return
	}
	reason := ""
	if !grant {
		reason = "declined in the agent's client"
	}
	if err := w.Gate.Answer(context.WithoutCancel(ctx), w.call, id, digest, grant, reason); err != nil {
		w.Log.Info("a client's answer does not count", "question", id, "err", err)
	}
}

// state is what a client of the newer revisions brings back with its person's answer: which question was shown, by its
// digest, and for which call. It is no secret and proves nothing: an answer counts for questions of the own session
// alone, and only while they read as they were shown.
type state struct {
	id           bailey.ApprovalID
	digest, call string
}

func (t state) String() string { return string(t.id) + "." + t.digest + "." + t.call }

// parseState reads one that was sent back.
func parseState(s string) (state, error) {
	f := strings.Split(s, ".")
	if len(f) != 3 || len(f[0]) > 64 || !strings.HasPrefix(f[0], "a-") || !isDigest(f[1]) || !isDigest(f[2]) {
		return state{}, invalidParams("the requestState is not one of ours")
	}
	return state{bailey.ApprovalID(f[0]), f[1], f[2]}, nil
}

func isDigest(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// callDigest names a call, however its client orders what it sends.
func callDigest(c bailey.Call) string {
	b, _ := json.Marshal([]any{c.Capability, c.Input}) // it was decoded from JSON; keys are sorted
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// resume takes the answer that a retried call brings. Without a state there is none.
func (w *wait) resume(ctx context.Context) (resumed bool, err error) {
	p := w.req.Params
	if p.RequestState == "" {
		if len(p.InputResponses) > 0 {
			return false, invalidParams("inputResponses without a requestState")
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
	if grant, said := verdict(r, t.id); said {
		w.answer(ctx, t.id, t.digest, grant)
	}
	return true, nil
}

// input is the answer to a call whose client is to ask first, or nil.
func (w *wait) input(ctx context.Context, r bailey.Result, call string) *answer {
	q, err := w.Gate.Question(ctx, w.call, r.Approval)
	if err != nil {
		return nil
	}
	p := elicitation(q)
	if p == nil {
		return nil
	}
	a := &answer{Type: "input_required", Inputs: sdk.InputRequestMap{inputKey: p}, State: state{q.ID, q.Digest, call}.String()}
	a.Meta = sdk.Meta{ResultKey: factsOf(r, &q)}
	return a
}

func invalidParams(why string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: why}
}
