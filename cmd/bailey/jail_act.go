package main

import (
	"context"
	"encoding/json"
	"strings"

	"bailey/internal/wire"

	"bailey"
)

// jailRunEvent is the verb and the ledger's kind of entry for a program that a person ran in a cage.
const jailRunEvent = "jail.run"

// jailRunning is the event's data. It is written before the program starts, and holds no value of a variable.
type jailRunning struct {
	Argv     []string `json:"argv,omitempty"` // redacted; absent when over [bailey.InlineCap]
	Dir      string   `json:"dir,omitempty"`  // inside
	ReadOnly []string `json:"ro,omitempty"`
	Writable []string `json:"rw,omitempty"`
	Exec     []string `json:"exec,omitempty"`
	EnvNames []string `json:"envNames,omitempty"`
	TTY      bool     `json:"tty,omitempty"`
	bailey.Cage
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// jailQuery is how the event comes to the gateway: with the plan's text, which it keeps, and with the variables,
// whose values it looks for in argv and forgets.
type jailQuery struct {
	jailRunning
	Env  []string `json:"env,omitempty"`
	Plan string   `json:"plan"`
}

func newJailQuery(argv []string, job bailey.Job, cage bailey.Cage) jailQuery {
	q := jailQuery{jailRunning: jailRunning{Argv: argv, Dir: job.Dir, Exec: job.Exec, TTY: job.TTY, Cage: cage}, Env: job.Env, Plan: cage.Plan}
	for _, p := range job.Places {
		if p.Write {
			q.Writable = append(q.Writable, p.Path)
		} else {
			q.ReadOnly = append(q.ReadOnly, p.Path)
		}
	}
	return q
}

// jailRun is the act: what a person is about to run stands in the ledger before it runs.
func (s *stack) jailRun(ctx context.Context, q wire.Query, from bailey.Call) (any, error) {
	var asked jailQuery
	b, err := json.Marshal(q.Args["run"])
	if err == nil {
		err = json.Unmarshal(b, &asked)
	}
	if err != nil || len(asked.Argv) == 0 || asked.PlanDigest == "" {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: "a jail run names a command and a plan", Err: err}
	}
	asked.Operator, asked.Person = q.Operator, from.Principal.Person
	cage := asked.Cage
	if cage.Plan = asked.Plan; s.redaction.Value(from.Session.ID, cage.Plan) != any(cage.Plan) {
		cage.Plan = ""
	}
	event, err := s.event(from.Session.ID, asked)
	if err != nil {
		return nil, err
	}
	return struct{}{}, s.ledger.NoteCaged(ctx, jailRunEvent, event, &cage)
}

// event is the data of an entry, redacted; argv also by the values of the variables. Paths stay: a variable often
// holds one, and the event has to say what was shown.
func (s *stack) event(id bailey.SessionID, asked jailQuery) (any, error) {
	var secrets []bailey.Secret
	for _, v := range asked.Env {
		name, value, _ := strings.Cut(v, "=")
		asked.EnvNames = append(asked.EnvNames, name)
		if len(value) >= leastSecret {
			secrets = append(secrets, bailey.NewSecret(value))
		}
	}
	argv := asked.Argv
	asked.Argv = nil
	event, err := s.hidden(id, asked.jailRunning)
	if err != nil {
		return nil, err
	}
	s.redaction.Learn(id, secrets)
	words, err := s.hidden(id, argv)
	if err != nil {
		return nil, err
	}
	if b, err := json.Marshal(words); err == nil && len(b) <= bailey.InlineCap {
		event.(map[string]any)["argv"] = words
	}
	return event, nil
}

// leastSecret keeps a variable that says 1 or yes from hiding those words wherever they stand, in bytes.
const leastSecret = 8

// hidden is v as JSON decodes it, redacted.
func (s *stack) hidden(id bailey.SessionID, v any) (any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var loose any
	if err := json.Unmarshal(b, &loose); err != nil {
		return nil, err
	}
	return s.redaction.Value(id, loose), nil
}
