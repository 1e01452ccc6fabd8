//go:build linux

package server

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"bailey"
	"bailey/internal/enrol"
	"bailey/internal/fleet"
	"bailey/internal/gate"
	"bailey/internal/localapi"
)

// TestTeamBudget: a budget of the control plane counts what this gateway spends, now and before its start, and what others
// spend. It refuses requests to models alone, holds after a restart and without the control plane, and ends with the
// enrolment.
func TestTeamBudget(t *testing.T) {
	t.Parallel()
	home := localapi.Home(filepath.Join(t.TempDir(), "home"))
	if err := os.Mkdir(string(home), 0o700); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	month, _ := fleet.PeriodStart(fleet.MonthPeriod, now)
	open := func() *teamBudgets {
		b, err := openTeamBudgets(home, gate.Unbounded{})
		if err != nil {
			t.Fatal(err)
		}
		b.now = func() time.Time { return now }
		b.past = func(context.Context, time.Time) (map[dayAgent]fleet.SpentSum, error) {
			return map[dayAgent]fleet.SpentSum{{dayOf(month), "coder"}: {MicroUSD: 100}, {dayOf(month), "x"}: {MicroUSD: 5000}}, nil
		}
		return b
	}
	b := open()
	spend := func(agent string, cost int64) error {
		a, err := b.Take(bailey.Request{Capability: modelRequest, Principal: bailey.Principal{Agent: agent}})
		if err == nil {
			a.Settle(gate.Use{MicroUSD: cost})
			a.Settle(gate.Use{MicroUSD: cost}) // counts once
		}
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if spent, ok := errors.AsType[*bailey.SpentError](err); !ok || !errors.Is(err, bailey.Denied) ||
			!spent.Until.Equal(month.AddDate(0, 1, 0)) || !strings.Contains(err.Error(), "used up") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := spend("coder", 1); err != nil {
		t.Error("without a budget:", err)
	}
	order := func(revision uint64, limit int64) fleet.TeamBudgets {
		return fleet.TeamBudgets{Revision: revision, Budgets: []fleet.TeamBudget{{ID: "b-1", Agent: "coder", Period: fleet.MonthPeriod,
			MicroUSD: limit, Since: month, Elsewhere: fleet.SpentSum{MicroUSD: 300}}}}
	}
	if err := b.follow("h-1", order(2, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := spend("coder", 1); err != nil {
		t.Error("without the enrolment:", err)
	}
	if err := enrol.DirOf(string(home)).Save(enrol.Enrolment{Host: "h-1"}); err != nil {
		t.Fatal(err)
	}
	if err := spend("coder", 597); err != nil { // 100 before, 300 elsewhere, 2 until now
		t.Error(err)
	}
	if err := spend("coder", 1); err != nil { // 999
		t.Error(err)
	}
	refused("at the limit", spend("coder", 1))
	if err := spend("other", 1); err != nil {
		t.Error("another agent:", err)
	}
	if _, err := b.Take(bailey.Request{Capability: "git.status", Principal: bailey.Principal{Agent: "coder"}}); err != nil {
		t.Error("another capability:", err)
	}
	if err := b.follow("h-1", order(1, 1_000_000)); err != nil {
		t.Fatal(err)
	}
	refused("after older budgets", spend("coder", 1))
	b = open() // which has spent nothing, so 400 of 350 are spent
	if err := b.follow("h-1", order(3, 350)); err != nil {
		t.Fatal(err)
	}
	b = open()
	refused("after a restart", spend("coder", 1))
	b.past = func(context.Context, time.Time) (map[dayAgent]fleet.SpentSum, error) {
		return nil, errors.New("no index")
	}
	b.recalled = time.Time{}
	if err := spend("coder", 1); !errors.Is(err, bailey.Unavailable) {
		t.Error("if the past is unknown:", err)
	}
	b = open()
	now = now.AddDate(0, 1, 0)
	b.past = func(context.Context, time.Time) (map[dayAgent]fleet.SpentSum, error) { return nil, nil }
	if err := spend("coder", 1); err != nil {
		t.Error("in the next month:", err)
	}
}

// TestBudgetsOfControlPlane: budgets that are malformed, too many, or from the future are refused.
func TestBudgetsOfControlPlane(t *testing.T) {
	t.Parallel()
	a := askingFor(t, "")
	order := fleet.TeamBudgets{Revision: 1, Budgets: []fleet.TeamBudget{{ID: "b-1", Period: "day", MicroUSD: 1}}}
	if _, err := command[localapi.None](t, a.Server, fleet.Budget, order); !errors.Is(err, bailey.Denied) {
		t.Errorf("without an enrolment: %v", err)
	}
	e := enrol.Enrolment{Host: "h-1", Organisation: "o-1"}
	a.enrolled.Store(&e)
	for name, wrong := range map[string]fleet.TeamBudgets{
		"future":   {Revision: uint64(time.Now().Add(48 * time.Hour).UnixMicro())},
		"period":   {Budgets: []fleet.TeamBudget{{ID: "b", Period: "year"}}},
		"negative": {Budgets: []fleet.TeamBudget{{ID: "b", Period: "day", Elsewhere: fleet.SpentSum{MicroUSD: -5}}}},
		"many":     {Budgets: make([]fleet.TeamBudget, maxTeamBudgets+1)},
	} {
		if _, err := command[localapi.None](t, a.Server, fleet.Budget, wrong); !errors.Is(err, bailey.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := command[localapi.None](t, a.Server, fleet.Budget, order); err != nil || len(a.teamBudgets.kept.Budgets) != 1 {
		t.Errorf("%+v, %v", a.teamBudgets.kept, err)
	}
}
