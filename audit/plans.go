package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Plan is the data of a "plan" note: the text that a cage's plan digest stands for, or that the text is
// withheld because it holds a secret. One of Text and Redacted is set.
type Plan struct {
	Digest   string `json:"digest"` // SHA-256 of Text, 64 lower-case hexadecimal digits
	Text     string `json:"text,omitempty"`
	Redacted bool   `json:"redacted,omitempty"`
}

// Plans keeps account of the plans that notes hold. The zero value is ready. Being exact about every plan
// costs memory: some 50 bytes each.
type Plans struct {
	known map[Hash]bool // by digest: whether the text was there and gave it
}

// Add takes a plan note or an outcome into account, and says what is wrong with it. Others pass.
func (p *Plans) Add(e Entry) error {
	switch {
	case e.Kind == KindPlan:
		return p.note(e.Data)
	case e.Kind == KindOutcome && e.Plan != "":
		digest, _ := parseHash([]byte(e.Plan)) // the scanner has checked it
		if _, ok := p.known[digest]; !ok {
			return fmt.Errorf("the outcome of receipt %s names the plan %s, which no entry before it holds", e.Receipt, e.Plan)
		}
	}
	return nil
}

// Count returns how many plans there are whose text gave its digest, and how many whose text is withheld.
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

func (p *Plans) note(data []byte) error {
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

// ParsePlan reads the data of a plan note: its two members, under these very names, and nothing else. It
// does not compare the text with the digest.
func ParsePlan(data []byte) (Plan, error) {
	malformed := errors.New("a plan note holds a digest and either its text or \"redacted\":true")
	var member map[string]json.RawMessage // a struct would take keys in any case
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
	// What has no form in UTF-8 would be read as U+FFFD, by this decoder: such a text means nothing certain.
	const instead = "\ufffd"
	if raw, ok := member["text"]; !ok || plan.Text == "" || strings.Count(plan.Text, instead) != bytes.Count(raw, []byte(instead)) {
		return Plan{}, malformed
	}
	return plan, nil
}
