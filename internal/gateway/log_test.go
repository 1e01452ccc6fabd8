package gateway

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"bailey/internal/redact"
)

// The secrets are composed here, so that a secret scanner finds none in this file.
var (
	logPassword = "hunter" + "7Wq9zK2"
	logKey      = "AKIA" + "Q3EGRZ7XJ5TVBN2M"
	logAddress  = "10.93.7.41"
)

// speaking is an error whose text contains secrets.
type speaking struct{ text string }

func (s speaking) Error() string { return s.text }

type sulking struct{}

func (sulking) LogValue() slog.Value { panic("password=" + logPassword) }

func TestLogIsRedacted(t *testing.T) {
	said := "password=" + logPassword + " of " + logAddress + " with " + logKey
	block := "-----BEGIN PRIVATE " + "KEY-----\n" + strings.Repeat(base64.StdEncoding.EncodeToString([]byte(strings.Repeat(logPassword, 3)))[:48]+"\n", 4) + "-----END PRIVATE " + "KEY-----\n"
	for name, write := range map[string]func(*slog.Logger){
		"the message":   func(l *slog.Logger) { l.Error(said) },
		"a text":        func(l *slog.Logger) { l.Error("m", "panic", said) },
		"an error":      func(l *slog.Logger) { l.Error("m", "err", fmt.Errorf("it said %w", speaking{said})) },
		"a joined one":  func(l *slog.Logger) { l.Error("m", "err", errors.Join(errors.New("first"), errors.New(said))) },
		"any value":     func(l *slog.Logger) { l.Error("m", "v", map[string]any{"x": []string{said}}) },
		"bytes":         func(l *slog.Logger) { l.Error("m", "v", []byte(said)) },
		"a group":       func(l *slog.Logger) { l.Error("m", slog.Group("g", "v", said)) },
		"with":          func(l *slog.Logger) { l.With("v", said).WithGroup("g").Error("m", "w", said) },
		"quotes":        func(l *slog.Logger) { l.Error("m", "v", `{"password": "`+logPassword+`"}`+"\n"+said) },
		"a key":         func(l *slog.Logger) { l.Error("m", "v", block, "stack", "goroutine 1\n"+block) },
		"what panics":   func(l *slog.Logger) { l.Error(said, "v", sulking{}) },
		"an open group": func(l *slog.Logger) { l.Error("m", "", slog.GroupValue(slog.String("v", said))) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			write(slog.New(NewRedaction().Log(slog.NewTextHandler(&out, nil))))
			for _, secret := range []string{logPassword, logAddress, logKey, block[40:80]} {
				if strings.Contains(out.String(), secret) {
					t.Errorf("it wrote %s", out.String())
				}
			}
			if strings.Count(out.String(), "level=ERROR") != 1 || !strings.Contains(out.String(), "REDACTED") {
				t.Errorf("a record is lost: %q", out.String())
			}
		})
	}
}

// TestLogStaysReadable checks that the data that operators look for stays readable, and that each line counts its
// tokens from 1.
func TestLogStaysReadable(t *testing.T) {
	var out bytes.Buffer
	r := NewRedaction()
	l := slog.New(r.Log(slog.NewTextHandler(&out, nil)))
	l.Info("cannot end a session", "session", "s-01KA5VQ2V1M3ZJ8R6Y4T0XWBND", "receipt", "r-01KA5VQ2V1M3ZJ8R6Y4T0XWBNE", "by", 4711, "why", nil)
	if want := `msg="cannot end a session" session=s-01KA5VQ2V1M3ZJ8R6Y4T0XWBND receipt=r-01KA5VQ2V1M3ZJ8R6Y4T0XWBNE by=4711 why=<nil>` + "\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("%s, want %s", out.String(), want)
	}
	out.Reset()
	l.Info("first", "from", logAddress)
	l.Info("second", "from", "10.93.7.42")
	if strings.Count(out.String(), "from=[REDACTED_IPV4_1]") != 2 {
		t.Errorf("tokens are counted on: %s", out.String())
	}
	if err := r.Use(redact.Config{Patterns: []redact.Pattern{{Category: "TICKET", Regexp: "TCK-[0-9]+"}}}); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	l.Info("TCK-12 is open")
	fmt.Fprintf(r.Lines(&out), "TCK-12 %s\n", logAddress)
	if got := out.String(); strings.Contains(got, "TCK") || !strings.HasSuffix(got, "[REDACTED_TICKET_1] [REDACTED_IPV4_1]\n") {
		t.Error(got)
	}
}

// TestLogOutlivesItsRedaction checks that a record is written even if redaction panics, because the log is used when
// something has failed.
func TestLogOutlivesItsRedaction(t *testing.T) {
	var out bytes.Buffer
	var r *Redaction // any use of it panics
	slog.New(r.Log(slog.NewTextHandler(&out, nil))).Error("of "+logAddress, "from", logAddress)
	if got := out.String(); !strings.Contains(got, "level=ERROR") || strings.Contains(got, logAddress) {
		t.Errorf("%q", got)
	}
}

// Use puts rules into force, as settings do.
func (r *Redaction) Use(c redact.Config) error {
	rules, err := redact.Compile(c)
	if err == nil {
		r.inForce.Store(rules)
	}
	return err
}
