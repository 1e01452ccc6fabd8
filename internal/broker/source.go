package broker

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

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
		return nil, "", errors.New("it wants the name of a variable")
	}
	return e, "env " + e.name, nil
}

func (e *env) Mint(context.Context, time.Duration) (Minted, error) {
	text, ok := os.LookupEnv(e.name)
	if !ok || text == "" {
		return Minted{}, unavailableError(nil,
			"set it where the broker is started: a unit's LoadCredential= or EnvironmentFile=", "variable %s of the broker's environment is not set", e.name)
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
		return nil, "", errors.New("it wants one value")
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
		return nil, "", errors.New("it wants the name of a file")
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
		return nil, "", errors.New("it wants one of env and file")
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
			"it is letters, digits and - . _ ~ + / = alone, on one line; use env or file for anything else", "what should be a token is not one")
	}
	return m, nil
}

func isTokenRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~+/=:", r)
}
