//go:build !linux

package notify

import (
	"context"

	"bailey"
)

// desktop is not available on this platform.
type desktop struct{}

func newDesktop(Config) *desktop { return &desktop{} }

// missingReason returns why nothing can be shown.
func (*desktop) missingReason() string { return errNoDesktop.Error() }

func (*desktop) sendMessage(context.Context, Message) (string, error) { return "", errNoDesktop }

var errNoDesktop = &bailey.Error{Kind: bailey.Unavailable,
	Message: "this version does not support desktop notifications on this platform", Hint: "use a webhook, or remove desktop from notify in settings.yaml"}
