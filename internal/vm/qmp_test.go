//go:build linux

package vm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
)

const greeting = `{"QMP":{"version":{},"capabilities":[]}}` + "\n"

// falseMonitor serves a monitor that answers what is given, each text after a line of the client; the first at once.
func falseMonitor(t *testing.T, texts ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), strings.Repeat("long", 30), monitorFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := listenSocket(path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		t.Cleanup(func() { c.Close() })
		lines := bufio.NewScanner(c)
		for i, text := range texts {
			fmt.Fprint(c, text)
			if i < 2 || i < len(texts)-1 {
				lines.Scan()
			}
		}
		if len(texts) > 2 {
			c.Close()
		}
	}()
	return path
}

func TestMonitor(t *testing.T) {
	path := falseMonitor(t, greeting, `{"event":"RESUME","timestamp":{}}`+"\n"+`{"return":{},"id":"1"}`+"\n",
		`{"return":{"status":"running"},"id":"2"}`+"\n", `{"error":{"class":"GenericError","desc":"bad \u001b[1m"},"id":"3"}`+"\n",
		`{"return":{},"id":"4"}`+"\n")
	m, err := dialMonitor(t.Context(), path, patience)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Status string }
	if err := m.executeCommand(t.Context(), "query-status", nil, &answer); err != nil || answer.Status != "running" {
		t.Errorf("%+v, %v", answer, err)
	}
	if err := m.executeCommand(t.Context(), "cont", nil, nil); err == nil || err.Error() != "cont: QEMU refused it: bad ?[1m" {
		t.Errorf("a refusal: %v", err)
	}
	if err := m.executeCommand(t.Context(), "stop", nil, nil); err != nil {
		t.Errorf("after a refusal: %v", err)
	}
}

// TestMonitorHostile connects to monitors that do not follow the protocol.
func TestMonitorHostile(t *testing.T) {
	answered := `{"return":{},"id":"1"}` + "\n"
	for name, c := range map[string]struct {
		texts []string
		want  string
	}{
		"no JSON":         {[]string{"hello\n"}, "not valid"},
		"no greeting":     {[]string{`{"return":{}}` + "\n"}, "did not greet"},
		"duplicate key":   {[]string{`{"QMP":{},"QMP":{}}` + "\n"}, "not valid"},
		"two kinds":       {[]string{greeting, `{"return":{},"error":{},"id":"1"}` + "\n"}, "2 kinds"},
		"no kind":         {[]string{greeting, `{"id":"1"}` + "\n"}, "0 kinds"},
		"an array":        {[]string{greeting, `[]` + "\n"}, "not an object"},
		"long":            {[]string{strings.Repeat("x", maxMessage+1)}, "more than 65536 bytes"},
		"deep":            {[]string{strings.Repeat("[", 1000) + "\n"}, "not valid"},
		"another's":       {[]string{greeting, `{"return":{},"id":"7"}` + "\n"}, "another command"},
		"greets twice":    {[]string{greeting, greeting}, "another command"},
		"events":          {[]string{greeting, strings.Repeat(`{"event":"A"}`+"\n", maxEvents)}, "no answer"},
		"nameless event":  {[]string{greeting, `{"event":""}` + "\n"}, "no name"},
		"truncated":       {[]string{greeting, answered, `{"ret`}, "EOF"},
		"another result":  {[]string{greeting, answered, `{"return":[1],"id":"2"}` + "\n"}, "something else"},
		"never answers":   {[]string{greeting, answered, ""}, "did not answer"},
		"endless message": {[]string{greeting, answered, strings.Repeat("x", maxMessage+1)}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wait := patience
			if name == "never answers" {
				wait, c.texts = 20*time.Millisecond, c.texts[:2]
			}
			m, err := dialMonitor(t.Context(), falseMonitor(t, c.texts...), patience)
			if err == nil {
				m.wait = wait
				var answer struct{ Status string }
				err = m.executeCommand(t.Context(), "query-status", nil, &answer)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestMonitorCancelled(t *testing.T) {
	m, err := dialMonitor(t.Context(), falseMonitor(t, greeting, `{"return":{},"id":"1"}`+"\n"), patience)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(bailey.Denied.New("enough", ""))
	for range 2 { // the connection stays unusable, because the answer may come later
		if err := m.executeCommand(ctx, "stop", nil, nil); err == nil || !strings.Contains(err.Error(), "enough") {
			t.Error(err)
		}
		ctx = t.Context()
	}
}

// FuzzQMP lets QEMU send any bytes.
func FuzzQMP(f *testing.F) {
	for _, text := range []string{greeting, `{"return":{},"id":"1"}` + "\n", `{"event":"STOP"}` + "\n" + `{"return":1,"id":"1"}`,
		`{"error":{"class":"a","desc":"b"},"id":"1"}` + "\n", "{\"return\":\"\xff\"}\n", "[[[[", `{"id":1,"return":{}}` + "\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReaderSize(strings.NewReader(string(text)), 4096)
		answer, err := readAnswer(r, "1")
		if (answer == nil) == (err == nil) {
			t.Errorf("answer %q with error %v", answer, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("the error %q has control characters", err)
		}
	})
}
