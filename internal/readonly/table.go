package readonly

import (
	"embed"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// rulesFiles has one file for each family of commands; rules/README.txt describes their format.
//
//go:embed rules
var rulesFiles embed.FS

// ruleTable has the commands that the texts of rules name.
type ruleTable struct {
	rules   map[string]*Rule
	nested  map[string]*Rule    // commands of a program, for example "openssl x509"
	refused map[string]*refusal // the reason follows the name of the command
}

// builtinRules returns the built-in rules. It parses them once.
var builtinRules = sync.OnceValue(func() *ruleTable {
	t := newRuleTable()
	files, err := rulesFiles.ReadDir("rules")
	for _, f := range files {
		if err != nil || f.Name() == "README.txt" {
			continue
		}
		var text []byte
		if text, err = rulesFiles.ReadFile(path.Join("rules", f.Name())); err == nil {
			err = t.parseRules(f.Name(), string(text))
		}
	}
	if err != nil {
		panic(err) // the text is part of the program, and tests parse it
	}
	return t
})

func newRuleTable() *ruleTable {
	return &ruleTable{make(map[string]*Rule, 192), map[string]*Rule{}, make(map[string]*refusal, 192)}
}

// checks are the parsers for languages of commands.
func checks() map[string]func(*call) *refusal {
	return map[string]func(*call) *refusal{
		"awk": checkAwk, "blkid": checkBlkid, "curl": checkCurl, "date": checkDate, "dpkg": checkDpkg, "find": checkFind,
		"interface": checkInterface, "ip": checkIP, "nslookup": checkNslookup, "openssl": checkOpenSSL,
		"ping": checkPing, "pip": checkPip, "rpm": checkRPM, "sed": checkSed, "sysctl": checkSysctl, "test": checkTest,
		"timeout": checkTimeout, "uniq": checkUniq, "xargs": checkXargs,
	}
}

// parseRules adds the rules of a file.
func (t *ruleTable) parseRules(file, text string) error {
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
			if err := t.addRule(names, rule, refused); err != nil {
				return fmt.Errorf("%s: line %d: %w", file, number, err)
			}
			names, rule, refused = strings.Split(line, ", "), Rule{}, ""
		case key == "refused":
			refused = value
		case key == "check" && checks[value] != nil:
			rule.check = checks[value]
		case !rule.setKey(key, value):
			return fmt.Errorf("%s: line %d: the key %q or its value is unknown", file, number, key)
		}
	}
	if err := t.addRule(names, rule, refused); err != nil {
		return fmt.Errorf("%s: line %d: %w", file, number, err)
	}
	return nil
}

// addRule adds a rule under each of its names.
func (t *ruleTable) addRule(names []string, rule Rule, refused string) error {
	for _, name := range names {
		r := rule
		r.Name = name
		program, _, nested := strings.Cut(name, " ")
		switch {
		case t.rules[name] != nil || t.nested[name] != nil || t.refused[name] != nil:
			return fmt.Errorf("the command %s has two rules", name)
		case refused != "":
			t.refused[name] = newRefusal(r.Hint, "%s %s", name, refused)
		case nested && t.rules[program] == nil:
			return fmt.Errorf("the rule of the program %s must come before", program)
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
	return nil
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
