package pack

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"
)

// compileValidator compiles raw with the JSON Schema library. Values must pass both the library and [rule]. The library knows
// every keyword, but stops at the first error and repeats values of any length. The rules know fewer keywords, but
// their messages are suitable for callers.
func compileValidator(raw []byte) (func(any) error, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		return nil, err
	}
	return func(v any) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%v", p)
			}
		}()
		return resolved.Validate(toGoNumbers(v))
	}, nil
}

// toGoNumbers copies v with Go number types, because the library treats a json.Number as a string.
func toGoNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = toGoNumbers(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = toGoNumbers(e)
		}
		return l
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			return string(v)
		}
		return f
	}
	return v
}
