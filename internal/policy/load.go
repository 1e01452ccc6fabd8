package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"bailey"
)

// findings collects all errors that prevent a policy from loading.
type findings struct{ lines []string }

// maxFindings limits how many findings are listed.
const maxFindings = 50

func (f *findings) addAt(file string, line int, format string, a ...any) {
	f.lines = append(f.lines, fmt.Sprintf("%s:%d: ", file, line)+fmt.Sprintf(format, a...))
}

func (f *findings) addForRule(r *LoadedRule, words string) {
	name := "rule"
	if r.ID != "" {
		name += " " + string(r.ID)
	}
	f.addAt(r.file, r.line, "%s: %s", name, words)
}

func (f *findings) toError() error {
	n := len(f.lines)
	if n == 0 {
		return nil
	}
	shown := f.lines[:min(n, maxFindings)]
	if n > len(shown) {
		shown = append(slices.Clone(shown), fmt.Sprintf("and %d more", n-len(shown)))
	}
	return bailey.Invalid.New("cannot load the policy:\n  "+strings.Join(shown, "\n  "),
		"correct the lines named; until then, none of its rules apply")
}

// checkFileNames refuses file names with which a position would be ambiguous.
func (f *findings) checkFileNames(sources []Source) {
	for i, s := range sources {
		if s.Name == "" || strings.ContainsFunc(s.Name, func(r rune) bool { return r == '\n' || IsHiddenRune(r) }) {
			f.addAt(strconv.Quote(s.Name), 1, "the name of a policy file must be plain")
		}
		if i > 0 && sources[i-1].Name == s.Name {
			f.addAt(s.Name, 1, "there are two policy files of this name")
		}
	}
}

// Cedar's parser reports a position as <input>:line:column.
var inputPosition = lazyRegexp(`<input>:(\d+):(\d+)`)

// parseSource parses one file into rules.
func (f *findings) parseSource(s Source) []*LoadedRule {
	ends, at, bad := scanRules(s.Text)
	if bad != "" {
		f.addAt(s.Name, lineNumber(s.Text, at), "%s", bad)
		return nil
	}
	list, err := cedar.NewPolicyListFromBytes(s.Name, s.Text)
	if err != nil {
		n := 1
		if m := inputPosition().FindStringSubmatch(err.Error()); m != nil {
			n, _ = strconv.Atoi(m[1])
		}
		f.addAt(s.Name, n, "%s", inputPosition().ReplaceAllString(err.Error(), "column $2"))
		return nil
	}
	if len(list) != len(ends) {
		f.addAt(s.Name, 1, "rules and semicolons do not match: %d and %d", len(list), len(ends))
		return nil
	}
	rules := make([]*LoadedRule, len(list))
	for i, p := range list {
		rules[i] = f.buildRule(s, p, ends[i])
	}
	return rules
}

func (f *findings) buildRule(s Source, p *cedar.Policy, end int) *LoadedRule {
	pos := p.Position()
	r := &LoadedRule{Policy: p, AST: (*ast.Policy)(p.AST()), file: s.Name, line: pos.Line, start: pos.Offset,
		Text: string(s.Text[pos.Offset:end])}
	r.Source = fmt.Sprintf("%s:%d", r.file, r.line)
	r.collectReads()
	for _, words := range r.parseAnnotations() {
		f.addForRule(r, words)
	}
	if r.Asks {
		r.Digest = fmt.Sprintf("%x", sha256.Sum256([]byte(r.CanonicalText())))
	}
	return r
}

// checkUniqueIDs refuses a second rule with the same id, because a grant or a receipt would be ambiguous.
func (f *findings) checkUniqueIDs(rules []*LoadedRule) {
	first := map[bailey.RuleID]*LoadedRule{}
	for _, r := range rules {
		if r.ID == "" {
			continue
		}
		if o := first[r.ID]; o != nil {
			f.addForRule(r, "has the same @id as the rule at "+o.Source)
			continue
		}
		first[r.ID] = r
	}
}
