package cli

import (
	"bytes"
	"context"
	"strings"

	"bailey"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/tui"
)

// act sends an operator command, if the user has the right.
func (d *tuiBackend) act(ctx context.Context, verb string, args map[string]any, out any) error {
	op, err := d.app.Operator(verb, d.yes)
	if err != nil {
		return err
	}
	return Command(ctx, d.client(), op, verb, args, out)
}

// Grant sends the digest of the text that was shown.
func (d *tuiBackend) Grant(ctx context.Context, q tui.Question, signature string) (string, error) {
	args := map[string]any{"id": q.ID, "digest": q.Digest}
	if signature != "" {
		args["signature"] = signature
	}
	out := answered{ID: q.ID}
	if err := d.act(ctx, apitype.ApproveVerb, args, &out.Tally); err != nil {
		return "", err
	}
	out.waited = q.Waits
	return said(out)
}

func (d *tuiBackend) Deny(ctx context.Context, id bailey.ApprovalID, reason string) (string, error) {
	out := answered{ID: id}
	if err := d.look(ctx, apitype.DenyVerb, map[string]any{"id": id, "reason": reason}, &out.Tally); err != nil {
		return "", err
	}
	return said(out)
}

// said returns the text that bailey approve or bailey deny prints for an answer.
func said(out answered) (string, error) {
	var b bytes.Buffer
	err := (&App{Stdout: &b}).answered(out)
	return strings.TrimSpace(b.String()), err
}

func (d *tuiBackend) Revoke(ctx context.Context, id bailey.GrantID) (string, error) {
	return "revoked", d.act(ctx, apitype.RevokeVerb, map[string]any{"id": id}, &struct{}{})
}

func (d *tuiBackend) Kill(ctx context.Context, reason string) (string, error) {
	var k apitype.Killed
	err := d.look(ctx, apitype.KillVerb, map[string]any{"reason": reason}, &k)
	return "stopped: " + apitype.Counts(k.Calls, "call") + " ended", err
}

func (d *tuiBackend) Resume(ctx context.Context) (string, error) {
	return "calls are carried again", d.act(ctx, apitype.ResumeVerb, nil, &apitype.Killed{})
}

// Wake starts a gateway if none is running. Its messages are discarded, because they would damage the screen.
func (d *tuiBackend) Wake(ctx context.Context) error {
	return (&localapi.Client{Home: d.home, Start: spawn}).Look(ctx, localapi.Query{Verb: apitype.NowQuery}, &apitype.Present{})
}
