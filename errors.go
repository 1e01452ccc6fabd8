package bailey

import (
	"errors"
	"fmt"
)

// Kind classifies an error. Each front end maps a kind once, for example to an exit code, a JSON-RPC code or a status.
// A kind is an error itself, so errors.Is(err, bailey.Denied) works.
type Kind string

const (
	Denied      Kind = "denied"      // refused by policy, an approver or a built-in check
	Blocked     Kind = "blocked"     // not part of the active profiles
	Invalid     Kind = "invalid"     // the input of the caller is wrong
	NotFound    Kind = "not found"   // unknown capability, receipt or rule
	Conflict    Kind = "conflict"    // already exists, or has changed in the meantime
	Unavailable Kind = "unavailable" // a required component is missing or does not answer
	ToolFailed  Kind = "tool failed" // the tool ran and failed; its exit code is in the result
	Internal    Kind = "internal"    // internal error of the gateway
)

func (k Kind) Error() string { return string(k) }

// Error is an error with a kind, a message for a person and a hint how to proceed. Message and Hint must not contain
// secrets. Err is optional and holds the cause for operators.
type Error struct {
	Kind    Kind
	Message string
	Hint    string
	Err     error
}

// New returns an error of this kind. hint may be empty.
func (k Kind) New(message, hint string) *Error { return &Error{Kind: k, Message: message, Hint: hint} }

// Errorf is like [Kind.New], with a message that is formatted as by [fmt.Sprintf].
func (k Kind) Errorf(hint, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// Wrap returns an error of this kind with a cause.
func (k Kind) Wrap(cause error, message, hint string) *Error {
	return &Error{Kind: k, Message: message, Hint: hint, Err: cause}
}

// Wrapf is like [Kind.Wrap], with a message that is formatted as by [fmt.Sprintf].
func (k Kind) Wrapf(cause error, hint, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...), Hint: hint, Err: cause}
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap lets errors.Is find both the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// KindOf returns the kind of err, or Internal if it has none.
func KindOf(err error) Kind {
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	return Internal
}

// HintOf returns the outermost hint in err's chain.
func HintOf(err error) string {
	var e *Error
	for errors.As(err, &e) {
		if e.Hint != "" {
			return e.Hint
		}
		if e.Err == nil {
			return ""
		}
		err = e.Err
	}
	return ""
}
