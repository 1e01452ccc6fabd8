package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"bailey"
)

// Adapter is the source of the value of a lease. It is made once, when the table is read, and asked for each loan, so
// that a source can change. Its errors must not contain a value.
type Adapter interface {
	// Mint returns a value with the rights in the table, valid for about ttl. If the issuer made a value that must not be
	// lent, it returns ID, Until and Handle of that beside the error.
	Mint(ctx context.Context, ttl time.Duration) (Minted, error)
	// Revoke ends the validity of a minted value if the issuer supports that. It gets ID and Handle of the value. It
	// may
	// be called twice for one value, and after a restart.
	Revoke(ctx context.Context, id string, handle []byte) error
}

// Minted is a value and the information of its issuer about it.
type Minted struct {
	Value []byte    // the server clears it after it was sent
	ID    string    // issuer's name for it, "" if it has none; written to journal and receipts
	Until time.Time // end of its validity, if known

	// Handle is what Revoke needs besides ID. If it is not nil, the broker stores it until the value is revoked.
	Handle []byte
}

// Make makes an adapter from the part of the table below its name. decode reads that part strictly into a struct.
// Relative file names begin in dir, the broker's directory. summary describes the adapter in one line without a secret.
type Make func(decode func(into any) error, dir string) (a Adapter, summary string, err error)

// Adapters returns the adapters of this program, by the name that tables and questions use.
func Adapters() map[string]Make {
	return map[string]Make{"env": makeEnv, "literal": makeLiteral, "file": makeFile, "token": makeToken,
		"kubectl": makeKubectl, "ssh": makeSSH, "vault": makeVault, "github": makeGitHub, "aws": makeAWS, "gcloud": makeGcloud,
		"azure": makeAzure, "infisical": makeInfisical, "exchange": makeExchange, "exec": makeExec, "keyring": makeKeyring,
		"argocd": makeArgoCD}
}

// adapterNames returns the sorted names as a list for an error message.
func adapterNames(m map[string]Make) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }

// irrevocable is embedded in adapters whose issuer does not know about loans, so that nothing can be revoked.
type irrevocable struct{}

func (irrevocable) Revoke(context.Context, string, []byte) error { return nil }

// MaxValue limits one lent value in bytes, as an argument is limited. The kernel's own limit for one environment string
// is 128 KiB (execve(2), MAX_ARG_STRLEN).
const MaxValue = 32 << 10

// valueFault describes what is wrong with a value, without the value itself. It returns "" for a usable value.
func valueFault(value []byte) string {
	switch {
	case len(strings.TrimSpace(string(value))) == 0:
		return "is empty"
	case slices.Contains(value, 0):
		return "contains a NUL byte, which is not allowed in an environment"
	case len(value) > MaxValue:
		return fmt.Sprintf("is longer than %d bytes", MaxValue)
	}
	return ""
}

func unavailableError(err error, hint, format string, args ...any) error {
	return bailey.Unavailable.Wrap(err, fmt.Sprintf(format, args...), hint)
}

// env reads a variable of the broker's own environment.
type env struct {
	irrevocable
	name string
}

func makeEnv(decode func(any) error, _ string) (Adapter, string, error) {
	e := &env{}
	if err := decode(&e.name); err != nil {
		return nil, "", err
	}
	if !validName(e.name) {
		return nil, "", errors.New("it needs the name of a variable")
	}
	return e, "env " + e.name, nil
}

func (e *env) Mint(context.Context, time.Duration) (Minted, error) {
	text, ok := os.LookupEnv(e.name)
	if !ok || text == "" {
		return Minted{}, unavailableError(nil,
			"set it where the broker is started, for example in a unit's LoadCredential= or EnvironmentFile=", "variable %s of the broker's environment is not set", e.name)
	}
	return Minted{Value: []byte(text)}, nil
}

// literal is a value in the table itself. It is kept in a closure: fmt prints only the address of a function, but would
// print the fields of a struct.
type literal struct {
	irrevocable
	value func() string
}

func makeLiteral(decode func(any) error, _ string) (Adapter, string, error) {
	var text string
	if err := decode(&text); err != nil {
		return nil, "", errors.New("it needs exactly one value")
	}
	if fault := valueFault([]byte(text)); fault != "" {
		return nil, "", errors.New("the value " + fault)
	}
	return &literal{value: func() string { return text }}, "literal", nil
}

func (l *literal) Mint(context.Context, time.Duration) (Minted, error) {
	return Minted{Value: []byte(l.value())}, nil
}

// file reads a file that only the broker's user can read.
type file struct {
	irrevocable
	name string
}

func makeFile(decode func(any) error, dir string) (Adapter, string, error) {
	f := &file{}
	if err := decode(&f.name); err != nil || f.name == "" {
		return nil, "", errors.New("it needs the name of a file")
	}
	f.name = resolveIn(dir, f.name)
	return f, "file " + f.name, nil
}

func (f *file) Mint(context.Context, time.Duration) (Minted, error) {
	value, err := readPrivate(f.name, MaxValue)
	return Minted{Value: value}, err
}

func resolveIn(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

// token is a bearer token that was made elsewhere, with the scope that the table declares. A variable or a file
// contains it. It must be one word, so that a header or a variable can contain it unchanged (RFC 6750, section 2.1).
type token struct {
	irrevocable
	from Adapter
}

func makeToken(decode func(any) error, dir string) (Adapter, string, error) {
	var from struct {
		Env  string `yaml:"env"`
		File string `yaml:"file"`
	}
	if err := decode(&from); err != nil {
		return nil, "", err
	}
	inner, name := makeEnv, from.Env
	if from.File != "" {
		inner, name = makeFile, from.File
	}
	if (from.Env == "") == (from.File == "") {
		return nil, "", errors.New("it needs either env or file")
	}
	a, words, err := inner(func(into any) error { *into.(*string) = name; return nil }, dir)
	return &token{from: a}, "token of " + words, err
}

func (t *token) Mint(ctx context.Context, ttl time.Duration) (Minted, error) {
	m, err := t.from.Mint(ctx, ttl)
	if err != nil {
		return Minted{}, err
	}
	m.Value = bytes.TrimSuffix(bytes.TrimSuffix(m.Value, []byte("\n")), []byte("\r"))
	if bytes.ContainsFunc(m.Value, func(r rune) bool { return !isTokenRune(r) }) {
		clear(m.Value)
		return Minted{}, unavailableError(nil,
			"a token must be one line of letters, digits and - . _ ~ + / = only; use env or file for other values", "the token is malformed")
	}
	return m, nil
}

func isTokenRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~+/=:", r)
}
