package cli

import (
	"bailey"
	"bailey/internal/localapi/apitype"
)

func NewJailQuery(argv []string, job bailey.Job, cage bailey.Cage) apitype.JailQuery {
	q := apitype.JailQuery{JailRunning: apitype.JailRunning{Argv: argv, Dir: job.Dir, Exec: job.Exec, TTY: job.TTY, Cage: cage}, Env: job.Env, Plan: cage.Plan}
	for _, p := range job.Places {
		if p.Write {
			q.Writable = append(q.Writable, p.Path)
		} else {
			q.ReadOnly = append(q.ReadOnly, p.Path)
		}
	}
	return q
}
