// Package strictjson reads JSON that two programs cannot understand differently. It refuses bytes that are not UTF-8, a
// key that occurs twice in an object (RFC 8259, section 4, leaves its meaning open), and text after the value.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrSyntax means that the bytes are not one JSON value in UTF-8.
var ErrSyntax = errors.New("it is not JSON")

// Check returns an error unless data is one JSON value without duplicate keys whose arrays and objects nest at most
// depth deep. It is [ErrSyntax] if the data is no JSON at all.
func Check(data []byte, depth int) error {
	if !utf8.Valid(data) {
		return fmt.Errorf("%w: it is not UTF-8", ErrSyntax)
	}
	// A string can contain half of a surrogate pair, as RFC 8259, section 8.2, allows.
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowInvalidUTF8(true))
	for deepest, values := 0, 0; ; deepest = max(deepest, d.StackDepth()) {
		if d.StackDepth() == 0 {
			values++
		}
		_, err := d.ReadToken()
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return duplicateError(err)
		case err == io.EOF && values == 2 && deepest > depth:
			return fmt.Errorf("it is nested deeper than %d", depth)
		case err == io.EOF && values == 2:
			return nil
		case err != nil:
			return fmt.Errorf("%w: %w", ErrSyntax, err)
		case values == 2:
			return fmt.Errorf("%w: more data follows the value", ErrSyntax)
		}
	}
}

const maxKey = 64 // characters of a key that an error repeats

// duplicate is the error of a key that occurs twice.
type duplicate struct {
	text  string
	cause error // of package jsontext, with the place
}

func (d *duplicate) Error() string { return d.text }
func (d *duplicate) Unwrap() error { return d.cause }

func duplicateError(err error) error {
	key := ""
	if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		key = at.JSONPointer.LastToken()
	}
	if r := []rune(key); len(r) > maxKey {
		key = string(r[:maxKey]) + "…"
	}
	return &duplicate{"the key " + strconv.QuoteToASCII(key) + " is twice in one object", err}
}

// Offset returns the byte at which an error of [Check] was found, or 0 if it is not known.
func Offset(err error) int {
	if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return int(at.ByteOffset)
	}
	return 0
}

// Decode decodes one JSON value. A field that into does not have is refused. Numbers in fields of type any are
// [json.Number].
func Decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more data follows the value")
	}
	return nil
}

// Member is one key of an object with its value.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members returns the members of an object in their order. data must have passed [Check]; ok is false if it is no object.
func Members(data []byte) (list []Member, ok bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowInvalidUTF8(true))
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return nil, false
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		m := Member{Name: name.String()}
		value, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		m.Value = json.RawMessage(value.Clone())
		list = append(list, m)
	}
	return list, true
}
