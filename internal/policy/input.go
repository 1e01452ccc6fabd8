package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/cedar-policy/cedar-go"
)

// inputRecord converts the input of a call to context.input.
func inputRecord(s *shape, in map[string]any) (cedar.Record, error) {
	var unseen []cedar.Value
	m, err := s.convertFields("", in, &unseen)
	if err != nil {
		return cedar.Record{}, err
	}
	m[opaqueName] = cedar.Set{}
	if len(unseen) > 0 {
		m[opaqueName] = cedar.NewSet(unseen...)
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

// parseExactInt parses an integer. It refuses a number with a fraction, with an exponent or beyond 64 bits and does not round
// it, because the tool would otherwise get other digits than the rule.
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
