package tui

import (
	"bufio"
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
					t.err = bailey.Invalid.Errorf("say help for the commands",
						"a line is at most %d bytes", mostTyped)
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

// refreshState queries the state, and announces each new question once, with a bell.
func (s *plainScreen) refreshState(ctx context.Context, announce bool) {
	now, err := s.c.Look.Now(ctx)
	if err != nil {
		if words := escapeText(inWords(err)); words != s.fault && ctx.Err() == nil {
			s.fault = words
			s.printLine("no gateway answers: %s. Say wake to start one.", words)
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
		s.printLine("No question is open.")
	}
	for _, g := range groupQuestions(s.now.Questions) {
		s.printLine("Question %d: %s", s.numbers[g[0].ID], s.questionSummary(g[0]))
		for _, q := range g[1:] {
			s.printLine("  alike: question %d, asked %s ago", s.numbers[q.ID],
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
	s.printLine("There is no question %q. Say list.", word)
	return "", false
}

// confirmAction asks for confirmation and accepts only "yes". Input from before the question, or too soon after it, is not
// accepted.
func (s *plainScreen) confirmAction(ctx context.Context, question string) bool {
	if s.c.Yes {
		return true
	}
	asked := s.c.currentTime()
	s.printLine("%s Type yes and Enter; anything else is no.", question)
	said, ok := s.readInput(ctx)
	switch {
	case !ok:
		return false
	case s.c.currentTime().Sub(asked) < quiet:
		s.printLine("That came too soon to be an answer: no.")
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
