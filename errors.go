package bailey

import "errors"

// Kind classifies an error so that each door can map it once: to an exit code, a JSON-RPC code or a
// status. Kinds are errors themselves: errors.Is(err, bailey.Denied).
type Kind string

const (
	Denied      Kind = "denied"      // policy, approval or a wall said no
	Blocked     Kind = "blocked"     // the profiles in use do not have it
	Invalid     Kind = "invalid"     // the caller's input is wrong
	NotFound    Kind = "not found"   // no such capability, receipt, rule
	Conflict    Kind = "conflict"    // it exists already, or changed meanwhile
	Unavailable Kind = "unavailable" // something needed is missing or not answering
	ToolFailed  Kind = "tool failed" // the tool ran and ended badly; its code is in the result
	Internal    Kind = "internal"    // our own fault
)

func (k Kind) Error() string { return string(k) }

// Error is an error with its kind, a message for a person and a hint what to do now.
// Neither may hold a secret. Err, when set, is the chain for operators.
type Error struct {
	Kind    Kind
	Message string
	Hint    string
	Err     error
}

func (e *Error) Error() string {
	if e.Err != nil {
		return e.Message + ": " + e.Err.Error()
	}
	return e.Message
}

// Unwrap lets errors.Is find the kind as well as the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// KindOf returns the kind of err, Internal when it has none.
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
