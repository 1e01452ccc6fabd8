package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
	sast "github.com/cedar-policy/cedar-go/x/exp/schema/ast"
)

// kind is the Cedar type of a JSON Schema; see the table in the package comment.
type kind uint8

const (
	text kind = iota + 1
	whole
	flag
	texts
	wholes
	record
)

// shape is the part of an input schema that rules can see.
type shape struct {
	kind   kind
	fields []field // of a record, by name
}

// field is one property. Its shape is nil if it cannot be mapped.
type field struct {
	name     string
	shape    *shape
	required bool
}

const (
	opaqueName = "_opaque" // attribute with the names that were not mapped; a property cannot replace it
	maxShape   = 8         // nesting of records
)

// parseInput parses the input schema of an action.
func parseInput(raw json.RawMessage) (*shape, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return &shape{kind: record}, nil
	}
	if !json.Valid(raw) {
		return nil, errors.New("its input schema is not JSON")
	}
	s := parseShape(raw, 0)
	if s == nil || s.kind != record {
		return &shape{kind: record}, nil
	}
	s.fields = slices.DeleteFunc(s.fields, func(f field) bool { return f.name == opaqueName })
	return s, nil
}

// parseShape returns nil for a schema that cannot be mapped. It matches keywords exactly; encoding/json, by contrast,
// accepts "Type" for "type" in struct fields.
func parseShape(raw json.RawMessage, depth int) *shape {
	var s map[string]json.RawMessage
	var name string
	if json.Unmarshal(raw, &s) != nil || json.Unmarshal(s["type"], &name) != nil {
		return nil
	}
	switch name {
	case "string":
		return &shape{kind: text}
	case "integer":
		return &shape{kind: whole}
	case "boolean":
		return &shape{kind: flag}
	case "array":
		return parseList(s["items"], depth)
	case "object":
		return parseRecord(s, depth)
	}
	return nil
}

func parseList(items json.RawMessage, depth int) *shape {
	if depth >= maxShape || len(items) == 0 {
		return nil
	}
	switch s := parseShape(items, depth+1); {
	case s == nil:
	case s.kind == text:
		return &shape{kind: texts}
	case s.kind == whole:
		return &shape{kind: wholes}
	}
	return nil
}

func parseRecord(s map[string]json.RawMessage, depth int) *shape {
	var props map[string]json.RawMessage
	var required []string
	if depth >= maxShape || json.Unmarshal(s["properties"], &props) != nil || len(props) == 0 {
		return nil
	}
	if raw, ok := s["required"]; ok && json.Unmarshal(raw, &required) != nil {
		return nil
	}
	out := &shape{kind: record}
	for name, raw := range props {
		if !utf8.ValidString(name) {
			return nil
		}
		out.fields = append(out.fields, field{name, parseShape(raw, depth+1), slices.Contains(required, name)})
	}
	slices.SortFunc(out.fields, func(a, b field) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return out
}

// cedarType returns the type of a shape, without the properties that cannot be mapped.
func (s *shape) cedarType() sast.IsType {
	switch s.kind {
	case whole:
		return sast.Long()
	case flag:
		return sast.Bool()
	case texts:
		return sast.Set(sast.String())
	case wholes:
		return sast.Set(sast.Long())
	case record:
		r := sast.RecordType{}
		for _, f := range s.fields {
			if f.shape != nil {
				r[cedar.String(f.name)] = sast.Attribute{Type: f.shape.cedarType(), Optional: !f.required}
			}
		}
		return r
	}
	return sast.String()
}

// typeSignature returns a text that is equal for equal types. Names are quoted, so that no name can imitate structure.
func (s *shape) typeSignature() string {
	if s.kind != record {
		return [...]string{text: "String", whole: "Long", flag: "Bool", texts: "Set<String>",
			wholes: "Set<Long>"}[s.kind]
	}
	var b strings.Builder
	for _, f := range s.fields {
		if f.shape == nil {
			continue
		}
		b.WriteString(strconv.Quote(f.name))
		if !f.required {
			b.WriteByte('?')
		}
		b.WriteString(":" + f.shape.typeSignature() + " ")
	}
	return "{" + strings.TrimSpace(b.String()) + "}"
}

func (k kind) String() string {
	return [...]string{"no type", "a string of UTF-8", "an integer of 64 bits", "a boolean", "an array of strings",
		"an array of integers", "an object"}[k]
}
