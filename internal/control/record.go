package control

import (
	"context"
	"errors"

	"bailey"
	"bailey/internal/ledger"
)

// AdminEvent is the kind of the ledger entries of requests that change something.
const AdminEvent = "admin"

// adminEvent is such an entry. The first one of a request has no result.
type adminEvent struct {
	Operation    string `json:"operation"`
	Account      string `json:"account,omitempty"`
	Email        string `json:"email,omitempty"`
	Session      string `json:"session,omitempty"`
	Token        string `json:"token,omitempty"`
	Organisation string `json:"organisation,omitempty"`
	Subject      string `json:"subject,omitempty"` // the account, token, invitation or host that the path names
	Address      string `json:"address,omitempty"`
	Client       string `json:"client,omitempty"`
	Result       string `json:"result,omitempty"` // "done", or the kind of the error
	Detail       string `json:"detail,omitempty"`
}

// A subject of a request is in the path: inputs that name one say so.
type subject interface {
	subject() (organisation, subject string)
}

// recordChange runs a handler that changes something, as runRecorded does.
func recordChange[I, O any](ctx context.Context, s *Server, id string, c *Caller, in *I,
	f func(context.Context, *Caller, *I) (*O, error)) (out *O, err error) {
	err = s.runRecorded(ctx, id, c, in, func() (err error) {
		out, err = f(ctx, c, in)
		return err
	})
	return out, err
}

// runRecorded runs a change. An event precedes it, and another one says how it ended. If the second one cannot be
// written,
// the caller gets the result, since the change has happened; the next change is refused.
func (s *Server) runRecorded(ctx context.Context, id string, c *Caller, in any, f func() error) error {
	e := adminEvent{Operation: id, Account: c.Account.ID, Email: c.Account.Email, Session: c.Session,
		Token: c.Token, Client: c.Client}
	if c.Address.IsValid() {
		e.Address = c.Address.String()
	}
	if named, ok := in.(subject); ok {
		e.Organisation, e.Subject = named.subject()
	}
	if err := s.Ledger.Note(ctx, AdminEvent, e); err != nil {
		return bailey.Unavailable.Wrap(err, "the change cannot be recorded, so it was not made",
			"see the log of bailey-server")
	}
	err := f()
	e.Result, e.Client = "done", ""
	// c.Account is set by handlers that sign in, so that the second entry names it.
	e.Account, e.Email, e.Session = c.Account.ID, c.Account.Email, c.Session
	if err != nil {
		p := asProblem(err)
		e.Result, e.Detail = p.Title, p.Detail
	}
	if noted := s.Ledger.Note(context.WithoutCancel(ctx), AdminEvent, e); noted != nil {
		s.Log.Error("the end of a change is not recorded", "operation", id, "error", noted)
	}
	return err
}

// RecordOperation runs a change that an operator makes on the machine of the server, with an event before and after it.
func RecordOperation(ctx context.Context, l *ledger.Log, operation, subject string, f func() error) error {
	e := adminEvent{Operation: operation, Account: "operator", Subject: subject}
	if err := l.Note(ctx, AdminEvent, e); err != nil {
		return bailey.Unavailable.Wrap(err, "the change cannot be recorded, so it was not made", "bailey-server doctor")
	}
	err := f()
	e.Result = "done"
	if err != nil {
		p := asProblem(err)
		e.Result, e.Detail = p.Title, p.Detail
	}
	return errors.Join(err, l.Note(context.WithoutCancel(ctx), AdminEvent, e))
}
