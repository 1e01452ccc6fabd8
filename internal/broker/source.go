package broker

import (
	"fmt"
	"os"

	"bailey"
)

// Source is where a credential's value comes from: [Env] or [Literal].
type Source interface {
	// value is asked at every loan, so that a source can change. Its error never holds the value.
	value() (string, error)
}

// Env reads the variable Name of the gateway's own environment.
type Env struct{ Name string }

func (e Env) value() (string, error) {
	text, ok := os.LookupEnv(e.Name)
	switch {
	case !ok:
		return "", e.lacks("is not set")
	case text == "":
		return "", e.lacks("is empty")
	}
	return text, nil
}

func (e Env) lacks(state string) error {
	return &bailey.Error{
		Kind:    bailey.Unavailable,
		Message: fmt.Sprintf("variable %q of the gateway's environment %s", e.Name, state),
		Hint:    fmt.Sprintf("a gateway that a call starts inherits no such variable: bailey gateway stop, then run bailey gateway with %s set", e.Name),
	}
}

// Literal is a value that stands in the configuration itself. It prints as *** like any secret.
type Literal struct{ bailey.Secret }

func (l Literal) value() (string, error) { return l.Reveal(), nil }
