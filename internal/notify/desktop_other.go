//go:build !linux

package notify

import (
	"context"

	"bailey"
)

// desktop is not available on this platform.
type desktop struct{}

func newDesktop(Config) *desktop { return &desktop{} }

// missing returns why nothing can be shown.
func (*desktop) missing() string { return absent.Error() }

func (*desktop) send(context.Context, Message) (string, error) { return "", absent }

var absent = &bailey.Error{Kind: bailey.Unavailable, Message: "this version shows nothing on the desktop of this platform", Hint: "use a webhook, or take desktop out of notify in settings.yaml"}
