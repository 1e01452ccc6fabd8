package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"

	"bailey"
)

// rawValue is a value of the file that is decoded later, as strictly as the rest.
type rawValue struct{ decode func(any) error }

func (r *rawValue) UnmarshalYAML(decode func(any) error) error {
	r.decode = decode
	return nil
}

// ParseTable parses a table strictly. It returns an error if a key is unknown or occurs twice, or if a lease does not
// say whether it needs an approval. No error contains a value.
func ParseTable(text []byte, dir string, adapters map[string]Make) (t *Table, err error) {
	defer func() { // the parser is foreign code; a panic in it counts as an error in the file
		if p := recover(); p != nil {
			t, err = nil, tableFault("it does not read")
		}
	}()
	if len(text) > maxTable || !utf8.Valid(text) {
		return nil, tableFault("it is not UTF-8 of at most %d bytes", maxTable)
	}
	var said struct {
		Admitted  []int               `yaml:"admitted"`
		Approvers []Approver          `yaml:"approvers"`
		Leases    map[string]rawValue `yaml:"leases"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := d.Decode(&said); err != nil && !errors.Is(err, io.EOF) {
		return nil, positionError(err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, tableFault("it holds more than one document")
	}
	t = &Table{Digest: digestOf(text), Admitted: said.Admitted, Approvers: said.Approvers, Leases: map[string]Entry{}}
	for _, uid := range t.Admitted {
		if uid < 0 {
			return nil, tableFault("%d is no uid", uid)
		}
	}
	for name, r := range said.Leases {
		if !isName(name) {
			return nil, tableFault("%.60q is no name of a lease: lower case letters, digits, '.', '_' and '-' are",
				name)
		}
		if t.Leases[name], err = readEntry(r, dir, adapters); err != nil {
			if bailey.KindOf(err) != bailey.Invalid {
				err = tableFault("lease %s: %v", name, err)
			}
			return nil, err
		}
	}
	return t, t.checkTable()
}

// readEntry reads a lease: scope, ttl, approval, and exactly one key that names an adapter.
func readEntry(r rawValue, dir string, adapters map[string]Make) (e Entry, err error) {
	var parts map[string]rawValue
	if r.decode == nil {
		return e, errors.New("it says nothing")
	}
	if err := r.decode(&parts); err != nil {
		return e, positionError(err)
	}
	e.TTL = bailey.DefaultTimeout
	approval := false
	for key, part := range parts {
		switch {
		case part.decode == nil:
			err = fmt.Errorf("%s says nothing", key)
		case key == "scope":
			err = positionError(part.decode(&e.Scope))
		case key == "ttl":
			e.TTL, err = readTTL(part)
		case key == "approval":
			e.Approval, err = readApproval(part)
			approval = true
		case adapters[key] == nil:
			err = fmt.Errorf("%.40q is no part of a lease; there is scope, ttl, approval, and one of %s", key,
				adapterNames(adapters))
		case e.Adapter != "":
			err = fmt.Errorf("it comes from %s or from %s, and not from both", min(e.Adapter, key), max(e.Adapter, key))
		default:
			e.Adapter = key
			decode := func(into any) error { return positionError(part.decode(into)) }
			if e.mint, e.summary, err = adapters[key](decode, dir); err != nil && bailey.KindOf(err) != bailey.Invalid {
				err = fmt.Errorf("%s: %w", key, err)
			}
		}
		if err != nil {
			return e, err
		}
	}
	switch {
	case e.Adapter == "":
		return e, fmt.Errorf("it comes from nowhere: name one of %s", adapterNames(adapters))
	case !approval:
		return e, errors.New("it does not say what answer it wants: write approval: none, or approval: {level: signed-software, roles: [], count: 1}")
	case e.Adapter == "token" && e.Scope == "":
		return e, errors.New("a token wants a scope in words: nobody can see what it is good for")
	case len(e.Scope) > maxWord || !isPrintable(e.Scope):
		return e, fmt.Errorf("a scope is one line of at most %d bytes", maxWord)
	}
	return e, nil
}

func readTTL(r rawValue) (time.Duration, error) {
	var text string
	if err := r.decode(&text); err != nil {
		return 0, positionError(err)
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl < minTTL || ttl > maxTTL || ttl%time.Second != 0 {
		return 0, fmt.Errorf("a ttl is whole seconds from %v to %v, as in 10m", minTTL, maxTTL)
	}
	return ttl, nil
}

func readApproval(r rawValue) (*Approval, error) {
	var word string
	if err := r.decode(&word); err == nil && word == "none" {
		return nil, nil
	}
	var said struct {
		Level string   `yaml:"level"`
		Roles []string `yaml:"roles"`
		Count *int     `yaml:"count"`
	}
	if err := r.decode(&said); err != nil {
		return nil, positionError(err)
	}
	a := &Approval{Level: bailey.Level(said.Level), Roles: said.Roles, Count: 1}
	if said.Count != nil {
		a.Count = *said.Count
	}
	switch {
	case a.Level != bailey.SignedSoftware && a.Level != bailey.SignedTouch:
		return nil, fmt.Errorf("a level is %s or %s: of an answer that nobody signed the broker cannot tell whose it is", bailey.SignedSoftware, bailey.SignedTouch)
	case a.Count < 1 || a.Count > maxApprovers:
		return nil, fmt.Errorf("a count is 1 to %d", maxApprovers)
	}
	return a, nil
}

// positionError returns an error with the position in the file. The parser's own message is not used, because it may quote a
// line with a value.
func positionError(err error) error {
	if err == nil || bailey.KindOf(err) == bailey.Invalid {
		return err
	}
	var at yaml.Error
	if !errors.As(err, &at) || at.GetToken() == nil || at.GetToken().Position == nil {
		return tableFault("it does not read")
	}
	what := "this does not read"
	var unknown *yaml.UnknownFieldError
	var twice *yaml.DuplicateKeyError
	if errors.As(err, &unknown) || errors.As(err, &twice) { // these messages quote only a key
		what = at.GetMessage()
	}
	return tableFault("line %d, column %d: %s", at.GetToken().Position.Line, at.GetToken().Position.Column, what)
}

func isPrintable(s string) bool {
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return false
		}
	}
	return true
}
