package pack

import (
	"strings"
	"testing"
)

const narrowPack = `
name: demo
version: 1.0.0
capabilities:
  - name: get
    backend: {type: subprocess, command: demo, args: ['{{ input.repo }}', '{{ input.words }}']}
    risk: low
    sideEffectClass: mutating
    reversibility: reversible
    credentials: [{name: token, env: DEMO_TOKEN}]
    narrow: {token: {repository: '{{ input.repo }}', bucket: '{{ input.words }} {{ input.repo }}', service: s3}}
    inputSchema:
      type: object
      properties:
        repo: {type: string, x-bailey: {allow: [url]}}
        words: {type: array, items: {type: string, x-bailey: {allow: [option, url]}}}
`

// TestLimits checks which limits an input puts on a credential: those that say exactly what the call uses, and no others.
func TestLimits(t *testing.T) {
	p, err := Parse("demo.yaml", []byte(narrowPack))
	if err != nil {
		t.Fatal(err)
	}
	m := p.Capabilities[0]
	for repo, want := range map[string]string{
		"":                                 "service=s3",
		"octo/web":                         "repository=octo/web service=s3",
		"https://github.com/octo/web.git":  "repository=octo/web service=s3",
		"https://git.example.org/octo/web": "service=s3",
		"https://github.com/octo":          "service=s3",
		"/repos/octo/web/issues?x=y":       "repository=octo/web service=s3",
		"repos/octo/web":                   "repository=octo/web service=s3",
		"octo/web/more":                    "service=s3",
		"octo/web,octo/api":                "service=s3",
		"octo/we b":                        "service=s3",
		"graphql":                          "service=s3",
		"octo/" + strings.Repeat("a", 300): "service=s3",
	} {
		if got := m.WantsFor(map[string]any{"repo": repo})[0].Limits; got != want {
			t.Errorf("%q: %q", repo, got)
		}
	}
	for words, want := range map[string]string{
		"s3://b-1/key":                        "bucket=b-1 service=s3",
		"s3://b-2/key s3://b-1":               "bucket=b-1,b-2 service=s3",
		"--bucket b-1":                        "bucket=b-1 service=s3",
		"--bucket=b-1 --copy-source /b-2/key": "bucket=b-1,b-2 service=s3",
		"--bucket":                            "service=s3",
		"--bucket arn:aws:s3:x":               "service=s3",
		"s3://b-1 --bucket b-s3alias":         "service=s3",
		"s3://B_1":                            "service=s3",
		"s3://":                               "service=s3",
		"plain words":                         "service=s3",
	} {
		var list []any
		for _, w := range strings.Fields(words) {
			list = append(list, w)
		}
		if got := m.WantsFor(map[string]any{"words": list})[0].Limits; got != want {
			t.Errorf("%q: %q", words, got)
		}
	}
	reads, err := Parse("demo.yaml", []byte(strings.NewReplacer("mutating", "readOnly", "reversible", "readOnly").Replace(narrowPack)))
	if err != nil {
		t.Fatal(err)
	}
	if got := reads.Capabilities[0].WantsFor(nil)[0].Limits; got != "access=read service=s3" {
		t.Errorf("a capability that reads: %q", got)
	}
}

// TestLimitsRefused checks that a manifest with a limit that would not apply is refused.
func TestLimitsRefused(t *testing.T) {
	for change, says := range map[string]string{
		"{other: {service: s3}}":                                  "other",
		"{token: {colour: s3}}":                                   "colour",
		"{token: {service: '{{ input.rep }}'}}":                   "input.rep is not in the inputSchema",
		"{token: {service: 'a-{{ input.repo }}'}}":                "must be one word",
		"{token: {service: '{{ input.repo | default: \"x\" }}'}}": "must be one word",
		"{token: {service: 's 3'}}":                               "must be one word",
	} {
		text := narrowPack[:strings.Index(narrowPack, "narrow:")] + "narrow: " + change + narrowPack[strings.Index(narrowPack, "\n    inputSchema"):]
		if _, err := Parse("demo.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", change, err)
		}
	}
}
