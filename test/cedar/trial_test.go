package cedar

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"

	"bailey"
	"bailey/internal/policy"
)

// trial is one case: rules, and requests for them.
type trial struct {
	rules    []rule
	requests []bailey.Request
	asked    []question
}

func (d dice) trial() *trial {
	c := &trial{}
	var ids []string
	for i := range 1 + d.IntN(5) {
		c.rules = append(c.rules, d.rule(i))
		ids = append(ids, c.rules[i].id)
	}
	for range 3 {
		r, q := d.request(ids)
		c.requests, c.asked = append(c.requests, r), append(c.asked, q)
	}
	return c
}

func (c *trial) String() string {
	var b strings.Builder
	for _, r := range c.rules {
		b.WriteString(r.String())
	}
	for i, r := range c.requests {
		fmt.Fprintf(&b, "%+v\ncontext %v\n", r, c.asked[i].Context)
	}
	return b.String()
}

// side holds the results of the engine for a trial.
type side struct {
	parses  map[string]bool   // rules that cedar-go parses
	raw     map[string]string // rule → text, of the parsed rules that are compared raw
	set     *cedar.PolicySet  // the same as a policy set
	refused map[string]error  // rule → why it does not load
	loaded  map[string]string // rule → text, of the rules that the engine loaded
	engine  *policy.Engine
}

func (c *court) side(t *trial) side {
	s := side{parses: map[string]bool{}, raw: map[string]string{}, set: cedar.NewPolicySet(), refused: map[string]error{}, loaded: map[string]string{}, engine: c.empty}
	text := ""
	for _, r := range t.rules {
		var p cedar.Policy
		if err := p.UnmarshalCedar([]byte(r.String())); err == nil {
			s.parses[r.id] = true
			if !extension.MatchString(r.String()) { // both sides read these differently, and they never load here
				s.raw[r.id] = r.String()
				s.set.Add(cedar.PolicyID(r.id), &p)
			}
		}
		if _, err := c.load(r.String()); err != nil {
			s.refused[r.id] = err
			continue
		}
		// fails for example if the rule leaves another one without effect
		if e, err := c.load(text + r.String()); err == nil {
			s.engine, s.loaded[r.id] = e, r.String()
			text += r.String()
		}
	}
	return s
}

func (c *court) load(text string) (*policy.Engine, error) {
	return policy.Load(policy.Config{Actions: c.actions, Sources: []policy.Source{{Name: "a.cedar", Text: []byte(text)}}})
}

// jobs returns the jobs of a trial: the rules that are compared raw, and those that the engine loaded.
func (c *court) jobs(t *trial, s side) []job {
	return []job{{Op: "authorize", Rules: s.raw, Requests: t.asked}, c.whole(s, t.asked...)}
}

// whole returns a job with every rule of the engine, not sliced.
func (c *court) whole(s side, questions ...question) job {
	rules := maps.Clone(c.builtin)
	maps.Copy(rules, s.loaded)
	return job{Op: "authorize", Rules: rules, Requests: questions}
}

// finding is a difference between the two sides.
type finding struct {
	class string // the same for findings that may have one cause
	words string
	trial *trial
}

var (
	quoted    = regexp.MustCompile("\"[^\"]*\"|`[^`]*`|r[0-9]+|[0-9]+")
	extension = regexp.MustCompile(`\b(ip|decimal|datetime|duration)\(`)
	place     = regexp.MustCompile(`^.*\n *a\.cedar:[0-9]+: (rule r[0-9]+: )?`)
)

// generic returns a message without the parts that are specific to one case.
func generic(words string) string {
	words, _, _ = strings.Cut(place.ReplaceAllString(words, ""), "\n")
	return quoted.ReplaceAllString(words, "…")
}

func same(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
