// Package telemetry counts how many servers are used, and with which sizes. It does nothing unless the build injects a
// key, and then only until it is switched off. A report has the counts of [Facts], the version, the operating system and
// the architecture, and never a command, a content, a name or an address.
package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"time"
)

// key and endpoint are set by the build of a release: -ldflags "-X bailey/internal/telemetry.key=… -X
// bailey/internal/telemetry.endpoint=https://…". Without both, nothing is sent.
var key, endpoint string

// Facts is what a report says about a server.
type Facts struct {
	Version       string `json:"version"`
	Database      string `json:"database"` // sqlite or postgres
	Accounts      int    `json:"accounts"`
	Organisations int    `json:"organisations"`
	Hosts         int    `json:"hosts"`
}

// A Reporter sends reports. The zero Reporter sends none.
type Reporter struct {
	Key, Endpoint string
	// ID is random, so that two reports of a server count once.
	ID string
}

// NewReporter returns the reporter of this build.
func NewReporter() *Reporter { return &Reporter{Key: key, Endpoint: endpoint} }

// WhyDisabled returns why nothing is sent, or "". setting is telemetry.enable_anonymous_usage of the configuration.
func (r *Reporter) WhyDisabled(setting bool, getenv func(string) string) string {
	if r.Key == "" || r.Endpoint == "" {
		return "this build has no key"
	}
	if !setting {
		return "telemetry.enable_anonymous_usage is false"
	}
	if value := getenv("ENABLE_ANONYMOUS_USAGE"); value != "" {
		if on, err := strconv.ParseBool(value); err != nil || !on {
			return "ENABLE_ANONYMOUS_USAGE is " + value
		}
	}
	return ""
}

// Payload returns exactly the bytes that a report has.
func (r *Reporter) Payload(f Facts) ([]byte, error) {
	return json.Marshal(struct {
		Key        string `json:"api_key"`
		Event      string `json:"event"`
		ID         string `json:"distinct_id"`
		Properties any    `json:"properties"`
	}{r.Key, "server", r.ID, struct {
		IP      string `json:"$ip"` // so that the receiver stores none
		Profile bool   `json:"$process_person_profile"`
		ID      string `json:"telemetry_id"`
		OS      string `json:"os"`
		Arch    string `json:"arch"`
		Facts
	}{"0.0.0.0", false, r.ID, system, runtime.GOARCH, f}})
}

// Send sends a report.
func (r *Reporter) Send(ctx context.Context, f Facts) error {
	body, err := r.Payload(f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "bailey-server")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the report was answered with %s", resp.Status)
	}
	return nil
}

// Run sends a report each day until ctx ends, the first after an hour. A report that fails is not repeated.
func (r *Reporter) Run(ctx context.Context, facts func(context.Context) (Facts, error), failed func(error)) {
	wait := time.NewTimer(time.Hour)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		f, err := facts(ctx)
		if err == nil {
			err = r.Send(ctx, f)
		}
		if err != nil {
			failed(err)
		}
		wait.Reset(24 * time.Hour)
	}
}
