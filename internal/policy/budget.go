package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
)

// maxBudgets limits a file of budgets, because each call is checked against every budget.
const maxBudgets = 1000

// Budgets parses a file of budgets: a list under the key budgets. The keys of an entry are id, capabilities, agents,
// per, within, wall, cpu, calls, concurrent, output, inputTokens, outputTokens and usd. Capabilities and groups must be known to the engine. The error
// is Invalid and names file, line and column.
func (e *Engine) Budgets(src Source) ([]bailey.Budget, error) {
	s, body := openSheet(src)
	if body == nil {
		return nil, s.Err()
	}
	var budgets []bailey.Budget
	s.Fields(body, "a file of budgets", strictyaml.Fields{"budgets": func(n ast.Node) {
		if _, none := n.(*ast.NullNode); none {
			return
		}
		for _, item := range s.Items(n, "budgets") {
			b := e.parseBudget(s, item)
			switch {
			case len(budgets) == maxBudgets:
				s.AddFault(item, "there are more than %d budgets", maxBudgets)
				return
			case slices.ContainsFunc(budgets, func(o bailey.Budget) bool { return o.ID == b.ID }):
				s.AddFault(item, "there are two budgets %s", b.ID)
			}
			budgets = append(budgets, b)
		}
	}})
	if err := s.Err(); err != nil {
		return nil, err
	}
	return budgets, nil
}

func (e *Engine) parseBudget(s sheet, n ast.Node) (b bailey.Budget) {
	var per []string
	counts := func(into *int) func(ast.Node) {
		return func(n ast.Node) { *into = int(s.parsePositiveInt(n, 1_000_000_000)) }
	}
	s.Fields(n, "a budget", strictyaml.Fields{
		"id":           textField(s, &b.ID),
		"capabilities": func(n ast.Node) { b.Capabilities = e.parseCapabilities(s, n) },
		"agents":       textListField(s, &b.Agents),
		"per": func(n ast.Node) {
			if word, ok := strictyaml.TextOf(n); ok {
				per = []string{word}
				return
			}
			textListField(s, &per)(n)
		},
		"within": s.durationField(&b.Within), "wall": s.durationField(&b.Wall), "cpu": s.durationField(&b.CPU),
		"calls": counts(&b.Calls), "concurrent": counts(&b.Concurrent),
		"output":       func(n ast.Node) { b.Output = s.parseByteSize(n) },
		"inputTokens":  func(n ast.Node) { b.InputTokens = s.parsePositiveInt(n, 1<<50) },
		"outputTokens": func(n ast.Node) { b.OutputTokens = s.parsePositiveInt(n, 1<<50) },
		"usd":          func(n ast.Node) { b.MicroUSD = s.parseDollars(n) },
	})
	at := strictyaml.FirstKey(n)
	b.Source = fmt.Sprintf("%s:%d", s.Name, at.GetToken().Position.Line)
	s.completeBudget(&b, per, at)
	return b
}

// completeBudget sets how the budget counts (per session, agent or capability) and refuses a budget without a limit.
func (s sheet) completeBudget(b *bailey.Budget, per []string, at ast.Node) {
	// A span longer than a session has no meaning per session, and each call of the command line is its own session.
	switch {
	case per == nil && b.Within > 0:
		per = []string{"agent"}
	case per == nil:
		per = []string{"session"}
	}
	for _, word := range per {
		switch word {
		case "session":
			b.Session = true
		case "agent":
			b.Agent = true
		case "capability":
			b.Capability = true
		default:
			s.AddFault(at, "per must be session, agent or capability, or a list of them, not %q", strictyaml.Clip(word))
		}
	}
	summed := b.Calls > 0 || b.Wall > 0 || b.CPU > 0 || b.Output > 0 || b.InputTokens > 0 || b.OutputTokens > 0 ||
		b.MicroUSD > 0
	switch {
	case !idForm().MatchString(b.ID):
		s.AddFault(at, "the budget needs an id of 1 to 64 lower case letters, digits, '.', '_' or '-'")
	case !b.Session && b.Within == 0 && summed:
		s.AddFault(at, "budget %s is never refilled: it needs within, for example within: 24h, or per: session", b.ID)
	case b.Concurrent == 0 && !summed:
		s.AddFault(at, "budget %s has no limit: it needs calls, concurrent, wall, cpu, output, inputTokens, outputTokens or usd", b.ID)
	}
}

// parseCapabilities returns the capabilities that a list of ids and groups covers.
func (e *Engine) parseCapabilities(s sheet, n ast.Node) (ids []bailey.CapabilityID) {
	var words []string
	if textListField(s, &words)(n); len(words) == 0 {
		s.AddFault(n, "capabilities is empty: leave it out for all")
	}
	for _, w := range words {
		before := len(ids)
		for id, sl := range e.slices {
			if string(id) == w || slices.Contains(sl.act.groups, w) {
				ids = append(ids, id)
			}
		}
		if len(ids) == before {
			s.AddFault(n, "%q is not a capability, or a group that contains one", strictyaml.Clip(w))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// parsePositiveInt parses an integer from 1 to most.
func (s sheet) parsePositiveInt(n ast.Node, most int64) int64 {
	if i, ok := n.(*ast.IntegerNode); ok {
		if v, err := strconv.ParseInt(i.GetToken().Value, 10, 64); err == nil && v > 0 && v <= most {
			return v
		}
	}
	s.AddFault(n, "must be a whole number from 1 to %d", most)
	return 0
}

// parseDollars parses an amount of US dollars and returns millionths of one.
func (s sheet) parseDollars(n ast.Node) int64 {
	switch n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		v, err := strconv.ParseFloat(n.GetToken().Value, 64)
		if micro := math.Round(v * 1e6); err == nil && micro >= 1 && micro <= 1e15 {
			return int64(micro)
		}
	}
	s.AddFault(n, "must be an amount of US dollars, for example 5 or 0.50, at most 1000000000")
	return 0
}

// durationField parses a duration in Go syntax.
func (s sheet) durationField(into *time.Duration) func(ast.Node) {
	const most = 366 * 24 * time.Hour
	return func(n ast.Node) {
		text, _ := strictyaml.TextOf(n)
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > most {
			s.AddFault(n, "must be a duration, for example 30s, 10m or 24h")
		}
		*into = d
	}
}

// parseByteSize parses a number of bytes, with or without a unit.
func (s sheet) parseByteSize(n ast.Node) int64 {
	text, ok := strictyaml.TextOf(n)
	if !ok {
		return s.parsePositiveInt(n, 1<<50)
	}
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		digits, found := strings.CutSuffix(text, unit)
		v, err := strconv.ParseInt(digits, 10, 32)
		if found && err == nil && v > 0 {
			return v << (10 * (i + 1))
		}
	}
	s.AddFault(n, "must be a number of bytes, for example 4096, 64KiB, 100MiB or 2GiB")
	return 0
}
