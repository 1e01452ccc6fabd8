package notify

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"bailey"
)

// The types of a message.
const (
	Open    = "question.open"
	Settled = "question.settled"
	Test    = "test"
)

// Message is a message as JSON. Text from a call must already be redacted and on one line.
type Message struct {
	Type       string            `json:"type"`
	Time       time.Time         `json:"timestamp"`
	Text       string            `json:"text"`
	ID         bailey.ApprovalID `json:"id,omitempty"`
	Capability string            `json:"capability,omitempty"`
	Agent      string            `json:"agent,omitempty"`
	Inputs     string            `json:"inputs,omitempty"`
	Reasons    []string          `json:"reasons,omitempty"`
	Impact     string            `json:"impact,omitempty"`
	Wants      *Wants            `json:"wants,omitempty"`
	Expires    time.Time         `json:"expires,omitzero"`
	Digest     string            `json:"digest,omitempty"`
	HowTo      string            `json:"howTo,omitempty"`
	Reason     string            `json:"reason,omitempty"`

	key string // webhook-id
}

// Wants says which answers are required.
type Wants struct {
	Count int          `json:"count"`
	Roles []string     `json:"roles,omitempty"`
	Level bailey.Level `json:"level,omitempty"`
}

// Limits of text in a message, in bytes.
const (
	maxInputs = 400
	maxInput  = 120
	maxReason = 400
	maxName   = 200
)

// newMessage returns the message that a question is open, or settled and why.
func newMessage(kind string, q bailey.Question, reason string, now time.Time) Message {
	m := Message{
		Type: kind, Time: now.UTC(), ID: bailey.ApprovalID(plainWord(string(q.ID))),
		Capability: plainLine(string(q.Call), maxName), Agent: plainLine(q.Principal.Agent, maxName),
		Digest: plainWord(q.Digest), Reason: plainLine(reason, maxReason),
		key: plainWord(string(q.ID)) + "_" + strings.TrimPrefix(plainWord(kind), "question."),
	}
	if kind == Settled {
		// a granted question may be denied before it is used: that is another message
		sum := sha256.Sum256([]byte(reason))
		m.key += fmt.Sprintf("_%x", sum[:4])
		m.Text = fmt.Sprintf("Bailey: %s by %s no longer waits for an answer (%s)", plainWord(string(q.Call)),
			plainWord(q.Principal.Agent), m.ID)
		return m
	}
	w := bailey.Combine(q.Rules)
	m.Inputs, m.Impact, m.Expires = inputsLine(q.Inputs), plainLine(q.Impact, maxName), q.Expires.UTC()
	m.Wants = &Wants{w.Count, w.Roles, w.Level}
	for _, r := range q.Rules {
		m.Reasons = append(m.Reasons, plainLine(r.Reason, maxReason))
	}
	m.HowTo = fmt.Sprintf("bailey approvals show %s; bailey approve %s", m.ID, m.ID)
	m.Text = fmt.Sprintf("Bailey: %s by %s waits for an answer until %s UTC: bailey approvals show %s",
		plainWord(string(q.Call)), plainWord(q.Principal.Agent), m.Expires.Format("15:04"), m.ID)
	return m
}

// inputsLine returns names and values in one line.
func inputsLine(list []bailey.Input) string {
	var b strings.Builder
	for i, in := range list {
		if i > 0 {
			b.WriteByte(' ')
		}
		if b.WriteString(plainLine(in.Name, maxInput) + "=" + plainLine(in.Text, maxInput)); b.Len() > maxInputs {
			break
		}
	}
	return plainLine(b.String(), maxInputs)
}

// testMessage returns a test message, which needs no answer.
func testMessage(now time.Time) Message {
	return Message{Type: Test, Time: now.UTC(), Text: "Bailey: this is a test; questions will come this way",
		key: "test_" + rand.Text()}
}

// plainLine returns s as one line of visible characters with a limited number of bytes. A character that is invisible,
// moves the cursor or changes the writing direction is replaced by its number, as in the text of a question (package
// canon).
func plainLine(s string, most int) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		piece := s[:n]
		switch {
		case r == utf8.RuneError && n == 1:
			piece = fmt.Sprintf(`\x{%02x}`, s[0])
		case !isVisible(r):
			piece = fmt.Sprintf(`\u{%x}`, r)
		}
		if b.Len()+len(piece)+len("…") > most {
			b.WriteString("…")
			break
		}
		b.WriteString(piece)
		s = s[n:]
	}
	return b.String()
}

func isVisible(r rune) bool {
	return r == ' ' || unicode.IsGraphic(r) &&
		!unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) &&
		r != '\u2800'
}

// plainWord returns s without characters that a chat could take for markup, a mention or a link.
func plainWord(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_' {
			return r
		}
		return '?'
	}, plainLine(s, 100))
}
