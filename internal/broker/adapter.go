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

// Adapter is the source of the value of a lease. It is made once, when the table is read, and asked for each loan, so
// that a source can change. Its errors must not contain a value.
type Adapter interface {
	// Mint returns a value with the rights in the table, valid for about ttl.
	Mint(ctx context.Context, ttl time.Duration) (Minted, error)
	// Revoke ends the validity of a minted value if the issuer supports that. It may be called twice for one value, and
	// after a restart.
	Revoke(ctx context.Context, id string) error
}

// Minted is a value and the information of its issuer about it.
type Minted struct {
	Value []byte    // the server clears it after it was sent
	ID    string    // issuer's name for it, "" if it has none; written to journal and receipts
	Until time.Time // end of its validity, if known
}

// Make makes an adapter from the part of the table below its name. decode reads that part strictly into a struct.
// Relative file names begin in dir, the broker's directory. summary describes the adapter in one line without a secret.
type Make func(decode func(into any) error, dir string) (a Adapter, summary string, err error)

// Adapters returns the adapters of this program, by the name that tables and questions use.
func Adapters() map[string]Make {
	return map[string]Make{"env": makeEnv, "literal": makeLiteral, "file": makeFile, "token": makeToken,
		"kubectl": makeKubectl}
}

// adapterNames returns the sorted names as a list for an error message.
func adapterNames(m map[string]Make) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// irrevocable is embedded in adapters whose issuer does not know about loans, so that nothing can be revoked.
type irrevocable struct{}

func (irrevocable) Revoke(context.Context, string) error { return nil }

// MaxValue limits one lent value in bytes, as an argument is limited. The kernel's own limit for one environment string
// is 128 KiB (execve(2), MAX_ARG_STRLEN).
const MaxValue = 32 << 10

// valueFault describes what is wrong with a value, without the value itself. It returns "" for a usable value.
func valueFault(value []byte) string {
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

func unavailableError(err error, hint, format string, args ...any) error {
	return bailey.Unavailable.Wrap(err, fmt.Sprintf(format, args...), hint)
}
