package tui

import (
	"context"
	"strings"
	"time"

	"bailey"
)

const plainHelp = `list               the questions that are open
show N             question N, whole
approve N          shows question N, asks, and grants it
deny N REASON      refuses question N; the agent is told the reason
live               the calls that are under way
receipts WORDS     receipts, newest first: a capability, a status, agent=NAME, since=7d
more               those before them
receipt ID         one receipt, whole
verify             verifies the ledger
grants             the grants that stand
revoke ID          takes one back
stop REASON        stops everything
resume             carries calls again
wake               starts a gateway where none runs
quit               ends this program`

// do executes one command, and reports whether it was the last.
func (s *plainScreen) do(ctx context.Context, line string) (quit bool) {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToLower(word) {
	case "":
	case "q", "quit", "exit":
		return true
	case "help", "?":
		s.line("%s", plainHelp)
	case "list", "l", "inbox":
		s.list()
	case "show", "approve", "deny":
		s.answer(ctx, strings.ToLower(word), rest)
	case "live":
		s.live()
	case "receipts":
		s.receipts(ctx, rest, 0)
	case "more":
		if s.more == 0 {
			s.line("There are no more.")
		} else {
			s.receipts(ctx, s.words, s.more)
		}
	case "receipt":
		lines, err := s.c.Look.Receipt(ctx, bailey.ReceiptID(rest))
		s.read("Receipt "+seen(rest)+":", lines, err)
	case "verify":
		v, err := s.c.Look.Verify(ctx)
		title := "The ledger holds."
		if !v.OK {
			title = "THE LEDGER DOES NOT HOLD."
		}
		s.read(title, v.Lines, err)
	case "grants":
		s.standing(ctx)
	case "revoke":
		if s.sure(ctx, "Revoke the grant "+seen(rest)+"?") {
			s.did(s.c.Hand.Revoke(ctx, bailey.GrantID(rest)))
		}
	case "stop", "kill":
		if s.sure(ctx, "Stop everything now? Every call ends, and every later one is refused.") {
			s.did(s.c.Hand.Kill(ctx, seen(rest)))
		}
	case "resume":
		if s.sure(ctx, "Carry calls again?") {
			s.did(s.c.Hand.Resume(ctx))
		}
	case "wake":
		s.did("", s.c.Hand.Wake(ctx))
	default:
		s.line("There is no command %q. Say help.", word)
	}
	return false
}

// answer shows a question, and grants or denies it.
func (s *plainScreen) answer(ctx context.Context, verb, rest string) {
	word, reason, _ := strings.Cut(rest, " ")
	id, ok := s.named(word)
	if !ok {
		return
	}
	q, err := s.c.Look.Question(ctx, id)
	if err != nil {
		s.did("", err)
		return
	}
	if verb == "deny" {
		if s.sure(ctx, "Deny "+seen(string(q.Call))+" to "+seen(q.Agent)+"?") {
			s.did(s.c.Hand.Deny(ctx, id, seen(strings.TrimSpace(reason))))
		}
		return
	}
	s.line("Question %d, whole:", s.numbers[id])
	label := ""
	for _, f := range q.fields(s.c.now()) {
		if f.label != "" {
			label = f.label
		}
		s.line("%s: %s", label, seen(f.text))
	}
	if verb == "approve" && s.sure(ctx, "Grant "+seen(string(q.Call))+" to "+seen(q.Agent)+"?") {
		s.grant(ctx, q)
	}
}

func (s *plainScreen) grant(ctx context.Context, q Question) {
	signature := ""
	if s.c.Sign != nil {
		var err error
		if signature, err = s.c.Sign(ctx, q.Text); err != nil {
			s.did("", err)
			return
		}
	}
	s.did(s.c.Hand.Grant(ctx, q, signature))
}

// did reports the result of an action.
func (s *plainScreen) did(words string, err error) {
	switch {
	case err != nil:
		s.line("It was not done: %s", seen(inWords(err)))
	case words != "":
		s.line("%s", seen(words))
	default:
		s.line("Done.")
	}
}

func (s *plainScreen) read(title string, lines []string, err error) {
	if err != nil {
		s.did("", err)
		return
	}
	s.line("%s", title)
	for _, l := range lines {
		s.line("%s", seen(l))
	}
}

func (s *plainScreen) live() {
	if len(s.now.Calls) == 0 {
		s.line("No call is under way.")
	}
	for _, c := range s.now.Calls {
		s.line("%s by %s over %s, for %s, receipt %s", seen(string(c.Capability)), seen(c.Agent), seen(c.Door), ago(s.c.now().Sub(c.Since)), seen(string(c.Receipt)))
	}
	for _, a := range s.now.Walls {
		s.line("%s inside the wall of %s, for %s", seen(a.Agent), seen(a.Project), ago(s.c.now().Sub(a.Since)))
	}
	for _, r := range s.now.Refused {
		s.line("%s was refused inside the wall: %s %s", seen(r.Agent), seen(r.Reason), seen(r.Hint))
	}
}

func (s *plainScreen) receipts(ctx context.Context, words string, before uint64) {
	page, err := s.c.Look.Receipts(ctx, words, before)
	if err != nil {
		s.did("", err)
		return
	}
	s.words, s.more = words, page.Next
	if len(page.Rows) == 0 {
		s.line("No such receipts.")
	}
	for _, r := range page.Rows {
		s.line("%s %s %s: %s %s", r.Started.UTC().Format(time.DateTime), seen(string(r.ID)), seen(string(r.Capability)), seen(r.Status), seen(r.Why))
	}
	if page.Next > 0 {
		s.line("There are more: say more.")
	}
}

func (s *plainScreen) standing(ctx context.Context) {
	list, err := s.c.Look.Grants(ctx)
	if err != nil {
		s.did("", err)
		return
	}
	if len(list) == 0 {
		s.line("No grant stands.")
	}
	for _, g := range list {
		s.line("%s: %s to %s until %s, %s", seen(string(g.ID)), seen(string(g.Capability)), seen(g.Agent), g.Until.UTC().Format(time.RFC3339), seen(g.terms()))
	}
}
