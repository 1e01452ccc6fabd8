package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"bailey"
)

// Adapter is where the value of a lease comes from. It is made once, when the table is read, and is asked at every loan,
// so that a source can change. No error of it holds a value.
type Adapter interface {
	// Mint returns a value that is good for what the table says, for about ttl.
	Mint(ctx context.Context, ttl time.Duration) (Minted, error)
	// Revoke ends what was minted, where the issuer can; it may be told of a mint twice, and after a restart.
	Revoke(ctx context.Context, id string) error
}

// Minted is a value and what its issuer says of it.
type Minted struct {
	Value []byte    // the server clears it once it has left
	ID    string    // what the issuer calls it; "" where it has no name. It stands in journal and receipts
	Until time.Time // it is worth nothing after, where that is known
}

// Make makes an adapter of what stands behind its name in the table; decode reads that strictly into a struct. dir is the
// broker's directory, where relative names of files begin. summary says in a line, without a secret, what it is.
type Make func(decode func(into any) error, dir string) (a Adapter, summary string, err error)

// Adapters are those of this program, by the name that tables and questions use.
func Adapters() map[string]Make {
	return map[string]Make{"env": makeEnv, "literal": makeLiteral, "file": makeFile, "token": makeToken, "kubectl": makeKubectl}
}

// names lists them for an error.
func names(m map[string]Make) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// static is part of adapters whose issuer knows nothing of a loan: nothing can be revoked.
type static struct{}

func (static) Revoke(context.Context, string) error { return nil }

// MaxValue bounds one lent value in bytes, as an argument is bounded. The kernel's own limit for one
// environment string is 128 KiB (execve(2), MAX_ARG_STRLEN).
const MaxValue = 32 << 10

// unfit says what is wrong with a value, without the value.
func unfit(value []byte) string {
	switch {
	case len(strings.TrimSpace(string(value))) == 0:
		return "is empty"
	case slices.Contains(value, 0):
		return "holds a NUL byte, which no environment can carry"
	case len(value) > MaxValue:
		return fmt.Sprintf("is longer than %d bytes", MaxValue)
	}
	return ""
}

func unavailable(err error, hint, format string, args ...any) error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf(format, args...), Hint: hint, Err: err}
}
