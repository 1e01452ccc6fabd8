package telemetry_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"bailey/internal/telemetry"
)

func TestWhyDisabled(t *testing.T) {
	t.Parallel()
	built := &telemetry.Reporter{Key: "k", Endpoint: "https://telemetry.example"}
	for _, c := range []struct {
		r       *telemetry.Reporter
		setting bool
		env     string
		sends   bool
	}{{telemetry.NewReporter(), true, "", false}, {telemetry.NewReporter(), true, "true", false},
		{&telemetry.Reporter{Key: "k"}, true, "", false}, {built, true, "", true}, {built, true, "true", true},
		{built, false, "", false}, {built, false, "true", false}, {built, true, "false", false}, {built, true, "0", false},
		{built, true, "nonsense", false}} {
		why := c.r.WhyDisabled(c.setting, func(string) string { return c.env })
		if (why == "") != c.sends {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestPayload: what is sent is what is printed, and has these fields and no other.
func TestPayload(t *testing.T) {
	t.Parallel()
	var got []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got, _ = io.ReadAll(r.Body) }))
	defer s.Close()
	r := &telemetry.Reporter{Key: "k", Endpoint: s.URL, ID: "x"}
	f := telemetry.Facts{Version: "1", Database: "sqlite", Accounts: 2, Organisations: 1, Hosts: 3}
	want, err := r.Payload(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Send(t.Context(), f); err != nil || string(got) != string(want) {
		t.Errorf("sent %s, %v, and printed %s", got, err, want)
	}
	var payload struct{ Properties map[string]any }
	if err := json.Unmarshal(want, &payload); err != nil || payload.Properties["$ip"] != "0.0.0.0" {
		t.Fatal(payload, err)
	}
	for name := range payload.Properties {
		if !slices.Contains([]string{"$ip", "$process_person_profile", "telemetry_id", "os", "arch", "version", "database",
			"accounts", "organisations", "hosts"}, name) {
			t.Errorf("the payload has %q", name)
		}
	}
}

func TestRunEachDay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Hour)
		defer cancel()
		asked, failures := 0, 0
		r := &telemetry.Reporter{Endpoint: "not a URL:"}
		r.Run(ctx, func(context.Context) (telemetry.Facts, error) { asked++; return telemetry.Facts{}, nil },
			func(error) { failures++ })
		if asked != 3 || failures != 3 {
			t.Errorf("%d reports in 50 hours, %d failed", asked, failures)
		}
	})
}
