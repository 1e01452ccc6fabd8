package pack

import (
	"encoding/json"
	"strings"
	"testing"

	"bailey"
	"bailey/packs"
)

// TestMatch checks that a command line maps to a capability only if the manifest accounts for every argument.
func TestMatch(t *testing.T) {
	catalog, err := LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ id, line, want string }{
		{"git.status", "git status", `[{"repo":"."}]`},
		{"git.status", "/usr/bin/git status -s", `[{"repo":".","short":true}]`},
		{"git.status", "git status -- a/b", `[{"paths":["a/b"],"repo":"."}]`},
		{"git.status", "git status -sb", `[{"options":["-b"],"repo":".","short":true}]`},
		{"git.status", "git status -s -s", `[{"options":["-s"],"repo":".","short":true}]`},
		{"git.status", "git status --ignored", `[{"options":["--ignored"],"repo":"."}]`},
		{"git.status", "git -C /etc status", `[{"repo":"/etc"}]`},
		{"git.status", "git -C a -C b status", `[{"repo":"a/b"}]`},
		{"git.status", "git -C a -C /b --no-pager -C c status", `[{"repo":"/b/c"}]`},
		{"git.status", "git -C ../x status", `[{"repo":"../x"}]`},
		{"git.status", "git -C a/../b status", ""}, // a may be a link
		{"git.status", "git -C a -C ../b status", ""},
		{"git.status", "git -Ca status", ""},
		{"git.status", "git status -C a", ""},
		{"git.status", "git -C", ""},
		{"git.version", "git -C a --version", `[{"repo":"a"}]`},
		{"git.status", "git -c core.fsmonitor=x status", ""},
		{"git.status", "/tmp/git status", ""},
		{"git.status", "./git status", ""},
		{"git.log", "git log --oneline -5", `[{"limit":"5","options":["--oneline"],"repo":"."}]`},
		{"git.log", "git log -n 5 main -- x", `[{"limit":"5","paths":["x"],"repo":".","revs":["main"]}]`},
		{"git.log", "git log --max-count=5", `[{"limit":"5","repo":"."}]`},
		{"git.log", "git log --output=x", ""},
		{"git.log", "git log -n", ""},
		{"git.log", "git log a b", `[{"repo":".","revs":["a","b"]}]`},
		{"git.log", "git --no-pager log", `[{"repo":"."}]`},
		{"git.log", "git log --no-pager", ""},
		{"git.log", "git log --author ada --since=yesterday -U3", `[{"diff":["-U3"],"options":["--author=ada","--since=yesterday"],"repo":"."}]`},
		{"git.log", "git log --author", ""},
		{"git.log", "git log --pretty=format:%h", `[{"options":["--pretty=format:%h"],"repo":"."}]`},
		{"git.blame", "git blame -wC -L 1,2 a", `[{"options":["-w","-C","-L1,2"],"repo":".","words":["a"]}]`},
		{"git.grep", "git grep -nO x", ""},
		{"git.merge", "git merge -s evil main", ""},
		{"git.format-patch", "git format-patch -o /tmp HEAD", ""},
		{"git.diff", "git diff --ext-diff", ""},
		{"git.diff", "git diff --staged --stat", `[{"repo":".","staged":true,"stat":true}]`},
		{"git.diff", "git diff --stat=5", `[{"diff":["--stat=5"],"repo":"."}]`},
		{"git.branch-list", "git branch", `[{"repo":"."}]`},
		{"git.branch-list", "git branch -D main", ""},
		{"git.branch-list", "git branch new", ""},
		{"file.read", "cat a b", `[{"path":"a"},{"path":"b"}]`},
		{"file.read", "cat -- -n", `[{"path":"-n"}]`},
		{"file.read", "head -5 a", `[{"path":"a"}]`},
		{"file.read", "head -n5 a", `[{"path":"a"}]`},
		{"file.read", "ls -la", `[{"path":"."}]`},
		{"file.read", "grep -rn key src lib", `[{"path":"src"},{"path":"lib"}]`},
		{"file.read", "grep key", `[{"path":"."}]`},
		{"file.read", "grep", ""},
		{"file.read", "grep -f secrets x", ""},
		{"file.read", "rg --pre sh x", ""},
		{"file.read", "find . -name x -type f", `[{"path":"."}]`},
		{"file.read", "find . -delete", ""},
		{"file.read", "find -- . -delete", ""},
		{"file.read", "rg -e -n /x", `[{"path":"/x"}]`},
		{"file.read", "rg -e -- /x y", `[{"path":"/x"},{"path":"y"}]`},
		{"file.read", "rg -e -e x /y", `[{"path":"x"},{"path":"/y"}]`},
		{"file.read", "rg --regexp -n /x", `[{"path":"/x"}]`},
		{"file.read", "rg -ne x /y", `[{"path":"/y"}]`},
		{"file.read", "rg /x -e y", `[{"path":"/x"}]`},
		{"file.read", "rg -C -e x /y", `[{"path":"/y"}]`},
		{"file.read", "head -n 5 x", `[{"path":"x"}]`},
		{"file.read", "head -n+5 x", `[{"path":"x"}]`},
		{"file.read", "head x -n /y", ""},
		{"file.read", "head x -n /1", ""},
		{"file.read", "grep -A /y x z", ""},
		{"file.read", "find . -exec rm x ;", ""},
		{"file.read", "cat" + strings.Repeat(" a", 17), ""},
		{"system.echo", "echo hi", `[{"message":"hi"}]`},
		{"system.echo", "echo -e hi", ""},
		{"npm.npx", "npx --yes tsc -p . --noEmit -- x", `[{"args":["-p",".","--noEmit","--","x"],"dir":".","options":["--yes"],"program":"tsc"}]`},
		{"npm.npx", "npx -- tsc --noEmit", `[{"args":["--noEmit"],"dir":".","program":"tsc"}]`},
		{"npm.npx", "npx --unknown tsc", ""},
		{"pnpm.test", "pnpm test -s --unknown x", `[{"args":["--unknown","x"],"dir":".","options":["-s"]}]`},
		{"pnpm.test", "pnpm test -- x", `[{"args":["--","x"],"dir":"."}]`},
		{"yarn.run", "yarn --silent build --silent", `[{"args":["--silent"],"dir":".","global":["--silent"],"script":"build"}]`},
		{"jq.file", "jq --arg a b -rc . x", `[{"dir":".","files":["x"],"filter":".","options":["--arg=a=b","-r","-c"]}]`},
		{"git.commit", "git commit -am x", `[{"all":true,"message":"x","repo":"."}]`},
		{"git.commit", "git commit -amx", `[{"all":true,"message":"x","repo":"."}]`},
		{"git.commit", "git commit -am", ""},
		{"git.commit", "git commit -aam x", ""},
		{"git.commit", "git commit -axm x", ""},
		{"git.commit", "git commit -ma -- x", `[{"message":"a","paths":["x"],"repo":"."}]`},
		{"git.commit", "git commit -m x -- a b", `[{"message":"x","paths":["a","b"],"repo":"."}]`},
	} {
		m, err := catalog.Lookup(bailey.CapabilityID(c.id))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if inputs, ok := m.Match(strings.Fields(c.line)); ok {
			b, _ := json.Marshal(inputs)
			got = string(b)
			for _, in := range inputs {
				if _, err := m.Check(in, true); err != nil {
					t.Errorf("%s: %v", c.line, err)
				}
			}
		}
		if got != c.want {
			t.Errorf("%s as %s: %s, want %s", c.line, c.id, got, c.want)
		}
	}
}

// TestMatchFlags checks options as Go's pflag reads them, and options that may occur several times.
func TestMatchFlags(t *testing.T) {
	demo, err := Parse("x", []byte(`name: demo
version: 1.0.0
capabilities:
  - name: x
    description: x
    backend: {type: subprocess, command: x, args: ["{{ input.files | each: \"--file=\" }}", "{{ input.out }}", "{{ input.all }}"]}
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    cagedLines: true
    argvPattern:
      - "x {-f|-f=|--file files} {-o|-o=|--out out} {-a all} run"
      - "x {-f files!} {-a all!} [verb]"
    inputSchema:
      type: object
      properties:
        files: {type: array, items: {type: string}}
        out: {type: string}
        all: {type: boolean}
        verb: {type: string, enum: [go, stop]}
`))
	if err != nil {
		t.Fatal(err)
	}
	m := demo.Capabilities[0]
	if !m.CagedLines() {
		t.Error("cagedLines is not known")
	}
	for line, want := range map[string]string{
		"x -f=a -f b --file=c run": `[{"files":["a","b","c"]}]`,
		"x -fa run":                `[{"files":["a"]}]`,
		"x -o=json -a run":         `[{"all":true,"out":"json"}]`,
		"x -ao json run":           `[{"all":true,"out":"json"}]`,
		"x --out==a run":           `[{"out":"=a"}]`,
		"x -o=a -o=b run":          "",
		"x -a=true run":            "",
		"x -f":                     "",
		"x -f a -a go":             `[{"all":true,"files":["a"],"verb":"go"}]`,
		"x stop -af a":             `[{"all":true,"files":["a"],"verb":"stop"}]`,
		"x -f a go":                "",
		"x -a go":                  "",
		"x -f a -a wait":           "",
	} {
		got := ""
		if inputs, ok := m.Match(strings.Fields(line)); ok {
			b, _ := json.Marshal(inputs)
			got = string(b)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}

func TestPatternRefused(t *testing.T) {
	s := &schema{props: map[string]*rule{}}
	for _, text := range []string{"", "[x]", "a {-n", "a [x]", "a {-n x}", "a {n}", "a {} b", "{-n} a", "a [x] b", "a {... n}", "a {-n !}", "a {-n x!}", "a [+ n]", "a [+ _]", "a [-- + n]", "a [... n]", "a [... _]", "a [-- ... n]"} {
		if _, wrong := readPattern(text, s); wrong == "" {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestRestOfLine checks which words an operand takes that takes the rest of the line.
func TestRestOfLine(t *testing.T) {
	flags, _ := parseOptionTable("-= -o= -v")
	s := &schema{props: map[string]*rule{"flags": {Type: []string{"array"}, Items: &rule{options: flags}}, "program": {Type: []string{"string"}}, "words": {Type: []string{"array"}},
		"quiet": {Type: []string{"boolean"}}}}
	for _, c := range []struct{ pattern, line, want string }{
		{"run {-q quiet} [+ words]", "run -q a -q -- b", `{"quiet":true,"words":["a","-q","--","b"]}`},
		{"run {-q quiet} [+ words]", "run -x a", ""},
		{"run {-q quiet} [+ words]", "run -- -x a", `{"words":["-x","a"]}`},
		{"run {-q quiet} [+ words]", "run -", `{"words":["-"]}`},
		{"run {-q quiet} [+ words]", "run -q", `{"quiet":true}`},
		{"run {-q quiet} [program] [+ words]", "run a -q b", `{"program":"a","words":["-q","b"]}`},
		{"run {-q quiet} [program] [+ words]", "run -q a", `{"program":"a","quiet":true}`},
		{"run {-q quiet} -m [program] [+ words]", "run -q -m a -m", `{"program":"a","quiet":true,"words":["-m"]}`},
		{"run {-q quiet} -m [program] [+ words]", "run -m -q a", ""},
		{"go {... flags} [+ words]", "go -o x a", `{"flags":["-o=x"],"words":["a"]}`},
		{"go {... flags} [+ words]", "go -overlay x", ""},
		{"go {... flags} [+ words]", "go -vv x", ""},
	} {
		p, wrong := readPattern(c.pattern, s)
		if wrong != "" {
			t.Fatal(wrong)
		}
		got := ""
		if inputs, ok := p.matchArgv(strings.Fields(c.line)); ok {
			b, _ := json.Marshal(inputs[0])
			got = string(b)
		}
		if got != c.want {
			t.Errorf("%s as %s: %s, want %s", c.line, c.pattern, got, c.want)
		}
	}
	if _, wrong := readPattern("run [+ program]", s); wrong == "" {
		t.Error("an operand that is no list takes the rest")
	}
}

func FuzzMatch(f *testing.F) {
	catalog, err := LoadBuiltin(packs.FS)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("git\x00log\x00-n\x005")
	f.Add("grep\x00-rn\x00--\x00-x")
	f.Fuzz(func(t *testing.T, line string) {
		argv := strings.Split(line, "\x00")
		for _, m := range catalog.All() {
			inputs, ok := m.Match(argv)
			if ok && (len(inputs) == 0 || len(inputs) > maxMany) {
				t.Errorf("%q: %d inputs", argv, len(inputs))
			}
			for _, in := range inputs {
				m.Check(in, true)
			}
		}
	})
}
