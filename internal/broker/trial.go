package broker

import (
	"cmp"
	"context"
	"time"

	"bailey"
)

// Trial is the result of asking a lease's source once, without lending the value to a call.
type Trial struct {
	Lease   string        `json:"lease"`
	About   string        `json:"about"` // adapter and what it asks for, as in the table's lines
	Bytes   int           `json:"bytes,omitempty"`
	Mint    string        `json:"mint,omitempty"` // the issuer's name for the value
	Until   time.Time     `json:"until,omitzero"`
	Took    time.Duration `json:"took_ns"`
	Revoked bool          `json:"revoked,omitempty"` // the issuer confirmed that the value is no longer valid
	Wide    []string      `json:"wide,omitempty"`    // what the lease allows beyond the needs of a call
	Error   string        `json:"error,omitempty"`
	Hint    string        `json:"hint,omitempty"`
}

// TryLease asks the source of a lease for a value and revokes it at once. The value is not returned.
func (t *Table) TryLease(ctx context.Context, name string) Trial {
	e := t.Leases[name]
	r := Trial{Lease: name, About: e.summary, Wide: e.tooWide()}
	if e.Adapter == "ssh" { // a certificate is for a key, which only a gateway makes
		return r
	}
	begin := time.Now()
	m, err := mintOne(ctx, e)
	r.Took = time.Since(begin)
	r.Bytes, r.Mint, r.Until = len(m.Value), m.ID, m.Until
	if fault := valueFault(m.Value); err == nil && fault != "" {
		err = bailey.Invalid.New("the value "+fault, "correct the value at its source")
	}
	clear(m.Value)
	if m.Handle != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTimeout)
		defer cancel()
		failed := e.mint.Revoke(ctx, m.ID, m.Handle)
		r.Revoked = failed == nil
		err = cmp.Or(err, failed)
	}
	if err != nil {
		r.Error, r.Hint = err.Error(), bailey.HintOf(err)
	}
	return r
}

// issuerSetup is implemented by adapters whose issuer must be set up for them.
type issuerSetup interface {
	// setupText returns what gives the broker's own credential no more rights than this lease needs, in the issuer's
	// terms.
	setupText() string
}

// SetupText returns the document that an administrator of the issuer applies for a lease, or "" if there is nothing to
// set up.
func (t *Table) SetupText(name string) string {
	if s, ok := t.Leases[name].mint.(issuerSetup); ok {
		return s.setupText()
	}
	return ""
}
