package tui

import (
	"context"
	"time"

	"bailey"
)

// Look provides the data to show. Each method queries it again and may take long.
type Look interface {
	Now(ctx context.Context) (Now, error)
	// Question returns an open question, complete.
	Question(ctx context.Context, id bailey.ApprovalID) (Question, error)
	// Before returns the latest earlier question about the same capability of the same agent if it can be found
	// quickly, else nil.
	Before(ctx context.Context, q Question) (*Question, error)
	// Receipts returns the receipts that match the words, newest first. before continues after a page.
	Receipts(ctx context.Context, words string, before uint64) (Receipts, error)
	// Receipt returns one complete receipt, as lines.
	Receipt(ctx context.Context, id bailey.ReceiptID) ([]string, error)
	// Verify checks the ledger and returns in lines the result of each check, and the proofs.
	Verify(ctx context.Context) (Verdict, error)
	Grants(ctx context.Context) ([]Grant, error)
}

// Hand provides the actions of a person. Each method returns its result as text.
type Hand interface {
	// Grant answers the question as it was shown: its digest must be that of the text. The signature must be over the
	// text; it is "" if unsigned.
	Grant(ctx context.Context, q Question, signature string) (string, error)
	Deny(ctx context.Context, id bailey.ApprovalID, reason string) (string, error)
	Revoke(ctx context.Context, id bailey.GrantID) (string, error)
	Kill(ctx context.Context, reason string) (string, error)
	Resume(ctx context.Context) (string, error)
	// Wake starts a gateway if none runs.
	Wake(ctx context.Context) error
}

// Now is the current state.
type Now struct {
	Questions []Question // open, without the content of their texts
	Calls     []Call
	Walls     []Wall    // agents in agent jails
	Refused   []Refusal // recent refusals to such agents, newest last
	Killed    string    // says that everything is stopped; "" if not
}

// Question is an open question. If it was loaded by its ID, the embedded question was read from its text. In a list,
// only its ID, capability and times are known.
type Question struct {
	bailey.Question
	Agent   string    // also in a list
	Given   string    // inputs on one line; also in a list
	Waits   bool      // a caller waits for the answer
	RunBy   time.Time // for a granted question whose call has not been made again yet
	Answers []Answered
	Signed  bool // the settings name approvers, so an answer counts only if one of them signs it
}

// Answered is a grant for a question that requires more of them.
type Answered struct {
	Name  string
	Level bailey.Level
}

// Call is a current call.
type Call struct {
	Receipt    bailey.ReceiptID
	Capability bailey.CapabilityID
	Agent      string
	Door       string
	Session    bailey.SessionID
	Since      time.Time
}

// Wall is an agent in an agent jail.
type Wall struct {
	Agent, Project string
	Since          time.Time
}

// Refusal is a request that an agent in an agent jail was refused, and what would allow it.
type Refusal struct {
	Agent, Reason, Hint string
	At                  time.Time
}

// Receipts is one page of receipts.
type Receipts struct {
	Rows []Receipt
	Next uint64 // continues after this page; 0 at the end
}

// Receipt is a receipt in one line.
type Receipt struct {
	ID         bailey.ReceiptID
	Capability bailey.CapabilityID
	Agent      string
	Status     string
	Why        string
	Started    time.Time
}

// Verdict is the result of a verification.
type Verdict struct {
	OK    bool
	Lines []string
}

// Grant is a standing grant.
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

// Config names the sources of data and actions.
type Config struct {
	Look Look
	Hand Hand
	// Sign signs a question's text. It may ask for a passphrase or a touch on the terminal, which it has until it
	// returns. If it is nil, answers are not signed.
	Sign  func(ctx context.Context, text string) (signature string, err error)
	Key   string           // description of the key of Sign
	Color bool             // if false, only text and attributes
	Yes   bool             // Plain: does not ask for confirmation
	Clock func() time.Time // nil is time.Now
	Every time.Duration    // between two queries; 0 is one second, negative is never
}

func (c Config) currentTime() time.Time {
	if c.Clock == nil {
		return time.Now()
	}
	return c.Clock()
}

func (c Config) queryInterval() time.Duration {
	if c.Every <= 0 {
		return time.Second
	}
	return c.Every
}
