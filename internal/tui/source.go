package tui

import (
	"context"
	"time"

	"bailey"
)

// Look is what can be seen. Each method asks anew, and may take long.
type Look interface {
	Now(ctx context.Context) (Now, error)
	// Question is one that is open, whole.
	Question(ctx context.Context, id bailey.ApprovalID) (Question, error)
	// Before is the question about the same capability of the same agent that was asked last before one, as far as it is
	// found without much looking; nil where there is none.
	Before(ctx context.Context, q Question) (*Question, error)
	// Receipts are those that the words want, newest first; before goes on behind a page.
	Receipts(ctx context.Context, words string, before uint64) (Receipts, error)
	// Receipt is one receipt whole, in lines.
	Receipt(ctx context.Context, id bailey.ReceiptID) ([]string, error)
	// Verify reads the ledger and says in lines what holds, and what is proved.
	Verify(ctx context.Context) (Verdict, error)
	Grants(ctx context.Context) ([]Grant, error)
}

// Hand is what a person can do. Each method returns what it came to, in words.
type Hand interface {
	// Grant answers the question as it was shown: its digest is that of the text. The signature is over that, "" of none.
	Grant(ctx context.Context, q Question, signature string) (string, error)
	Deny(ctx context.Context, id bailey.ApprovalID, reason string) (string, error)
	Revoke(ctx context.Context, id bailey.GrantID) (string, error)
	Kill(ctx context.Context, reason string) (string, error)
	Resume(ctx context.Context) (string, error)
	// Wake starts a gateway where none runs any more.
	Wake(ctx context.Context) error
}

// Now is how things stand.
type Now struct {
	Questions []Question // open, without what their texts say
	Calls     []Call
	Walls     []Wall    // agents that are inside one
	Refused   []Refusal // what such agents were refused lately, the newest last
	Killed    string    // that everything is stopped, in words; "" while it is not
}

// Question is an open question. Of one that was asked for by its id everything in the embedded question was read from
// its text; but for id, capability and times nothing of that is known in a list.
type Question struct {
	bailey.Question
	Agent   string    // also in a list
	Given   string    // inputs, on a line; also in a list
	Waits   bool      // a caller stays for the answer
	RunBy   time.Time // of one that is granted, and whose call has not come back yet
	Answers []Answered
}

// Answered is a grant that was given to a question which wants more of them.
type Answered struct {
	Name  string
	Level bailey.Level
}

// Call is one that is under way.
type Call struct {
	Receipt    bailey.ReceiptID
	Capability bailey.CapabilityID
	Agent      string
	Door       string
	Session    bailey.SessionID
	Since      time.Time
}

// Wall is an agent inside the wall.
type Wall struct {
	Agent, Project string
	Since          time.Time
}

// Refusal is something that an agent inside the wall was refused, and what would allow it.
type Refusal struct {
	Agent, Reason, Hint string
	At                  time.Time
}

// Receipts is a page of them.
type Receipts struct {
	Rows []Receipt
	Next uint64 // goes on behind them; 0 at the end
}

// Receipt is a receipt on a line.
type Receipt struct {
	ID         bailey.ReceiptID
	Capability bailey.CapabilityID
	Agent      string
	Status     string
	Why        string
	Started    time.Time
}

// Verdict is what verifying came to.
type Verdict struct {
	OK    bool
	Lines []string
}

// Grant is one that stands.
type Grant struct {
	ID         bailey.GrantID
	Capability bailey.CapabilityID
	Agent      string
	Person     string
	Rules      []string
	Until      time.Time
	By         string
	Level      bailey.Level
}

// Config says where it looks and by whose hand it acts.
type Config struct {
	Look Look
	Hand Hand
	// Sign signs a question's text; it may ask for a passphrase or a touch on the terminal, which is given over to it.
	// Nil: answers are not signed.
	Sign  func(ctx context.Context, text string) (signature string, err error)
	Key   string           // what Sign signs with, in words
	Color bool             // else words and attributes alone
	Yes   bool             // Plain: what is asked for is not asked about again
	Clock func() time.Time // nil is time.Now
	Every time.Duration    // between two looks; 0 is a second, less than that is never
}

func (c Config) now() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock()
}

func (c Config) every() time.Duration {
	if c.Every <= 0 {
		return time.Second
	}
	return c.Every
}
