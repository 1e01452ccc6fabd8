package apitype

import (
	"fmt"
	"strings"

	"bailey"
	"bailey/internal/localapi"
)

// ParseInputs parses key=value pairs. It returns an error if a key is given twice.
func ParseInputs(pairs []string) (map[string]any, error) {
	input := map[string]any{}
	for _, pair := range pairs {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%q is not key=value", pair), Hint: "write -i key=value"}
		}
		if _, twice := input[key]; twice {
			return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("input %s is given twice", key), Hint: "give each input once; a list is one JSON array"}
		}
		input[key] = value
	}
	return input, nil
}

// ReplyCode is the only mapping from the result of a call to an exit code.
func ReplyCode(r localapi.Reply) int {
	switch {
	case r.OK:
		return ExitOK
	case r.ApprovalRequired:
		return ExitInput
	}
	switch r.Error {
	case bailey.Invalid:
		return ExitInput
	case bailey.ToolFailed:
		return ExitTool
	case bailey.NotFound:
		return exitNoMatch
	case bailey.Blocked:
		return exitBlocked
	}
	return ExitDenied
}

func RuleNames(rules []bailey.Rule) string {
	if len(rules) == 0 {
		return "no rule"
	}
	var names []string
	for _, r := range rules {
		names = append(names, fmt.Sprintf("%s (%s)", r.ID, r.Source))
	}
	return strings.Join(names, ", ")
}
