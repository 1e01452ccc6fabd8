package readonly

import (
	"slices"
	"strings"
	"testing"
)

// examples are the arguments with which a rule accepts a call, for rules that need more than an option. %s is the place
// of the option.
var examples = map[string]string{
	"apk": "info %s", "apt": "list %s", "apt-cache": "policy %s", "apt-mark": "showhold %s",
	"awk":  "%s '{print $1}' /etc/hosts",
	"gawk": "%s '{print $1}' /etc/hosts", "mawk": "%s '{print $1}' /etc/hosts", "nawk": "%s '{print $1}' /etc/hosts",
	"cd": "%s /etc", "command": "%s -v ls", "crontab": "-l %s", "curl": "%s http://127.0.0.1/", "ethtool": "%s eth0",
	"find": "%s /etc -name x", "getent": "%s passwd", "host": "%s example.com", "nslookup": "%s example.com",
	"nstat":   "-s %s",
	"openssl": "x509 -noout %s", "ping": "%s 10.0.0.1", "ping6": "%s ::1", "pip": "list %s", "pip3": "list %s",
	"printf": "%s x",
	"rpm":    "-q %s bash",
	"sed":    "%s p /etc/hosts", "sleep": "%s 1", "swapon": "-s %s", "test": "%s -f /etc/hosts", "timeout": "%s 5 ls",
	"top": "-b %s",
	"tr":  "%s a b", "type": "%s ls", "ip": "%s address", "dpkg": "-l %s", "grep": "%s x /etc/hosts",
	"egrep": "%s x /etc/hosts",
	"fgrep": "%s x /etc/hosts", "jq": "%s . /etc/x.json",
}

// values are option values for options that do not accept a 1.
var values = map[string]string{
	"curl X": "GET", "curl request": "GET", "curl o": "/dev/null", "curl output": "-", "curl H": "'Accept: x'",
	"curl header": "'Accept: x'", "curl dump-header": "-", "blkid c": "/dev/null", "blkid cache-file": "/dev/null",
	"sed e":          "p",
	"sed expression": "p", "ping i": "1", "awk v": "a=1", "awk assign": "a=1", "gawk v": "a=1", "gawk assign": "a=1",
	"mawk v":      "a=1",
	"mawk assign": "a=1", "nawk v": "a=1", "nawk assign": "a=1",
}

// unusual are options that are accepted with a condition only; the family tests contain them.
var unusual = []string{"pip f", "pip3 f", "rpm V", "rpm verify"}

func exampleLine(r *Rule, option string) string {
	form := examples[r.Name]
	if form == "" {
		form = "%s"
		if len(r.Subs) > 0 {
			form = r.Subs[0] + " %s"
		}
		if r.Operands != NoOperands && r.Operands != checked && !r.Inert {
			form += strings.Repeat(" 1", r.Least)
		}
	}
	return strings.Join(strings.Fields(r.Name+" "+strings.Replace(form, "%s", option, 1)), " ")
}

// TestEveryOption checks that each option of each rule is accepted, and that the rendered text is accepted again.
func TestEveryOption(t *testing.T) {
	accept := func(r *Rule, name, option string) {
		if slices.Contains(unusual, r.Name+" "+name) {
			return
		}
		line := exampleLine(r, option)
		v := Check(line, Options{})
		if !v.Accepted() {
			t.Errorf("%s: %s", line, v.Reason)
		} else if again := Check(v.Text, Options{}); again.Text != v.Text {
			t.Errorf("%s: %q is checked again as %q %s", line, v.Text, again.Text, again.Reason)
		}
	}
	for _, r := range builtinRules().rules {
		value := func(name string) string {
			if v := values[r.Name+" "+name]; v != "" {
				return v
			}
			return "1"
		}
		if r.Least == 0 || examples[r.Name] != "" {
			accept(r, "", "")
		}
		for _, f := range strings.Split(r.Flags+r.Maybes, "") {
			accept(r, f, "-"+f)
		}
		for _, f := range strings.Split(r.Values, "") {
			accept(r, f, "-"+f+" "+value(f))
		}
		for entry := range strings.FieldsSeq(r.Long) {
			hyphens := "--"
			if r.Hyphen {
				hyphens = "-"
			}
			name := strings.TrimSuffix(strings.TrimSuffix(entry, "[=]"), "=")
			switch {
			case strings.HasSuffix(entry, "[=]"):
				accept(r, name, hyphens+name+"=1")
				accept(r, name, hyphens+name)
			case strings.HasSuffix(entry, "="):
				accept(r, name, hyphens+name+" "+value(name))
				accept(r, name, hyphens+name+"="+value(name))
			default:
				accept(r, name, hyphens+name)
			}
		}
		for _, sub := range r.Subs {
			accept(&Rule{Name: r.Name, Subs: []string{sub}}, "", "")
		}
	}
}

// TestEveryAct checks that each option that acts is refused with its reason, also if it is abbreviated or bundled.
func TestEveryAct(t *testing.T) {
	for _, r := range builtinRules().rules {
		for _, a := range r.Acts {
			for option := range strings.FieldsSeq(a.Options) {
				line := exampleLine(r, option)
				switch v := Check(line, Options{}); {
				case v.Accepted():
					t.Errorf("%s is accepted as %q", line, v.Text)
				case !strings.Contains(v.Reason, a.Reason) && !strings.HasPrefix(option, "---"):
					t.Errorf("%s: the reason is %q, want %q", line, v.Reason, a.Reason)
				}
				if v := Check(exampleLine(r, option+"=x"), Options{}); v.Accepted() {
					t.Errorf("%s=x is accepted as %q", line, v.Text)
				}
			}
		}
	}
}

// TestRules checks that each rule names its attack, and that no option is both accepted and refused.
func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for name, r := range builtinRules().rules {
		if r.Stops == "" {
			t.Errorf("%s names no attack", name)
		}
		if r.Inert && len(r.Acts) > 0 {
			t.Errorf("%s is inert and has options that act", name)
		}
		if builtinRules().refused[name] != nil {
			t.Errorf("%s has a rule and is refused by name", name)
		}
		for _, f := range strings.Split(r.Flags+r.Values+r.Maybes, "") {
			if f != "" && strings.Count(r.Flags+r.Values+r.Maybes, f) > 1 {
				t.Errorf("%s lists the option -%s twice", name, f)
			}
			if r.findAct("-"+f) != nil {
				t.Errorf("%s accepts and refuses the option -%s", name, f)
			}
		}
		clear(seen)
		for entry := range strings.FieldsSeq(r.Long) {
			long := strings.TrimSuffix(strings.TrimSuffix(entry, "[=]"), "=")
			if seen[long] {
				t.Errorf("%s lists the option --%s twice", name, long)
			}
			if seen[long] = true; r.findAct("--"+long) != nil {
				t.Errorf("%s accepts and refuses the option --%s", name, long)
			}
		}
	}
	for name := range builtinRules().refused {
		if v := Check(name+" x", Options{}); v.Accepted() || v.Hint == "" {
			t.Errorf("%s is accepted, or refused without a hint", name)
		}
	}
}

// TestOperatorRules checks commands that an operator adds.
func TestOperatorRules(t *testing.T) {
	own := Options{Rules: []Rule{
		{Name: "appctl", Dir: "/opt/app/bin", Subs: []string{"status", "queue list"}, Flags: "v", Values: "n",
			Long: "json format=", Operands: Words,
			Acts: []Act{{"-f --flush", "empties the queue"}}, Network: true},
		{Name: "rm", Operands: Files, Inert: true}, // invalid: the name is refused
		{Name: "ls", Flags: "Y"},                   // invalid: the name has a built-in rule
		{Name: "x y"}, {Name: "-x"}, {Name: ""}, {Name: "a", Dir: "bin"}, {Name: "a", Dir: "/a/../b"},
		{Name: "a", Operands: "checked"}, {Name: "a", Least: -1},
	}}
	for i, r := range own.Rules[1:] {
		if r.Validate() == nil {
			t.Errorf("rule %d is valid", i+1)
		}
	}
	for line, want := range map[string]string{
		"appctl status -v":              "/opt/app/bin/appctl status -v",
		"/opt/app/bin/appctl status":    "/opt/app/bin/appctl status",
		"appctl queue list --form text": "/opt/app/bin/appctl queue list --format text",
		"appctl queue purge":            "", "appctl --flush status": "", "appctl status --help": "", "appctl": "",
		"./appctl status":    "",
		"/tmp/appctl status": "", "rm x": "", "ls -Y": "", "a": "", "echo x | xargs appctl status": "",
	} {
		v := Check(line, own)
		if v.Text != want {
			t.Errorf("%s: %q %s, want %q", line, v.Text, v.Reason, want)
		}
		if want != "" &&
			(len(v.Commands) != 1 || !v.Commands[0].Added || !v.Commands[0].Network || v.Commands[0].Name != "appctl") {
			t.Errorf("%s: %+v is not marked", line, v.Commands)
		}
	}
	if v := Check("ls", own); v.Commands[0].Added {
		t.Error("ls is marked as a command of the operator")
	}
}

// TestParseRules checks that a text of rules with an unknown key or value is refused with its file and line.
func TestParseRules(t *testing.T) {
	for _, text := range []string{"a\n  unknown x\n", "a\n  is big\n", "a\n  operands things\n", "a\n  operands words least\n",
		"a\n  operands words least 0\n", "a\n  act writes\n", "a\n  check nothing\n", "a\n  hint\n", "a\n  long\n",
		"a, a\n  is inert\n", "b c\n  is inert\n"} {
		if err := newRuleTable().parseRules("x.txt", text); err == nil || !strings.HasPrefix(err.Error(), "x.txt: line 2: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	got := newRuleTable()
	err := got.parseRules("x.txt", "a, b\n  is inert\n  operands words least 1 most 2\n  act writes: -o --out\n# c\n\na x\n  flags v")
	if err != nil || len(got.rules) != 2 || got.rules["b"].Most != 2 || !got.rules["b"].Inert || got.nested["a x"].Flags != "v" ||
		got.rules["a"].findAct("--out") == nil {
		t.Errorf("%+v %v", got, err)
	}
	if err := got.parseRules("y.txt", "b\n  is inert\n"); err == nil || !strings.Contains(err.Error(), "has two rules") {
		t.Errorf("a command in two files: %v", err)
	}
}
