package tui

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"bailey"
)

// plainScreen works line by line: new output appears below earlier output, and nothing is overwritten.
type plainScreen struct {
	c   Config
	out io.Writer
	in  *lineReader

	now     Now
	numbers map[bailey.ApprovalID]int // from 1, never reused, so that "approve 2" cannot come to mean another question
	listed  map[int]bailey.ApprovalID
	more    uint64
	words   string
	fault   string
}

// Plain reads commands from in, one per line, and writes lines to out, until "quit", the end of in, or the end of ctx.
// New questions are announced when they arrive.
func Plain(ctx context.Context, c Config, in io.Reader, out io.Writer) error {
	s := &plainScreen{c: c, out: out, in: newTyped(in), numbers: map[bailey.ApprovalID]int{},
		listed: map[int]bailey.ApprovalID{}}
	defer s.in.stopReading()
	s.refreshState(ctx, false)
	s.printLine("Bailey, line by line. Commands: list, show N, approve N, deny N REASON, live, receipts WORDS, grants, stop, help, quit.")
	s.printQuestions()
	tick := time.NewTicker(c.queryInterval())
	defer tick.Stop()
	for {
		s.in.requestLine()
		select {
		case l, ok := <-s.in.lines:
			if s.in.wanted = false; !ok {
				return s.in.err
			}
			s.refreshState(ctx, true)
			if s.runCommand(ctx, l) {
				return nil
			}
		case <-tick.C:
			s.refreshState(ctx, true)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lineReader reads lines on request. Between requests, another program may read the terminal.
type lineReader struct {
	lines  chan string
	asked  chan struct{}
	wanted bool
	err    error // written before lines is closed
}

// mostTyped limits a line in bytes.
const mostTyped = 4096

func newTyped(in io.Reader) *lineReader {
	t := &lineReader{lines: make(chan string), asked: make(chan struct{}, 1)}
	go func() {
		defer close(t.lines)
		r := bufio.NewScanner(in)
		r.Buffer(nil, mostTyped)
		for range t.asked {
			if !r.Scan() {
				if errors.Is(r.Err(), bufio.ErrTooLong) {
					t.err = bailey.Invalid.Errorf("enter help for the commands",
						"a line may have at most %d bytes", mostTyped)
				}
				return
			}
			t.lines <- r.Text()
		}
	}()
	return t
}

func (t *lineReader) requestLine() {
	if !t.wanted {
		t.wanted = true
		t.asked <- struct{}{}
	}
}

func (t *lineReader) stopReading() { close(t.asked) }

func (s *plainScreen) printLine(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// printEscaped is like printLine. It escapes the arguments, which are foreign texts.
func (s *plainScreen) printEscaped(format string, args ...any) {
	for i, v := range args {
		args[i] = escapeText(fmt.Sprint(v))
	}
	s.printLine(format, args...)
}

// refreshState queries the state, and announces each new question once, with a bell.
func (s *plainScreen) refreshState(ctx context.Context, announce bool) {
	now, err := s.c.Look.Now(ctx)
	if err != nil {
		if words := escapeText(inWords(err)); words != s.fault && ctx.Err() == nil {
			s.fault = words
			s.printLine("no gateway answers: %s. Enter wake to start one.", words)
		}
		return
	}
	if s.fault != "" {
		s.fault = ""
		s.printLine("the gateway answers again.")
	}
	if now.Killed != s.now.Killed && now.Killed != "" {
		s.printLine("STOPPED: %s", escapeText(now.Killed))
	}
	s.now = now
	for _, q := range now.Questions {
		if s.numbers[q.ID] != 0 {
			continue
		}
		n := len(s.numbers) + 1
		s.numbers[q.ID], s.listed[n] = n, q.ID
		if announce {
			s.printLine("\aNew question %d: %s", n, s.questionSummary(q))
		}
	}
}

func (s *plainScreen) questionSummary(q Question) string {
	given := strings.TrimSpace(q.Given)
	if given != "" {
		given = " " + given
	}
	return escapeText(fmt.Sprintf("%s by %s%s, %s", q.Call, q.Agent, given, q.statusText(s.c.currentTime())))
}

func (s *plainScreen) printQuestions() {
	if len(s.now.Questions) == 0 {
		s.printLine("No questions are open.")
	}
	for _, g := range groupQuestions(s.now.Questions) {
		s.printLine("Question %d: %s", s.numbers[g[0].ID], s.questionSummary(g[0]))
		for _, q := range g[1:] {
			s.printLine("  similar: question %d, asked %s ago", s.numbers[q.ID],
				shortDuration(s.c.currentTime().Sub(q.AskedAt)))
		}
	}
}

// findQuestion returns the question with this number or ID.
func (s *plainScreen) findQuestion(word string) (bailey.ApprovalID, bool) {
	if n, err := strconv.Atoi(word); err == nil && s.listed[n] != "" {
		return s.listed[n], true
	}
	if s.numbers[bailey.ApprovalID(word)] != 0 {
		return bailey.ApprovalID(word), true
	}
	s.printLine("There is no question %q. Enter list.", word)
	return "", false
}

// confirmAction asks for confirmation and accepts only "yes". Input from before the question, or too soon after it, is not
// accepted.
func (s *plainScreen) confirmAction(ctx context.Context, question string) bool {
	if s.c.Yes {
		return true
	}
	asked := s.c.currentTime()
	s.printLine("%s Type yes and Enter; anything else means no.", question)
	said, ok := s.readInput(ctx)
	switch {
	case !ok:
		return false
	case s.c.currentTime().Sub(asked) < quiet:
		s.printLine("Ignored, because it came too early: no.")
		return false
	}
	if strings.EqualFold(strings.TrimSpace(said), "yes") {
		return true
	}
	s.printLine("No.")
	return false
}

func (s *plainScreen) readInput(ctx context.Context) (string, bool) {
	s.in.requestLine()
	select {
	case l, ok := <-s.in.lines:
		s.in.wanted = false
		return l, ok
	case <-ctx.Done():
		return "", false
	}
}

const plainHelp = `list               open questions
show N             question N in full
approve N          shows question N, asks for confirmation, and approves it
deny N REASON      denies question N; the agent is told the reason
live               running calls
receipts WORDS     receipts, newest first: a capability, a status, agent=NAME, since=7d
more               older receipts
receipt ID         one receipt in full
verify             verifies the ledger
grants             active grants
revoke ID          revokes a grant
stop REASON        stops everything
resume             allows calls again
wake               starts a gateway if none is running
quit               ends this program`

// runCommand executes one command, and reports whether it was the last.
func (s *plainScreen) runCommand(ctx context.Context, line string) (quit bool) {
	word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	rest = strings.TrimSpace(rest)
	switch strings.ToLower(word) {
	case "":
	case "q", "quit", "exit":
		return true
	case "help", "?":
		s.printLine("%s", plainHelp)
	case "list", "l", "inbox":
		s.printQuestions()
	case "show", "approve", "deny":
		s.answerQuestion(ctx, strings.ToLower(word), rest)
	case "live":
		s.printLiveCalls()
	case "receipts":
		s.printReceipts(ctx, rest, 0)
	case "more":
		if s.more == 0 {
			s.printLine("There are no more.")
		} else {
			s.printReceipts(ctx, s.words, s.more)
		}
	case "receipt":
		lines, err := s.c.Look.Receipt(ctx, bailey.ReceiptID(rest))
		s.printSection("Receipt "+escapeText(rest)+":", lines, err)
	case "verify":
		v, err := s.c.Look.Verify(ctx)
		title := "The ledger is valid."
		if !v.OK {
			title = "THE LEDGER IS INVALID."
		}
		s.printSection(title, v.Lines, err)
	case "grants":
		s.printGrants(ctx)
	case "revoke":
		if s.confirmAction(ctx, "Revoke the grant "+escapeText(rest)+"?") {
			s.printOutcome(s.c.Hand.Revoke(ctx, bailey.GrantID(rest)))
		}
	case "stop", "kill":
		if s.confirmAction(ctx, "Stop everything now? Every call ends, and every later one is refused.") {
			s.printOutcome(s.c.Hand.Kill(ctx, escapeText(rest)))
		}
	case "resume":
		if s.confirmAction(ctx, "Allow calls again?") {
			s.printOutcome(s.c.Hand.Resume(ctx))
		}
	case "wake":
		s.printOutcome("", s.c.Hand.Wake(ctx))
	default:
		s.printLine("There is no command %q. Enter help.", word)
	}
	return false
}

// answerQuestion shows a question, and grants or denies it.
func (s *plainScreen) answerQuestion(ctx context.Context, verb, rest string) {
	word, reason, _ := strings.Cut(rest, " ")
	id, ok := s.findQuestion(word)
	if !ok {
		return
	}
	q, err := s.c.Look.Question(ctx, id)
	if err != nil {
		s.printOutcome("", err)
		return
	}
	if verb == "deny" {
		if s.confirmAction(ctx, "Deny "+escapeText(string(q.Call))+" to "+escapeText(q.Agent)+"?") {
			s.printOutcome(s.c.Hand.Deny(ctx, id, escapeText(strings.TrimSpace(reason))))
		}
		return
	}
	s.printLine("Question %d in full:", s.numbers[id])
	label := ""
	for _, f := range q.allFields(s.c.currentTime()) {
		if f.label != "" {
			label = f.label
		}
		s.printLine("%s: %s", label, escapeText(f.text))
	}
	if verb == "approve" && s.confirmAction(ctx, "Grant "+escapeText(string(q.Call))+" to "+escapeText(q.Agent)+"?") {
		s.grantQuestion(ctx, q)
	}
}

func (s *plainScreen) grantQuestion(ctx context.Context, q Question) {
	signature := ""
	if s.c.Sign != nil {
		var err error
		if signature, err = s.c.Sign(ctx, q.Text); err != nil {
			s.printOutcome("", err)
			return
		}
	}
	s.printOutcome(s.c.Hand.Grant(ctx, q, signature))
}

// printOutcome reports the result of an action.
func (s *plainScreen) printOutcome(words string, err error) {
	if err != nil {
		s.printEscaped("Nothing was changed: %s", inWords(err))
	} else {
		s.printEscaped("%s", cmp.Or(words, "Done."))
	}
}

func (s *plainScreen) printSection(title string, lines []string, err error) {
	if err != nil {
		s.printOutcome("", err)
		return
	}
	s.printLine("%s", title)
	for _, l := range lines {
		s.printEscaped("%s", l)
	}
}

func (s *plainScreen) printLiveCalls() {
	if len(s.now.Calls) == 0 {
		s.printLine("No calls are running.")
	}
	for _, c := range s.now.Calls {
		s.printEscaped("%s by %s over %s, for %s, receipt %s", c.Capability, c.Agent, c.Door,
			shortDuration(s.c.currentTime().Sub(c.Since)), c.Receipt)
	}
	for _, a := range s.now.Walls {
		s.printEscaped("%s in the agent jail of %s, for %s", a.Agent, a.Project, shortDuration(s.c.currentTime().Sub(a.Since)))
	}
	for _, r := range s.now.Refused {
		s.printEscaped("refused in the agent jail of %s: %s %s", r.Agent, r.Reason, r.Hint)
	}
}

func (s *plainScreen) printReceipts(ctx context.Context, words string, before uint64) {
	page, err := s.c.Look.Receipts(ctx, words, before)
	if err != nil {
		s.printOutcome("", err)
		return
	}
	s.words, s.more = words, page.Next
	if len(page.Rows) == 0 {
		s.printLine("No matching receipts.")
	}
	for _, r := range page.Rows {
		s.printEscaped("%s %s %s: %s %s", r.Started.UTC().Format(time.DateTime), r.ID, r.Capability, r.Status, r.Why)
	}
	if page.Next > 0 {
		s.printLine("There are more: enter more.")
	}
}

func (s *plainScreen) printGrants(ctx context.Context) {
	list, err := s.c.Look.Grants(ctx)
	if err != nil {
		s.printOutcome("", err)
		return
	}
	if len(list) == 0 {
		s.printLine("No grants are active.")
	}
	for _, g := range list {
		s.printEscaped("%s: %s to %s until %s, %s", g.ID, g.Capability, g.Agent, g.Until.UTC().Format(time.RFC3339),
			g.termsText())
	}
}
