package main

import (
	"context"
	"encoding/json"
	"strings"

	"bailey/internal/wire"

	"bailey"
)

// jailRunEvent is the operator command, and the kind of the ledger entry, for a program that a person runs in a cage.
const jailRunEvent = "jail.run"

// jailRunning is the data of the ledger entry. It is written before the program starts, and contains no values of
// variables.
type jailRunning struct {
	Argv     []string `json:"argv,omitempty"` // redacted; absent if larger than [bailey.InlineCap]
	Dir      string   `json:"dir,omitempty"`  // inside the cage
	ReadOnly []string `json:"ro,omitempty"`
	Writable []string `json:"rw,omitempty"`
	Exec     []string `json:"exec,omitempty"`
	EnvNames []string `json:"envNames,omitempty"`
	TTY      bool     `json:"tty,omitempty"`
	bailey.Cage
	Operator wire.Operator `json:"operator,omitempty"`
	Person   string        `json:"person,omitempty"`
}

// jailQuery is the event as it is sent to the gateway. The gateway keeps the text of the plan. It searches argv for the
// values of Env and then discards Env.
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

// jailRun is the operator command: it writes the ledger entry before the program runs.
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

// event returns the data of the ledger entry, redacted. The values of the variables are redacted in argv, but not in
// paths: a variable often holds a path, and the entry must say which paths were shown.
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

// leastSecret is the minimum length, in bytes, of a value that is redacted in argv. Otherwise a variable with the value
// 1 or yes would hide these words everywhere.
const leastSecret = 8

// hidden returns v, converted through JSON, with its secrets redacted.
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
