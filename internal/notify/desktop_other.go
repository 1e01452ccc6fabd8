//go:build !linux

package notify

import (
	"context"

	"bailey"
)

// desktop is not there on this platform.
type desktop struct{}

func newDesktop(Config) *desktop { return &desktop{} }

func (*desktop) find() (program, bus string, err error) { return "", "", absent() }

func absent() error {
	return &bailey.Error{Kind: bailey.Unavailable, Message: "this version shows nothing on the desktop of this platform", Hint: "use a webhook, or take desktop out of notify in settings.yaml"}
}

func (d *desktop) send(context.Context, Message) (string, error) {
	_, _, err := d.find()
	return "", err
}
