package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Plan is the data of a "plan" note: the text for which a cage's plan digest stands, or the statement that the text is
// withheld because it holds a secret. Exactly one of Text and Redacted is set.
type Plan struct {
	Digest   string `json:"digest"` // SHA-256 of Text, 64 lower-case hexadecimal digits
	Text     string `json:"text,omitempty"`
	Redacted bool   `json:"redacted,omitempty"`
}

// Plans records the plans that notes hold. The zero value is ready to use. To be exact about every plan, it needs about
// 50 bytes for each.
type Plans struct {
	known map[Hash]bool // by digest; true if the text was present and matched
}

// Add records a plan note or an outcome, and returns an error if it does not fit. It ignores other kinds.
func (p *Plans) Add(e Entry) error {
	switch {
	case e.Kind == KindPlan:
		return p.addPlan(e.Data)
	case e.Kind == KindOutcome && e.Plan != "":
		digest, _ := parseHash([]byte(e.Plan)) // already checked by the scanner
		if _, ok := p.known[digest]; !ok {
			return fmt.Errorf("the outcome of receipt %s names the plan %s, which no entry before it holds", e.Receipt,
				e.Plan)
		}
	}
	return nil
}

// Count returns the number of plans whose text matched the digest, and the number of plans whose text is withheld.
func (p *Plans) Count() (recomputed, withheld int) {
	for _, whole := range p.known {
		if whole {
			recomputed++
		} else {
			withheld++
		}
	}
	return recomputed, withheld
}

func (p *Plans) addPlan(data []byte) error {
	plan, err := ParsePlan(data)
	if err != nil {
		return err
	}
	digest, _ := parseHash([]byte(plan.Digest))
	if !plan.Redacted && sha256.Sum256([]byte(plan.Text)) != digest {
		return fmt.Errorf("the text of the plan %s is not what that digest stands for", plan.Digest)
	}
	if p.known == nil {
		p.known = map[Hash]bool{}
	}
	p.known[digest] = p.known[digest] || !plan.Redacted
	return nil
}

// ParsePlan parses the data of a plan note. It must have exactly two members with exactly these names. ParsePlan does
// not compare the text with the digest.
func ParsePlan(data []byte) (Plan, error) {
	malformed := errors.New("a plan note holds a digest and either its text or \"redacted\":true")
	var member map[string]json.RawMessage // a struct would accept keys in any case
	if json.Unmarshal(data, &member) != nil || len(member) != 2 {
		return Plan{}, malformed
	}
	var plan Plan
	if json.Unmarshal(data, &plan) != nil || member["digest"] == nil {
		return Plan{}, malformed
	}
	if _, ok := parseHash([]byte(plan.Digest)); !ok {
		return Plan{}, malformed
	}
	if raw, ok := member["redacted"]; ok {
		if string(raw) != "true" {
			return Plan{}, malformed
		}
		return plan, nil
	}
	// This decoder reads text without a UTF-8 form, for example half a surrogate pair, as U+FFFD. Such a text is
	// ambiguous.
	const instead = "\ufffd"
	if raw, ok := member["text"]; !ok || plan.Text == "" ||
		strings.Count(plan.Text, instead) != bytes.Count(raw, []byte(instead)) {
		return Plan{}, malformed
	}
	return plan, nil
}
