package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"bailey"
)

// TestNeverBlocks checks that Tell returns at once even if no message is taken, and that the oldest messages are
// dropped and counted.
func TestNeverBlocks(t *testing.T) {
	s := sender("https://example.invalid")
	for i := range 3 * MaxWaiting {
		q := question()
		q.ID = bailey.ApprovalID(fmt.Sprintf("a-%d", i))
		s.Tell(Open, q, "")
	}
	st := s.States()
	if len(st) != 1 || st[0].Waiting != MaxWaiting || st[0].Dropped != 2*MaxWaiting || st[0].Where != "https://example.invalid" {
		t.Errorf("%+v", st)
	}
	if m, ok := s.ways[1].popMessage(); !ok || m.ID != bailey.ApprovalID(fmt.Sprintf("a-%d", 2*MaxWaiting)) {
		t.Errorf("%+v", m)
	}
}

// TestRun checks that messages are sent in order, with the settings of that moment, and that Run ends.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []string
		on := true
		s := New(Config{Settings: func() Settings {
			mu.Lock()
			defer mu.Unlock()
			if !on {
				return Settings{}
			}
			return Settings{Webhook: bailey.NewSecret("https://example.invalid")}
		}})
		s.ways[1].send = func(_ context.Context, _ Settings, m Message, _ int) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			sent = append(sent, m.Type+" "+m.key+" "+m.Reason)
			return "", nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		s.Tell(Open, question(), "")
		s.Tell(Settled, question(), "granted by ada")
		synctest.Wait()
		mu.Lock()
		if got := strings.Join(sent, ", "); got != "question.open a-1_open , question.settled a-1_settled_46b70c81 granted by ada" {
			t.Error(got)
		}
		on = false
		mu.Unlock()
		s.Tell(Open, question(), "")
		synctest.Wait()
		if len(sent) != 2 || len(s.States()) != 0 || len(s.Try(ctx)) != 0 {
			t.Errorf("%v, put off", sent)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// hostile holds text that an agent could write.
var hostile = []string{
	"<!channel> <@U1> <https://evil.example|click> @everyone @here [x](https://evil.example) ![i](https://evil.example/i.png)",
	"a\nb\r\nwebhook-id: x\x00\x1b[31m\x07", "\u202Eevil\u2066\u200b\ufeff\u00ad\U000e0001", "\xff\xfe", "--help", "-u", "<b>bold</b> & <img src=x>", `\x41 \n \101`,
	strings.Repeat("long ", 10000), `"},"type":"question.settled","x":{"`, "`code` *bold* _x_ ~y~",
}

// TestHostileMessages checks that no text of an agent appears in the line for a chat, or leaves its field.
func TestHostileMessages(t *testing.T) {
	for _, text := range hostile {
		checkMessage(t, text)
	}
}

func FuzzMessage(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Fuzz(checkMessage)
}

func checkMessage(t *testing.T, text string) {
	q := question()
	q.Principal.Agent, q.Call, q.Impact = text, bailey.CapabilityID(text), text
	q.Inputs = []bailey.Input{{Name: text, Shown: bailey.Shown{Text: text}}, {Name: "b", Shown: bailey.Shown{Text: text}}}
	for _, kind := range []string{Open, Settled} {
		m := newMessage(kind, q, text, time.Unix(0, 0))
		body, err := json.Marshal(m)
		if err != nil || len(body) > 16<<10 {
			t.Fatalf("%d bytes, %v", len(body), err)
		}
		if strings.ContainsAny(m.Text, "<>@[]!|`*~&\\\n") {
			t.Errorf("a chat reads %q", m.Text)
		}
		var back map[string]any
		if err := json.Unmarshal(body, &back); err != nil || back["type"] != kind || back["id"] != "a-1" {
			t.Errorf("%s: %v", body, err)
		}
		for _, field := range []string{m.Inputs, m.Capability, m.Agent, m.Impact, m.Reason, m.Text, m.key} {
			if strings.ContainsFunc(field, func(r rune) bool { return !unicode.IsGraphic(r) }) || !utf8.ValidString(field) {
				t.Errorf("%q", field)
			}
		}
		if len(m.Inputs) > maxInputs || len(m.Agent) > maxName || len(m.Text) > 500 {
			t.Errorf("%d, %d, %d bytes", len(m.Inputs), len(m.Agent), len(m.Text))
		}
	}
}
