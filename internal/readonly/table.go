package readonly

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed rules.txt
var rulesText string

// ruleTable has the commands that a text of rules names.
type ruleTable struct {
	rules   map[string]*Rule
	nested  map[string]*Rule    // commands of a program, for example "openssl x509"
	refused map[string]*refusal // the reason follows the name of the command
}

// builtinRules returns the built-in rules. It parses them once.
var builtinRules = sync.OnceValue(func() *ruleTable {
	t, err := parseRules(rulesText)
	if err != nil {
		panic(err) // the text is part of the program, and tests parse it
	}
	return t
})

// checks are the parsers for languages of commands.
func checks() map[string]func(*call) *refusal {
	return map[string]func(*call) *refusal{
		"awk": checkAwk, "blkid": checkBlkid, "curl": checkCurl, "date": checkDate, "dpkg": checkDpkg, "find": checkFind,
		"interface": checkInterface, "ip": checkIP, "nslookup": checkNslookup, "openssl": checkOpenSSL,
		"ping": checkPing, "pip": checkPip, "rpm": checkRPM, "sed": checkSed, "sysctl": checkSysctl, "test": checkTest,
		"timeout": checkTimeout, "uniq": checkUniq, "xargs": checkXargs,
	}
}

// parseRules parses a text of rules; rules.txt describes the format.
func parseRules(text string) (*ruleTable, error) {
	t := &ruleTable{make(map[string]*Rule, 192), map[string]*Rule{}, make(map[string]*refusal, 192)}
	checks := checks()
	var names []string
	rule, refused := Rule{}, ""
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		entry, indented := strings.CutPrefix(line, "  ")
		key, value, _ := strings.Cut(entry, " ")
		switch {
		case line == "" || line[0] == '#':
		case !indented:
			t.addRule(names, rule, refused)
			names, rule, refused = strings.Split(line, ", "), Rule{}, ""
		case key == "refused":
			refused = value
		case key == "check" && checks[value] != nil:
			rule.check = checks[value]
		case !rule.setKey(key, value):
			return nil, fmt.Errorf("line %d: the key %q or its value is unknown", number, key)
		}
	}
	t.addRule(names, rule, refused)
	return t, nil
}

// addRule adds a rule under each of its names.
func (t *ruleTable) addRule(names []string, rule Rule, refused string) {
	for _, name := range names {
		r := rule
		r.Name = name
		switch program, _, nested := strings.Cut(name, " "); {
		case refused != "":
			t.refused[name] = newRefusal(r.Hint, "%s %s", name, refused)
		case nested:
			if r.Hint == "" {
				r.Hint = t.rules[program].Hint
			}
			t.nested[name] = &r
		default:
			r.known = true
			t.rules[name] = &r
		}
	}
}

// setKey sets the field of a key. It returns false if the key or the value is unknown.
func (r *Rule) setKey(key, value string) bool {
	texts := [...]string{"stops", "dir", "hint", "flags", "values", "maybes", "reads"}
	if i := slices.Index(texts[:], key); i >= 0 {
		*[...]*string{&r.Stops, &r.Dir, &r.Hint, &r.Flags, &r.Values, &r.Maybes, &r.Reads}[i] = value
		return value != ""
	}
	reason, options, ok := strings.Cut(value, ": ")
	switch key {
	case "long":
		r.Long = strings.TrimPrefix(r.Long+" "+value, " ")
	case "subs":
		r.Subs = append(r.Subs, strings.Split(value, ", ")...)
	case "act":
		r.Acts = append(r.Acts, Act{options, reason})
		return ok
	case "needs":
		r.Needs = Act{options, reason}
		return ok
	case "operands":
		return r.setOperands(value)
	case "is":
		return r.setProperties(value)
	default:
		return false
	}
	return value != ""
}

func (r *Rule) setOperands(value string) bool {
	words := strings.Fields(value)
	for i := 1; i+1 < len(words); i += 2 {
		n, err := strconv.Atoi(words[i+1])
		switch {
		case err != nil || n < 1:
			return false
		case words[i] == "least":
			r.Least = n
		case words[i] == "most":
			r.Most = n
		default:
			return false
		}
	}
	r.Operands = Operands(words[0])
	return len(words)%2 == 1 && slices.Contains([]Operands{Words, Files, Names, Pattern, checked}, r.Operands)
}

func (r *Rule) setProperties(value string) bool {
	names := [...]string{"inert", "tail", "ordered", "apart", "hyphen", "network", "bare", "shell", "nests", "free"}
	fields := [...]*bool{&r.Inert, &r.Tail, &r.Ordered, &r.Apart, &r.Hyphen, &r.Network, &r.Bare, &r.shell, &r.nests, &r.free}
	for word := range strings.FieldsSeq(value) {
		i := slices.Index(names[:], word)
		if i < 0 {
			return false
		}
		*fields[i] = true
	}
	return true
}
