package process

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"bailey/internal/store"
	"bailey/internal/telemetry"
)

// startTelemetry sends a report each day, if this build and the configuration do that. Otherwise it does nothing, and
// makes no identifier.
func (p *program) startTelemetry(ctx context.Context, s settings, db *store.Store, log *slog.Logger) error {
	r := telemetry.NewReporter()
	if r.WhyDisabled(!s.noTelemetry, p.getenv) != "" {
		return nil
	}
	var err error
	if r.ID, err = db.TelemetryID(ctx); err != nil {
		return err
	}
	log.Info("anonymous counts are sent each day; bailey-server telemetry show prints them, and " +
		"telemetry.enable_anonymous_usage: false ends it")
	go r.Run(ctx, func(ctx context.Context) (telemetry.Facts, error) { return countFacts(ctx, s, db) },
		func(err error) { log.Debug("anonymous counts were not sent", "error", err) })
	return nil
}

func countFacts(ctx context.Context, s settings, db *store.Store) (f telemetry.Facts, err error) {
	f.Version, f.Database = version, "sqlite"
	if strings.HasPrefix(s.databaseKind(), "PostgreSQL") {
		f.Database = "postgres"
	}
	f.Accounts, f.Organisations, f.Hosts, err = db.Counts(ctx)
	return f, err
}

// showTelemetry prints what would be sent now, and sends nothing.
func (p *program) showTelemetry(ctx context.Context, s settings) error {
	db, err := store.Open(ctx, s.storeConfig())
	if err != nil {
		return err
	}
	r := telemetry.NewReporter()
	why := r.WhyDisabled(!s.noTelemetry, p.getenv)
	if why == "" {
		r.ID, err = db.TelemetryID(ctx)
	}
	f, failed := countFacts(ctx, s, db)
	if err := errors.Join(err, failed, db.Close()); err != nil {
		return err
	}
	payload, err := r.Payload(f)
	if err != nil {
		return err
	}
	line := "This would be sent today:\n" + string(payload)
	if why != "" {
		line = "Nothing is sent: " + why + ". It would be:\n" + string(payload)
	}
	return p.printResult(struct {
		Sends   bool            `json:"sends"`
		Why     string          `json:"why,omitempty"`
		Payload json.RawMessage `json:"payload"`
	}{why == "", why, payload}, line)
}
