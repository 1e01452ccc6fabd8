package gate

import (
	"context"

	"bailey"
)

// Own is the runner of calls that agents execute themselves. The gate only decides them. No cage of the gateway
// applies, and Cage says so.
type Own struct{}

func (Own) Plan(_ context.Context, job bailey.Job) (bailey.Run, error) {
	return advisoryRun{job.Capability}, nil
}

type advisoryRun struct{ id bailey.CapabilityID }

func (advisoryRun) Cage() bailey.Cage { return bailey.Cage{Kind: "agent"} }

func (o advisoryRun) Start(context.Context, bailey.Lent, bailey.Streams) (bailey.Exit, error) {
	return bailey.Exit{Code: bailey.NeverRan}, advisoryOnlyError(o.id)
}

func (advisoryRun) Close() error { return nil }

func advisoryOnlyError(id bailey.CapabilityID) error {
	return bailey.Denied.Errorf("ask with a dry run, or call a capability that the gate runs",
		"%s is what an agent runs itself; the gate only decides", id)
}
