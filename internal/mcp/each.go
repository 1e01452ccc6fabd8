package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"bailey"
)

// Each lets an agent give several values for one input of a tool. The gate makes one call for each value, at the same
// time, so that each is decided and leaves a receipt.
type Each struct {
	Input, List string // the input, and the argument that replaces it: for example host and hosts
	About       string // describes List to agents
	// Expand replaces selectors by the values that they stand for.
	Expand func([]string) ([]string, error)
}

// Limits of the calls of one request.
const (
	maxEach      = 32
	parallelEach = 8
)

// addList returns an input schema with the list beside the input, neither of which is required. The gate checks the
// arguments of each call against the real schema.
func (e *Each) addList(schema json.RawMessage) (json.RawMessage, error) {
	var top map[string]any
	if err := json.Unmarshal(schema, &top); err != nil {
		return nil, err
	}
	properties, ok := top["properties"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the schema has no properties")
	}
	properties[e.List] = map[string]any{"type": "array", "description": e.About, "minItems": 1, "maxItems": maxEach,
		"items": map[string]any{"type": "string"}}
	var required []any
	if list, ok := top["required"].([]any); ok {
		for _, name := range list {
			if name != e.Input {
				required = append(required, name)
			}
		}
	}
	if delete(top, "required"); len(required) > 0 {
		top["required"] = required
	}
	return json.Marshal(top)
}

// splitCalls returns one call for each value of the list, with its value. If the arguments have no list, it returns nil.
func (e *Each) splitCalls(call bailey.Call) (values []string, calls []bailey.Call, err error) {
	list, ok := call.Input[e.List]
	if !ok {
		return nil, nil, nil
	}
	items, ok := list.([]any)
	if _, both := call.Input[e.Input]; !ok || both || len(items) == 0 {
		return nil, nil, invalidParams(fmt.Sprintf("give either %s, or %s as a list of names", e.Input, e.List))
	}
	for _, item := range items {
		text, ok := item.(string)
		if !ok {
			return nil, nil, invalidParams(e.List + " must be a list of names")
		}
		values = append(values, text)
	}
	if values, err = e.Expand(values); err != nil {
		return nil, nil, invalidParams(err.Error())
	}
	if len(values) > maxEach {
		return nil, nil, invalidParams(fmt.Sprintf("%s stands for %d values, more than %d", e.List, len(values), maxEach))
	}
	for _, v := range values {
		one := call
		one.Input = maps.Clone(call.Input)
		delete(one.Input, e.List)
		one.Input[e.Input] = v
		one.Patience, one.Asked = 0, nil // a call that asks a person is pending; it is resumed by itself
		calls = append(calls, one)
	}
	return values, calls, nil
}

// runEach makes a call for each value and returns their answers as one, in the order of the values.
func (w *waitingCall) runEach(ctx context.Context, values []string, calls []bailey.Call) sdk.Result {
	answers := make([]*answer, len(calls))
	limit := make(chan struct{}, parallelEach)
	var wg sync.WaitGroup
	for i, call := range calls {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			r := w.Gate.Do(ctx, call)
			answers[i] = renderResult(r, w.openQuestion(ctx, r))
		})
	}
	wg.Wait()
	out := &answer{}
	all := make([]any, len(answers))
	for i, a := range answers {
		out.Content = append(out.Content, textContent("== "+values[i]))
		out.Content = append(out.Content, a.Content...)
		out.IsError = out.IsError || a.IsError
		all[i] = a.Meta[ResultKey]
	}
	out.Meta = sdk.Meta{ResultKey: map[string]any{"ok": !out.IsError, "results": all}}
	if newer, _ := elicitationSupport(w.req); newer {
		out.Type = "complete"
	}
	return out
}

// eachOf returns how a call is made for several values, or nil if it has only one.
func (s *session) eachOf(call bailey.Call) *Each {
	s.mu.Lock()
	each := s.each[call.Capability]
	s.mu.Unlock()
	if each == nil {
		return nil
	}
	if _, several := call.Input[each.List]; !several {
		return nil
	}
	return each
}
