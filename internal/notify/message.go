package notify

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

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
		m.Text = fmt.Sprintf("Bailey: %s by %s waits no longer for an answer (%s)", plainWord(string(q.Call)),
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
