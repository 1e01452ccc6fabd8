package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
	OpaqueName = "_opaque" // attribute with the names that were not mapped; a property cannot replace it
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
	s.fields = slices.DeleteFunc(s.fields, func(f field) bool { return f.name == OpaqueName })
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

// inputRecord converts the input of a call to context.input.
func inputRecord(s *shape, in map[string]any) (cedar.Record, error) {
	var unseen []cedar.Value
	m, err := s.convertFields("", in, &unseen)
	if err != nil {
		return cedar.Record{}, err
	}
	m[OpaqueName] = cedar.Set{}
	if len(unseen) > 0 {
		m[OpaqueName] = cedar.NewSet(unseen...)
	}
	return cedar.NewRecord(m), nil
}

// convertFields converts the fields of a record and collects the dotted names of values that no rule can see.
func (s *shape) convertFields(path string, in map[string]any, unseen *[]cedar.Value) (cedar.RecordMap, error) {
	m := make(cedar.RecordMap, len(s.fields)+1)
	mapped := 0
	for _, f := range s.fields {
		v, ok := in[f.name]
		switch {
		case !ok && f.required:
			return nil, fmt.Errorf("input %s%s is missing", path, f.name)
		case !ok || f.shape == nil:
			continue
		}
		value, err := f.shape.convertValue(path+f.name, v, unseen)
		if err != nil {
			return nil, err
		}
		m[cedar.String(f.name)] = value
		mapped++
	}
	if mapped == len(in) {
		return m, nil
	}
	for name := range in {
		if _, ok := m[cedar.String(name)]; !ok {
			*unseen = append(*unseen, cedar.String(path+name))
		}
	}
	return m, nil
}

func (s *shape) convertValue(path string, v any, unseen *[]cedar.Value) (cedar.Value, error) {
	switch s.kind {
	case text:
		if t, ok := v.(string); ok && utf8.ValidString(t) {
			return cedar.String(t), nil
		}
	case whole:
		if n, ok := parseExactInt(v); ok {
			return cedar.Long(n), nil
		}
	case flag:
		if b, ok := v.(bool); ok {
			return cedar.Boolean(b), nil
		}
	case texts:
		return s.convertList(path, v, &shape{kind: text})
	case wholes:
		return s.convertList(path, v, &shape{kind: whole})
	case record:
		if in, ok := v.(map[string]any); ok {
			m, err := s.convertFields(path+".", in, unseen)
			return cedar.NewRecord(m), err
		}
	}
	return nil, fmt.Errorf("input %s does not fit %s", path, s.kind)
}

func (s *shape) convertList(path string, v any, elem *shape) (cedar.Value, error) {
	in, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("input %s does not fit %s", path, s.kind)
	}
	values := make([]cedar.Value, len(in))
	for i, e := range in {
		var err error
		if values[i], err = elem.convertValue(path+"["+strconv.Itoa(i)+"]", e, nil); err != nil {
			return nil, err
		}
	}
	return cedar.NewSet(values...), nil
}

// parseExactInt parses an integer. It refuses a number with a fraction, with an exponent or beyond 64 bits and does not
// round it, because the tool would otherwise get other digits than the rule.
func parseExactInt(v any) (int64, bool) {
	switch n := v.(type) {
	case json.Number:
		i, err := strconv.ParseInt(string(n), 10, 64)
		return i, err == nil && strconv.FormatInt(i, 10) == string(n)
	case int:
		return int64(n), true
	case int64:
		return n, true
	case float64:
		const exact = 1 << 53
		return int64(n), n == math.Trunc(n) && math.Abs(n) <= exact
	}
	return 0, false
}
