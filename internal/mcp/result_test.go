package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

func fail(kind bailey.Kind, message, hint string) error {
	return fmt.Errorf("stage: %w", &bailey.Error{Kind: kind, Message: message, Hint: hint, Err: errors.New("operator's detail")})
}

func TestRender(t *testing.T) {
	allow := bailey.Decision{Effect: bailey.Allow}
	ran := bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true, Decision: allow}
	with := func(r bailey.Result, f func(*bailey.Result)) bailey.Result { f(&r); return r }
	for _, tt := range []struct {
		name       string
		in         bailey.Result
		texts      []string
		isErr      bool
		structured bool
	}{
		{"output", with(ran, func(r *bailey.Result) { r.Stdout = []byte("a\n") }), []string{"a\n"}, false, false},
		{"both streams", with(ran, func(r *bailey.Result) { r.Stdout, r.Stderr = []byte("a"), []byte("b") }), []string{"a", "stderr:\nb"}, false, false},
		{"warnings alone", with(ran, func(r *bailey.Result) { r.Stderr = []byte("b") }), []string{"stderr:\nb"}, false, false},
		{"silence", ran, []string{"(no output)"}, false, false},
		{"cut", with(ran, func(r *bailey.Result) { r.Stdout, r.Truncated = []byte("a"), true }),
			[]string{"a", "(truncated: each stream is kept up to 1048576 bytes)"}, false, false},
		{"not UTF-8", with(ran, func(r *bailey.Result) { r.Stdout = []byte("a\xff\xfeb\xc3") }), []string{"a\uFFFDb\uFFFD"}, false, false},
		{"the tool failed", with(ran, func(r *bailey.Result) {
			r.Status, r.ExitCode, r.Stdout, r.Stderr = bailey.Failed, 128, []byte("some"), []byte("fatal\xff")
			r.Err = fail(bailey.ToolFailed, "the tool exited with code 128", "")
		}), []string{"failed: the tool exited with code 128\nexit code: 128\nreceipt: r-1\n\nsome\nstderr:\nfatal\uFFFD"}, true, false},
		{"the tool failed, without a word", with(ran, func(r *bailey.Result) { r.Status, r.ExitCode = bailey.Failed, 3 }),
			[]string{"failed: the tool exited with code 3\nexit code: 3\nreceipt: r-1\n\n(no output)"}, true, false},
		{"out of time", with(ran, func(r *bailey.Result) {
			r.Status, r.ExitCode, r.Stdout = bailey.Failed, 137, []byte("half")
			r.Err = fail(bailey.ToolFailed, "the tool timed out", "narrow the call")
		}), []string{"failed: the tool timed out\nexit code: 137\nwhat to do: narrow the call\nreceipt: r-1\n\nhalf"}, true, false},
		{"connections refused", with(ran, func(r *bailey.Result) {
			r.Stdout, r.Refused = []byte("a"), []string{"egress to b is not allowed", "nor to c"}
		}),
			[]string{"a", "connections refused:\negress to b is not allowed\nnor to c"}, false, false},
		{"connections refused, and failed", with(ran, func(r *bailey.Result) {
			r.Status, r.ExitCode, r.Refused = bailey.Failed, 3, []string{"egress to b is not allowed"}
		}),
			[]string{"failed: the tool exited with code 3\nexit code: 3\nreceipt: r-1\n\n(no output)\nconnections refused:\negress to b is not allowed"}, true, false},
		{"connections refused, and by a hook", bailey.Result{Receipt: "r-1", Status: bailey.Refused, Executed: true, Refused: []string{"egress to secret"}, Err: fail(bailey.Denied, "a hook said no", "")},
			[]string{"refused: a hook said no\nexecuted: yes\nreceipt: r-1\n"}, true, true},
		{"refused", bailey.Result{Receipt: "r-1", Status: bailey.Refused, Err: fail(bailey.Denied, "no", "do that instead")},
			[]string{"refused: no\nexecuted: no\nwhat to do: do that instead\nreceipt: r-1\n"}, true, true},
		{"refused, said by the decision alone", bailey.Result{Receipt: "r-1", Status: bailey.Refused, Decision: bailey.Decision{Reason: "no rule allows it", Hint: "ask"}},
			[]string{"refused: no rule allows it\nexecuted: no\nwhat to do: ask\nreceipt: r-1\n"}, true, true},
		{"refused after it ran", bailey.Result{Receipt: "r-1", Status: bailey.Refused, Executed: true, Stdout: []byte("secret"), Err: fail(bailey.Denied, "a hook said no", "")},
			[]string{"refused: a hook said no\nexecuted: yes\nreceipt: r-1\n"}, true, true},
		{"pending", bailey.Result{Receipt: "r-1", Status: bailey.Pending, Approval: "a-1", Err: fail(bailey.Denied, "a person must approve this", "wait")},
			[]string{"waiting for approval: a person must approve this\nexecuted: no\nwhat to do: wait\napproval: a-1, which only a person can grant\nreceipt: r-1\n"}, true, true},
		{"wrong arguments", bailey.Result{Receipt: "r-1", Status: bailey.Failed, Err: fail(bailey.Invalid, "limit: an integer is wanted", "")},
			[]string{"wrong arguments: limit: an integer is wanted\nexecuted: no\nreceipt: r-1\n"}, true, true},
		{"not recorded", bailey.Result{Status: bailey.Failed, Err: fail(bailey.Unavailable, "the call was not made, because it could not be recorded", "")},
			[]string{"not run: the call was not made, because it could not be recorded\nexecuted: no\n"}, true, true},
		{"not durable", bailey.Result{Receipt: "r-1", Status: bailey.Failed, Executed: true, NotDurable: true, Stdout: []byte("output"), Err: fail(bailey.Unavailable, "disk", "see the disk")},
			[]string{"failed: executed: yes, receipt: not durable\nwhat to do: see the disk\nreceipt: r-1\n"}, true, true},
		{"not durable, and the tool failed", bailey.Result{Receipt: "r-1", Status: bailey.Failed, Executed: true, NotDurable: true, ExitCode: 3, Stdout: []byte("output")},
			[]string{"failed: executed: yes, receipt: not durable\nreceipt: r-1\n"}, true, true},
		{"not durable, though it says ok", bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true, NotDurable: true, Stdout: []byte("output")},
			[]string{"failed: executed: yes, receipt: not durable\nreceipt: r-1\n"}, true, true},
		{"killed", bailey.Result{Receipt: "r-1", Status: bailey.Killed, Executed: true, Stdout: []byte("x"), Err: fail(bailey.Unavailable, "the caller disconnected", "")},
			[]string{"stopped: the caller disconnected\nexecuted: yes\nreceipt: r-1\n"}, true, true},
		{"broken after it ran", bailey.Result{Receipt: "r-1", Status: bailey.Failed, Executed: true, Stdout: []byte("not redacted"), Err: fail(bailey.Internal, "a stage broke", "")},
			[]string{"failed: a stage broke\nexecuted: yes\nreceipt: r-1\n"}, true, true},
		{"an error of no kind", bailey.Result{Receipt: "r-1", Status: bailey.Failed, Err: errors.New("operator's detail")},
			[]string{"not run: internal error\nexecuted: no\nreceipt: r-1\n"}, true, true},
		{"ok with an error", bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true, Err: fail(bailey.Internal, "what now", "")},
			[]string{"failed: what now\nexecuted: yes\nreceipt: r-1\n"}, true, true},
		{"what was promised", bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true, Promised: true, Stdout: []byte("{}"), Structured: json.RawMessage("{}")},
			[]string{"{}"}, false, true},
		{"a promised list", bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true, Promised: true, Stdout: []byte("[]"), Structured: json.RawMessage("[]")},
			[]string{"[]"}, false, false},
		{"refused, and it promises", bailey.Result{Receipt: "r-1", Status: bailey.Refused, Promised: true, Err: fail(bailey.Denied, "no", "")},
			[]string{"refused: no\nexecuted: no\nreceipt: r-1\n"}, true, false},
		{"not what was promised", bailey.Result{Receipt: "r-1", Status: bailey.Failed, Executed: true, Promised: true, Stdout: []byte("x"), Err: fail(bailey.ToolFailed, "the output does not match outputSchema", "")},
			[]string{"failed: the output does not match outputSchema\nexit code: 0\nreceipt: r-1\n\nx"}, true, false},
		{"cut", bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true, Stdout: []byte("x"), Truncated: true, Narrow: "request less"},
			[]string{"x|(truncated: each stream is kept up to 1048576 bytes; request less)"}, false, false},
		{"the zero result", bailey.Result{}, []string{"not run: the call ended without a status\nexecuted: no\n"}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := renderResult(tt.in, nil)
			var texts []string
			for _, c := range a.Content {
				texts = append(texts, c.(*sdk.TextContent).Text)
			}
			if strings.Join(texts, "|") != strings.Join(tt.texts, "|") {
				t.Errorf("said %q", texts)
			}
			if a.IsError != tt.isErr || (a.Structured != nil) != tt.structured {
				t.Errorf("isError %v, structured %v", a.IsError, a.Structured)
			}
			raw, err := json.Marshal(a)
			if err != nil || !utf8.Valid(raw) || strings.Contains(string(raw), "operator's detail") {
				t.Errorf("%s, %v", raw, err)
			}
		})
	}
}

func TestFacts(t *testing.T) {
	for _, tt := range []struct {
		in   bailey.Result
		want string
	}{
		{bailey.Result{Receipt: "r-1", Status: bailey.OK, Executed: true, Truncated: true},
			`{"ok":true,"receiptId":"r-1","status":"ok","executed":true,"exitCode":0,"truncated":true,"decision":"allow"}`},
		{bailey.Result{Receipt: "r-1", Status: bailey.Failed, Executed: true, ExitCode: 7},
			`{"ok":false,"receiptId":"r-1","status":"failed","executed":true,"exitCode":7,"decision":"allow","reason":"the tool exited with code 7"}`},
		{bailey.Result{Receipt: "r-1", Status: bailey.Pending, Approval: "a-1", Decision: bailey.Decision{Reason: "why", Hint: "how"}},
			`{"ok":false,"receiptId":"r-1","status":"pending","executed":false,"decision":"ask","reason":"why","hint":"how","approvalRequired":true,"approvalId":"a-1"}`},
		{bailey.Result{Receipt: "r-1", Status: bailey.Failed, Err: fail(bailey.Invalid, "why", "how")},
			`{"ok":false,"receiptId":"r-1","status":"failed","executed":false,"reason":"why","hint":"how"}`},
	} {
		if got, _ := json.Marshal(factsOf(tt.in, nil)); string(got) != tt.want {
			t.Errorf("%+v\n got %s\nwant %s", tt.in, got, tt.want)
		}
	}
}
