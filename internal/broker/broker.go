// Package broker lends credentials to one call at a time.
//
// A capability says which credentials it wants and in which variable each arrives; a binding says where
// the value comes from: a variable of the gateway's own environment or a literal from configuration.
// What is not bound, or has no value now, is refused: a call never starts with less than it wants.
//
// A value leaves this package in the lease alone. No error, log line or formatted value holds it.
package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"bailey"
)

// MaxValue bounds one lent value in bytes, as an argument is bounded. The kernel's own limit for one
// environment string is 128 KiB (execve(2), MAX_ARG_STRLEN).
const MaxValue = 32 << 10

// Config binds the names of credentials to their sources. The zero Config lends nothing.
type Config struct {
	Bindings map[string]Source
}

// Broker lends what its bindings name. It is safe for concurrent use.
type Broker struct {
	// Method values rather than sources: fmt shows a function as an address, but walks into the
	// unexported fields of a struct without asking for its String method.
	sources map[string]func() (string, error)
}

// New returns a Broker over a copy of the bindings.
func New(c Config) *Broker {
	b := &Broker{sources: make(map[string]func() (string, error), len(c.Bindings))}
	for name, source := range c.Bindings {
		if source != nil {
			b.sources[name] = source.value
		}
	}
	return b
}

// Lend returns a lease that holds every wanted credential, or an error and a lease that holds none.
// Env and Secrets follow the order of wants. The lease ends with Return, which may be called again and
// is never nil; Env and Secrets are empty strings and secrets from then on.
func (b *Broker) Lend(ctx context.Context, l bailey.Loan) (bailey.Lease, error) {
	receipt, wants := l.Receipt, l.Wants
	none := bailey.Lease{Return: func() {}}
	if err := ctx.Err(); err != nil {
		return none, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("nothing was lent for %s: the call ended", receipt), Err: err}
	}
	if err := checkNames(wants); err != nil {
		return none, err
	}
	lease := none
	for _, w := range wants {
		value, err := b.value(w.Name)
		if err != nil {
			return none, err
		}
		lease.IDs = append(lease.IDs, "l-"+strings.ToLower(rand.Text()))
		lease.Env = append(lease.Env, w.Env+"="+value)
		lease.Secrets = append(lease.Secrets, bailey.NewSecret(value))
	}
	lease.Return = sync.OnceFunc(func() {
		clear(lease.Env)
		clear(lease.Secrets)
	})
	return lease, nil
}

// Scope says what a loan would come to.
func (b *Broker) Scope(_ context.Context, wants []bailey.Want) (scopes []bailey.LeaseScope, err error) {
	for _, w := range wants {
		scopes = append(scopes, bailey.LeaseScope{Name: w.Name, Env: w.Env, Adapter: "env", TTL: bailey.DefaultTimeout})
	}
	return scopes, nil
}

// value fetches one credential and refuses what no environment can carry.
func (b *Broker) value(name string) (string, error) {
	fetch, ok := b.sources[name]
	if !ok {
		return "", &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("credential %q is bound to nothing", name),
			Hint:    "bind it in the profile to env or literal; bound now: " + b.bound(),
		}
	}
	value, err := fetch()
	if err != nil {
		return "", &bailey.Error{
			Kind:    bailey.Unavailable,
			Message: fmt.Sprintf("credential %q has no value", name),
			Hint:    bailey.HintOf(err),
			Err:     err,
		}
	}
	if fault := unfit(value); fault != "" {
		return "", &bailey.Error{
			Kind:    bailey.Invalid,
			Message: fmt.Sprintf("credential %q %s", name, fault),
			Hint:    "correct the value where it is bound",
		}
	}
	return value, nil
}

// unfit says what is wrong with a value, without the value.
func unfit(value string) string {
	switch {
	case strings.TrimSpace(value) == "":
		return "is empty"
	case strings.IndexByte(value, 0) >= 0:
		return "holds a NUL byte, which no environment can carry"
	case len(value) > MaxValue:
		return fmt.Sprintf("is longer than %d bytes", MaxValue)
	}
	return ""
}

func (b *Broker) bound() string {
	if len(b.sources) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(b.sources)), ", ")
}
