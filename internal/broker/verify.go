package broker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"bailey"
	"bailey/internal/approvaltext"
	"bailey/internal/approver"
)

// signer is an approver with a valid signature over a text.
type signer struct {
	name  string
	level bailey.Level
	key   string
	roles []string
}

func (s signer) String() string { return s.name + " " + string(s.level) + " " + s.key }

// verifyAnswer checks the loan against the answered text and returns the people who answered. entries are in the order
// of the wants.
func (t *Table) verifyAnswer(a brokerRequest, entries []Entry,
	now time.Time) (q bailey.Question, by []signer, err error) {
	if a.Text == "" {
		return q, nil, deniedError("repeat the call, so that a rule asks a person; a rule with @approval and a level requires a signature",
			"%s is lent only for a signed answer, and there is none", approvalSubject(a, entries))
	}
	if q, err = shownAs(a, entries, now); err != nil {
		return q, nil, err
	}
	by, last := t.validSigners(a)
	for i, e := range entries {
		if err := e.Approval.checkMet(by, last); err != nil {
			return q, nil, fmt.Errorf("credential %q: %w", a.Wants[i].Name, err)
		}
	}
	return q, by, nil
}

// shownAs parses the answered text and checks the loan against it.
func shownAs(a brokerRequest, entries []Entry, now time.Time) (q bailey.Question, err error) {
	if q, err = approvaltext.Parse(a.Text); err != nil {
		return q, deniedError("sign the question with bailey approve ID; a lasting grant does not cover a credential that requires an answer for each call",
			"the signed text is not a question: %v", err)
	}
	return q, checkQuestion(q, a, entries, now)
}

// checkQuestion returns an error unless the text is about this call and names exactly the leases of the table.
func checkQuestion(q bailey.Question, a brokerRequest, entries []Entry, now time.Time) error {
	switch {
	case string(q.Call) != a.Capability:
		return deniedError("", "the answer is about %s, but the call is of %s", q.Call, a.Capability)
	case len(q.Leases) != len(a.Wants):
		return deniedError("", "the answer names %d leases, but the call needs %d", len(q.Leases), len(a.Wants))
	case !now.Before(q.Until):
		return deniedError("", "the answer was valid until %s", q.Until.UTC().Format(time.RFC3339))
	case len(q.Nonce) != 32 || strings.Trim(q.Nonce, "0123456789abcdef") != "":
		return deniedError("", "the text has no nonce of 32 hexadecimal digits")
	}
	for i, l := range q.Leases {
		w, e := a.Wants[i], entries[i]
		if l.Name != w.Name || l.Env != w.Env {
			return deniedError("", "the answer is to lend %q in %q, but the call needs %q in %q", l.Name, l.Env, w.Name,
				w.Env)
		}
		if l.Adapter != e.Adapter || l.Scope != e.Scope || l.TTL != e.TTL {
			return deniedError("",
				"the answer is to lend %q by %s, for %q, %v; the broker's table says by %s, for %q, %v", l.Name, l.Adapter, l.Scope, l.TTL, e.Adapter, e.Scope, e.TTL)
		}
	}
	return nil
}

// validSigners returns the approvers with valid signatures, each key once. last is the error of the last invalid
// signature.
func (t *Table) validSigners(a brokerRequest) (by []signer, last error) {
	for _, armored := range a.Signatures {
		s, err := approver.Verify([]byte(a.Text), armored, t.keys)
		if err != nil {
			last = err
			continue
		}
		// t.keys and t.Approvers have the same order
		by = append(by, signer{name: s.Name, level: s.Level, key: s.Key, roles: t.Approvers[s.Index].Roles})
	}
	return by, last
}

// checkMet returns an error unless enough people of the required level have the required roles.
func (a *Approval) checkMet(by []signer, last error) error {
	if a == nil {
		return nil
	}
	var people []string
	for _, s := range by {
		if s.level.Meets(a.Level) && hasRoles(s.roles, a.Roles) && !slices.Contains(people, s.name) {
			people = append(people, s.name)
		}
	}
	if len(people) >= a.Count {
		return nil
	}
	return bailey.Denied.Wrapf(last, "sign with bailey approve ID --key FILE as an approver in the broker's own table",
		"the broker requires %v, but only %d signatures are valid for that", a, len(people))
}

func approvalSubject(a brokerRequest, entries []Entry) string {
	for i, e := range entries {
		if e.Approval != nil {
			return fmt.Sprintf("credential %q", a.Wants[i].Name)
		}
	}
	return "a credential"
}

func deniedError(hint, format string, args ...any) error {
	if hint == "" {
		hint = "repeat the call, so that a person is asked about it"
	}
	return bailey.Denied.New(fmt.Sprintf(format, args...), hint)
}
