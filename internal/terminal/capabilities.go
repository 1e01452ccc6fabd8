package terminal

import (
	"encoding/json"
)

func Indent(raw json.RawMessage) string {
	b, err := json.MarshalIndent(raw, "", "  ")
	if err != nil {
		return string(raw)
	}
	return string(b)
}

func IndentValue(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return JSON(Indent(b))
}
