package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"bailey"
)

// maxBudgets limits a file of budgets, because each call is checked against every budget.
const maxBudgets = 1000

// Budgets parses a file of budgets: a list under the key budgets. The keys of an entry are id, capabilities, agents,
// per, within, wall, cpu, calls, concurrent and output. Capabilities and groups must be known to the engine. The error
// is Invalid and names file, line and column.
func (e *Engine) Budgets(src Source) ([]bailey.Budget, error) {
	s := yamlFile{src.Name}
	body, err := s.parseDocument(src.Text)
	if err != nil || body == nil {
		return nil, err
	}
	var budgets []bailey.Budget
	err = s.parseMapping(body, "a file of budgets", keyParsers{"budgets": func(n ast.Node) error {
		if _, none := n.(*ast.NullNode); none {
			return nil
		}
		seq, ok := n.(*ast.SequenceNode)
		if !ok {
			return s.errorAt(n.GetToken(), "budgets wants a list, each entry behind a dash")
		}
		for _, item := range seq.Values {
			b, err := e.parseBudget(s, item)
			if err != nil {
				return err
			}
			switch {
			case len(budgets) == maxBudgets:
				return s.errorAt(item.GetToken(), "there are more than %d budgets", maxBudgets)
			case slices.ContainsFunc(budgets, func(o bailey.Budget) bool { return o.ID == b.ID }):
				return s.errorAt(item.GetToken(), "there are two budgets %s", b.ID)
			}
			budgets = append(budgets, b)
		}
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return budgets, nil
}

func (e *Engine) parseBudget(s yamlFile, n ast.Node) (b bailey.Budget, err error) {
	var per []string
	counts := func(into *int) func(ast.Node) error {
		return func(n ast.Node) error {
			v, err := s.parsePositiveInt(n, 1_000_000_000)
			*into = int(v)
			return err
		}
	}
	err = s.parseMapping(n, "a budget", keyParsers{
		"id":           textField(s, &b.ID),
		"capabilities": func(n ast.Node) (err error) { b.Capabilities, err = e.parseCapabilities(s, n); return err },
		"agents":       textListField(s, &b.Agents),
		"per": func(n ast.Node) error {
			if word, ok := textOf(n); ok {
				per = []string{word}
				return nil
			}
			return textListField(s, &per)(n)
		},
		"within": s.durationField(&b.Within), "wall": s.durationField(&b.Wall), "cpu": s.durationField(&b.CPU),
		"calls": counts(&b.Calls), "concurrent": counts(&b.Concurrent),
		"output": func(n ast.Node) (err error) { b.Output, err = s.parseByteSize(n); return err },
	})
	if err != nil {
		return b, err
	}
	at := n.GetToken()
	if pairs, ok := pairsOf(n); ok && len(pairs) > 0 {
		at = pairs[0].Key.GetToken()
	}
	b.Source = fmt.Sprintf("%s:%d", s.name, at.Position.Line)
	return b, s.completeBudget(&b, per, at)
}

// completeBudget sets how the budget counts (per session, agent or capability) and refuses a budget without a limit.
func (s yamlFile) completeBudget(b *bailey.Budget, per []string, at *token.Token) error {
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
			return s.errorAt(at, "per is session, agent or capability, or a list of them, not %q", clipText(word))
		}
	}
	switch {
	case !idForm().MatchString(b.ID):
		return s.errorAt(at, "the budget wants an id of 1 to 64 lower case letters, digits, '.', '_' or '-'")
	case !b.Session && b.Within == 0 && (b.Calls > 0 || b.Wall > 0 || b.CPU > 0 || b.Output > 0):
		return s.errorAt(at, "budget %s would be used up for ever: it wants within, as in within: 24h, or per: session",
			b.ID)
	case b.Calls == 0 && b.Concurrent == 0 && b.Wall == 0 && b.CPU == 0 && b.Output == 0:
		return s.errorAt(at, "budget %s bounds nothing: it wants calls, concurrent, wall, cpu or output", b.ID)
	}
	return nil
}

// parseCapabilities returns the capabilities that a list of ids and groups covers.
func (e *Engine) parseCapabilities(s yamlFile, n ast.Node) ([]bailey.CapabilityID, error) {
	var words []string
	if err := textListField(s, &words)(n); err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, s.errorAt(n.GetToken(), "capabilities is empty: leave it out for all")
	}
	var ids []bailey.CapabilityID
	for _, w := range words {
		before := len(ids)
		for id, sl := range e.slices {
			if string(id) == w || slices.Contains(sl.act.groups, w) {
				ids = append(ids, id)
			}
		}
		if len(ids) == before {
			return nil, s.errorAt(n.GetToken(), "%q is no capability, nor a group that has any", clipText(w))
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// parsePositiveInt parses an integer from 1 to most.
func (s yamlFile) parsePositiveInt(n ast.Node, most int64) (int64, error) {
	if i, ok := n.(*ast.IntegerNode); ok {
		if v, err := strconv.ParseInt(i.GetToken().Value, 10, 64); err == nil && v > 0 && v <= most {
			return v, nil
		}
	}
	return 0, s.errorAt(n.GetToken(), "wants a whole number from 1 to %d", most)
}

// durationField parses a duration in Go syntax.
func (s yamlFile) durationField(into *time.Duration) func(ast.Node) error {
	const most = 366 * 24 * time.Hour
	return func(n ast.Node) error {
		text, _ := textOf(n)
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > most {
			return s.errorAt(n.GetToken(), "wants a span of time, as in 30s, 10m or 24h")
		}
		*into = d
		return nil
	}
}

// parseByteSize parses a number of bytes, with or without a unit.
func (s yamlFile) parseByteSize(n ast.Node) (int64, error) {
	const most = 1 << 50
	if text, ok := textOf(n); ok {
		for i, unit := range []string{"KiB", "MiB", "GiB"} {
			digits, found := strings.CutSuffix(text, unit)
			v, err := strconv.ParseInt(digits, 10, 32)
			if found && err == nil && v > 0 {
				return v << (10 * (i + 1)), nil
			}
		}
		return 0, s.errorAt(n.GetToken(), "wants bytes, as in 4096, 64KiB, 100MiB or 2GiB")
	}
	return s.parsePositiveInt(n, most)
}
