package apitype

import (
	"fmt"
	"strings"

	"bailey/internal/notify"
)

// Kinds of ledger entries for a test of the notifications and for a new key. Their commands have the same names.
const NotifyTestEvent, NotifyKeyEvent = "notify.test", "notify.key"

// NotifyTested is the result of a test, as JSON.
type NotifyTested struct {
	OK   bool            `json:"ok"`
	Ways []notify.Result `json:"ways"`
}

// NotifyKeyRequest asks for the key that signs the messages to a webhook. It is created if there is none.
type NotifyKeyRequest struct {
	New bool `json:"new,omitempty"` // create one that replaces the present key
}

// NotifyKeyed describes the key that signs the messages to a webhook. The key itself is only in the file.
type NotifyKeyed struct {
	OK          bool   `json:"ok"`
	Made        bool   `json:"made"`
	File        string `json:"file"`
	Fingerprint string `json:"fingerprint"`
}

// NotifyStatus is the state of the notification channels, and the number of rules that can ask.
type NotifyStatus struct {
	Ways  []notify.State `json:"ways"`
	Asks  int            `json:"askingRules"`     // of the policy itself, for callable capabilities
	Fault string         `json:"fault,omitempty"` // why the webhook cannot be called
}

// Summary returns the counts and the last problem of each channel, on one line. The caller must escape it for a
// terminal.
func (n *NotifyStatus) Summary() string {
	var list []string
	for _, w := range n.Ways {
		text := strings.TrimSpace(w.Way+" "+w.Where) + fmt.Sprintf(": %d sent", w.Sent)
		for _, c := range []struct {
			n    uint64
			what string
		}{{w.Failed, "failed"}, {w.Dropped, "dropped"}, {uint64(w.Waiting), "waiting"}} {
			if c.n > 0 {
				text += fmt.Sprintf(", %d %s", c.n, c.what)
			}
		}
		for _, why := range []string{w.Absent, w.Last} {
			if why != "" {
				text += " (" + why + ")"
				break
			}
		}
		list = append(list, text)
	}
	if n.Fault != "" {
		list = append(list, n.Fault)
	}
	if len(list) == 0 {
		list = append(list, "nobody is told of questions")
	}
	return strings.Join(list, "; ")
}
