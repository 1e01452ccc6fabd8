package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"bailey"
	"bailey/internal/gateway"
	"bailey/internal/localapi"
	"bailey/internal/localapi/apitype"
	"bailey/internal/notify"
	"bailey/internal/safefile"
)

// notifyKeyName is the file of the home with the key that signs the messages to a webhook.
const notifyKeyName = "notify.key"

// notifySettings returns the notification channels that the current settings enable.
func (s *Server) notifySettings() notify.Settings {
	n := s.settings.Applied().Notify
	return notify.Settings{Desktop: n.Desktop, Webhook: n.URL}
}

// readNotifyKey reads the key from its file for each use, so that a replaced key signs no more messages. It refuses a
// file that other users can read: they could imitate this gateway.
func readNotifyKey(home localapi.Home) (notify.Key, error) {
	name := home.Path(notifyKeyName)
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notify.Key{}, bailey.NotFound.New("there is no key to sign with for the webhook",
			"run bailey notify key to create one")
	case err == nil && (!info.Mode().IsRegular() || safefile.Wide(info)):
		return notify.Key{}, bailey.Denied.New(notifyKeyName+" is not a file that only its owner can read",
			"run bailey notify key --new to create another")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return notify.Key{}, bailey.Unavailable.Wrap(err, notifyKeyName+" cannot be read",
			"check its owner and mode")
	}
	return notify.ParseKey(text)
}

// notifyEvent is the data of the ledger entries notify.key and notify.test.
type notifyEvent struct {
	Fingerprint string            `json:"fingerprint,omitempty"` // of the new key
	Ways        []notify.Result   `json:"ways,omitempty"`
	Operator    localapi.Operator `json:"operator,omitempty"`
	Person      string            `json:"person,omitempty"`
}

// testNotifications sends a test message through every enabled channel.
func (s *Server) testNotifications(ctx context.Context, _ localapi.None,
	from gateway.Caller) (apitype.NotifyTested, error) {
	out := apitype.NotifyTested{OK: true, Ways: s.sender.Try(ctx)}
	for _, r := range out.Ways {
		out.OK = out.OK && r.OK
	}
	return out, s.scribe.recordEvent(context.WithoutCancel(ctx), apitype.NotifyTestEvent,
		notifyEvent{Ways: out.Ways, Operator: from.Operator, Person: from.Principal.Person})
}

// makeNotifyKey creates the key if it does not exist or a new one is requested. The ledger contains only its
// fingerprint.
func (s *Server) makeNotifyKey(ctx context.Context, r apitype.NotifyKeyRequest,
	from gateway.Caller) (apitype.NotifyKeyed, error) {
	out := apitype.NotifyKeyed{OK: true, File: s.home.Path(notifyKeyName)}
	key, err := readNotifyKey(s.home)
	switch {
	case r.New || errors.Is(err, bailey.NotFound):
	case err != nil:
		return out, err
	default:
		out.Fingerprint = key.Fingerprint()
		return out, nil
	}
	key = notify.NewKey()
	out.Made, out.Fingerprint = true, key.Fingerprint()
	return out, safefile.Put(string(s.home), notifyKeyName, fmt.Appendln(nil, key.Text().Reveal()), 0o600, func() error {
		return s.scribe.recordEvent(ctx, apitype.NotifyKeyEvent,
			notifyEvent{Fingerprint: out.Fingerprint, Operator: from.Operator, Person: from.Principal.Person})
	})
}

// notifyState returns the state of the notifications, for the status.
func (s *Server) notifyState() *apitype.NotifyStatus {
	out := &apitype.NotifyStatus{Ways: s.sender.States(), Asks: s.Rules.Engine().Asks()}
	if s.notifySettings().Webhook.Reveal() != "" {
		if _, err := readNotifyKey(s.home); err != nil {
			out.Fault = apitype.WithHint(err)
		}
	}
	return out
}
