// Notify is a hook for PostToolUse and SessionEnd: it tells a chat that a tool failed or that a session ended, through
// an incoming webhook such as Slack's. NOTIFY_URL is the webhook's address, which is a secret.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"bailey/hook"
)

func main() {
	hook.Main(func(ctx context.Context, e hook.Event) (hook.Answer, error) {
		text := describeEvent(e)
		if text == "" {
			return hook.Answer{}, nil
		}
		return hook.Answer{}, postMessage(ctx, os.Getenv("NOTIFY_URL"), text)
	})
}

// describeEvent describes the event, without the input or output of a tool, because a chat has other readers.
func describeEvent(e hook.Event) string {
	switch e := e.(type) {
	case hook.PostToolUse:
		if e.IsError {
			return fmt.Sprintf("%s failed in session %s", escapeName(e.ToolName), escapeName(string(e.ID)))
		}
	case hook.SessionEnd:
		return fmt.Sprintf("session %s ended", escapeName(string(e.ID)))
	}
	return ""
}

// escapeName escapes a name, so that it is not read as a mention or a link.
func escapeName(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

var client = http.Client{
	Timeout:       5 * time.Second,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// postMessage must not return an error that contains the address.
func postMessage(ctx context.Context, address, text string) error {
	body, err := json.Marshal(map[string]string{"text": text})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil || request.URL.Host == "" {
		return errors.New("NOTIFY_URL is not the address of a webhook; name it in the hook's env and set it")
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	var where *url.Error
	if errors.As(err, &where) {
		err = where.Err
	}
	if err != nil {
		return fmt.Errorf("the webhook was not told: %w", err)
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answered %s", answer.Status)
	}
	return nil
}
