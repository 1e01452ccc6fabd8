package pack

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"bailey"
	"bailey/internal/ktest"
)

// sample is a pack with one capability. Tests replace parts of it.
const sample = `name: demo
version: 1.0.0
capabilities:
  - name: look
    description: looks
    risk: low
    sideEffectClass: readOnly
    reversibility: readOnly
    isolation: jail
    timeout: 30s
    backend:
      type: subprocess
      command: ls
      args: ["-l", "--width={{ input.width | default: \"80\" }}", "{{ input.all | flag: \"--all\" }}", "--", "{{ input.dir }}"]
      cwdFromInput: dir
      env: {COLUMNS: "80"}
    sandboxProfile:
      fs: {ro: [/usr/share/misc], rw: [], exec: []}
      network: {egress: []}
      limits: {memoryMiB: 64, tasks: 4}
      env: {LANGUAGE: en}
    credentials:
      - {name: token, env: DEMO_TOKEN}
    inputSchema:
      type: object
      required: [dir]
      properties:
        dir: {type: string, format: path}
        width: {type: integer, minimum: 1}
        all: {type: boolean}
`

func mustParse(t testing.TB, text string) *Pack {
	t.Helper()
	p, err := Parse("demo/pack.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParse(t *testing.T) {
	p := mustParse(t, sample)
	if p.Name != "demo" || p.Version != "1.0.0" || len(p.Capabilities) != 1 {
		t.Fatalf("%+v", p)
	}
	c := p.Capabilities[0]
	if c.ID != "demo.look" || c.Pack != "demo" || c.Version != "1.0.0" || c.Risk != Low || c.SideEffect != ReadOnly || c.Reversibility != NothingDone ||
		c.Isolation != Jail || c.Command != "ls" || c.Timeout != 30*time.Second || c.Builtin || len(c.Digest) != 64 {
		t.Errorf("%+v", c)
	}
	if got := string(c.InputSchema()); got != `{"additionalProperties":false,"properties":{"all":{"type":"boolean"},"dir":{"format":"path","type":"string"},"width":{"minimum":1,"type":"integer"}},"required":["dir"],"type":"object"}` {
		t.Error(got)
	}
	if w := c.Wants(); len(w) != 1 || w[0] != (bailey.Want{Name: "token", Env: "DEMO_TOKEN"}) {
		t.Error(w)
	}
	if in := c.PathInputs(); len(in) != 1 || in[0] != (PathInput{Name: "dir", Dir: true}) {
		t.Error(in)
	}
	j := c.Job([]string{"-l"}, []bailey.Place{{Input: "dir", Path: "/w"}})
	if j.Capability != "demo.look" || j.Command != "ls" || j.Dir != "/w" || strings.Join(j.Env, " ") != "COLUMNS=80 LANGUAGE=en" ||
		strings.Join(j.EnvNames, " ") != "DEMO_TOKEN" || j.Limits.MemoryBytes != 64<<20 || j.Limits.Tasks != 4 ||
		strings.Join(j.Read, " ") != "/usr/share/misc" || j.NeedsProc || j.Timeout != 30*time.Second {
		t.Errorf("%+v", j)
	}
}

func TestAliasesMeanTheSame(t *testing.T) {
	want := mustParse(t, sample).Capabilities[0].Digest
	for _, r := range [][2]string{
		{"sideEffectClass: readOnly", "sideEffectClass: read_only"},
		{"sideEffectClass: readOnly", "sideEffectClass: readonly"},
		{"reversibility: readOnly", "reversibility: read_only"},
		{"isolation: jail", "isolation: warm_worker"},
		{"    isolation: jail\n", ""},
		{"risk: low", "# a comment\n    risk: 'low'"},
	} {
		if got := mustParse(t, strings.Replace(sample, r[0], r[1], 1)).Capabilities[0].Digest; got != want {
			t.Errorf("%q reads otherwise than %q", r[1], r[0])
		}
	}
	for snake, camel := range manifestFormat.Aliases {
		if !strings.Contains(sample, camel+":") {
			continue
		}
		if got := mustParse(t, strings.Replace(sample, camel+":", snake+":", 1)).Capabilities[0].Digest; got != want {
			t.Errorf("%s reads otherwise than %s", snake, camel)
		}
	}
	pattern := func(key string) string {
		return mustParse(t, strings.Replace(sample, "    risk:", "    "+key+": demo look\n    risk:", 1)).Capabilities[0].Digest
	}
	if pattern("argv_pattern") != pattern("argvPattern") {
		t.Error("argv_pattern reads otherwise than argvPattern")
	}
	write := strings.NewReplacer("sideEffectClass: readOnly", "sideEffectClass: write_remote", "reversibility: readOnly", "reversibility: reversible").Replace(sample)
	if got := mustParse(t, write).Capabilities[0].SideEffect; got != Mutating {
		t.Errorf("write_remote is %s", got)
	}
}

func TestDigestCoversWhatActs(t *testing.T) {
	seen := map[string]string{mustParse(t, sample).Capabilities[0].Digest: "the sample"}
	for _, r := range [][2]string{
		{"1.0.0", "1.0.1"}, {"name: demo", "name: demo2"}, {"name: look", "name: look2"}, {"risk: low", "risk: high"}, {"30s", "31s"},
		{"command: ls", "command: dir"}, {"\"-l\", ", ""}, {"COLUMNS: \"80\"", "COLUMNS: \"81\""}, {"/usr/share/misc", "/usr/share/dict"},
		{"tasks: 4", "tasks: 5"}, {"memoryMiB: 64", "memoryMiB: 65"}, {"minimum: 1", "minimum: 2"}, {"DEMO_TOKEN", "DEMO_KEY"}, {"description: looks", "description: stares"},
		{"      cwdFromInput: dir\n", ""}, {"LANGUAGE: en}", "LANGUAGE: en}\n      proc: true"},
	} {
		d := mustParse(t, strings.Replace(sample, r[0], r[1], 1)).Capabilities[0].Digest
		if other, ok := seen[d]; ok {
			t.Errorf("%q has the digest of %s", r[1], other)
		}
		seen[d] = r[1]
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown key", "risk: low", "rsik: low", `6:5: a capability has no key "rsik"; did you mean "risk"?`},
		{"unknown pack key", "version: 1.0.0", "version: 1.0.0\nlicence: x", `3:1: the pack has no key "licence"; did you mean "license"?`},
		{"unknown backend key", "command: ls", "command: ls\n      shell: true", `14:7: backend has no key "shell"`},
		{"duplicate key", "risk: low", "risk: low\n    risk: low", `7:5: a capability has the key "risk" twice`},
		{"duplicate by alias", "risk: low", "argvPattern: a\n    argv_pattern: b\n    risk: low", `"argvPattern" twice`},
		{"both spellings", "risk: low", "risk: low\n    input_schema: {}", `a capability has the key "inputSchema" twice`},
		{"an alias where names are the author's", "width: {type: integer, minimum: 1}", "width: {type: integer, input_schema: {}}", `a schema has no key "inputSchema"`},
		{"cwd twice", "cwdFromInput: dir", "cwdFromInput: dir\n      cwd: workspace", "backend has both cwd and cwdFromInput"},
		{"cwd elsewhere", "cwdFromInput: dir", "cwd: /etc", "cwd must be one of none, workspace"},
		{"wrong type", "name: look", "name: [look]", "4:11: name must be a string, not a list"},
		{"number for text", "version: 1.0.0", "version: 1.0", "version must be a string, not a number (quote it"},
		{"nothing for text", "description: looks", "description:", "description must be a string, not nothing"},
		{"enum", "risk: low", "risk: lwo", `6:11: risk must be one of critical, high, low, medium, not "lwo"; did you mean "low"?`},
		{"missing", "    risk: low\n", "", "a capability needs risk"},
		{"several missing", "    risk: low\n    sideEffectClass: readOnly\n", "", "a capability needs risk, sideEffectClass"},
		{"firecracker", "isolation: jail", "isolation: firecracker", "use microvm"},
		{"builtin", "isolation: jail", "isolation: builtin", "isolation builtin is reserved for the gateway itself"},
		{"backend mcp", "type: subprocess", "type: mcp", "this version cannot run backend mcp"},
		{"backend unknown", "type: subprocess", "type: shell", "type must be one of agent, builtin, mcp"},
		{"rw of a path", "rw: []", "rw: [/tmp]", "rw must be path inputs"},
		{"rw of words", "rw: []", `rw: ["{{ input.width }}"]`, "rw must be path inputs"},
		{"rw below", "rw: []", `rw: ["{{ input.dir }}/x"]`, "rw must be only a path input"},
		{"rw of a default", "rw: []", `rw: ["{{ input.dir | default: \"/\" }}"]`, "rw must be path inputs"},
		{"rw that only looks", "rw: []", `rw: ["{{ input.dir }}"]`, "sideEffectClass readOnly contradicts rw"},
		{"hide of a path", "rw: []", "hide: [/etc/passwd]", "hide must be path inputs"},
		{"hide of all", "rw: []", `hide: ["{{ input.dir }}"]`, "hide must be a path below"},
		{"hide of a slash", "rw: []", `hide: ["{{ input.dir }}/"]`, "hide must be a path below"},
		{"hide beside", "rw: []", `hide: ["{{ input.dir }}x"]`, "hide must be a path below"},
		{"climbing hide", "rw: []", `hide: ["{{ input.dir }}/../x"]`, "hide must be a path below"},
		{"hide of two", "rw: []", `hide: ["{{ input.dir }}/{{ input.dir }}"]`, "hide must be a path below"},
		{"exec", "exec: []", "exec: [/bin/]", "only built-in packs may name directories of programs"},
		{"libs", "exec: []", "libs: [/usr/lib]", "only built-in packs may name directories of libraries"},
		{"preview of another shape", "timeout: 30s", "preview: [ls]", "10:14: preview must be a mapping, not a list"},
		{"preview without a command line", "timeout: 30s", "preview: {timeout: 1s}", "preview needs args"},
		{"preview of nothing", "timeout: 30s", "preview: {args: []}", "args of a preview must be a command line"},
		{"preview in words", "timeout: 30s", "preview: {args: ls -l}", "args must be a list"},
		{"preview of an empty line", "timeout: 30s", "preview: {args: [[-l], []]}", "each command line of a preview must be a list"},
		{"preview of a mixture", "timeout: 30s", "preview: {args: [[-l], x]}", "each command line of a preview must be a list"},
		{"preview too often", "timeout: 30s", "preview: {args: [[a],[a],[a],[a],[a],[a],[a],[a],[a]]}", "at most 8 command lines, not 9"},
		{"preview of an unknown input", "timeout: 30s", `preview: {args: ["{{ input.dri }}"]}`, `input.dri is not in the inputSchema; did you mean "dir"?`},
		{"preview whose option a value chooses", "timeout: 30s", `preview: {args: ["-{{ input.dir }}"]}`, "would choose the option"},
		{"preview of a shell", "timeout: 30s", `preview: {command: ./sh, args: [x]}`, "command must be a program's name"},
		{"preview that takes long", "timeout: 30s", "preview: {args: [x], timeout: 31s}", "timeout of a preview is at most 30s, not 31s"},
		{"preview with a loader", "timeout: 30s", "preview: {args: [x], env: {LD_PRELOAD: x}}", "LD_PRELOAD controls a loader"},
		{"preview that sets again", "timeout: 30s", "preview: {args: [x], env: {COLUMNS: \"1\"}}", "preview sets COLUMNS, which the capability sets itself"},
		{"preview that covers more", "timeout: 30s", "preview: {args: [x], covers: everything}", `covers must be one of contents, not "everything"`},
		{"preview with another key", "timeout: 30s", "preview: {args: [x], shell: true}", `preview has no key "shell"`},
		{"bind in words", "timeout: 30s", `preview: {args: [[a], [b]], bind: x}`, `bind must be a list`},
		{"bind of nothing", "timeout: 30s", `preview: {args: [[a], [b]], bind: []}`, `bind must have one to 4 arguments, not 0`},
		{"bind without all", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{pattern: '(x)', argument: '--', as: '{{ shown }}'}]}`, `10:40: an argument of bind needs look`},
		{"bind with another key", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, shell: true, pattern: '(x)', argument: '--', as: '{{ shown }}'}]}`, `an argument of bind has no key "shell"`},
		{"bind of a look that is none", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 3, pattern: '(x)', argument: '--', as: '{{ shown }}'}]}`, `10:47: look 3 does not exist: the preview has 2 command lines`},
		{"bind of look zero", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 0, pattern: '(x)', argument: '--', as: '{{ shown }}'}]}`, `look must be an integer from 1`},
		{"bind of another argument", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)', argument: --evil, as: '{{ shown }}'}]}`, `argument must be exactly one of the backend's args; "--evil" is not`},
		{"bind without a group", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: 'x', argument: '--', as: '{{ shown }}'}]}`, `pattern must have one group, for the shown value, not 0`},
		{"bind of two groups", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)(y)', argument: '--', as: '{{ shown }}'}]}`, `pattern must have one group, for the shown value, not 2`},
		{"bind of a pattern that is none", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x', argument: '--', as: '{{ shown }}'}]}`, `pattern is not an RE2 regular expression`},
		{"bind of a pattern that would not end", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)\Q', argument: '--', as: '{{ shown }}'}]}`, `pattern is not an RE2 regular expression`},
		{"bind that shows nothing", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)', argument: '--', as: 'x'}]}`, `10:86: an argument must have {{ shown }} once, not 0 times`},
		{"bind that shows twice", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)', argument: '--', as: '{{ shown }}{{shown}}'}]}`, `an argument must have {{ shown }} once, not 2 times`},
		{"bind that chooses the option", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)', argument: '--', as: '-{{ shown }}'}]}`, `{{ shown }} would choose the option`},
		{"bind of an unknown input", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)', argument: '--', as: '{{ shown }}{{ input.dri }}'}]}`, `input.dri is not in the inputSchema; did you mean "dir"?`},
		{"bind twice", "timeout: 30s", `preview: {args: [[a], [b]], bind: [{look: 2, pattern: '(x)', argument: '--', as: '{{ shown }}'}, {look: 1, pattern: '(y)', argument: '--', as: 'y{{ shown }}'}]}`, `bind has the argument "--" twice`},
		{"shown elsewhere", "timeout: 30s", `preview: {args: ["{{ shown }}"]}`, "10:14: {{ shown }} needs a bind"},
		{"shown that follows itself", "timeout: 30s", "preview: {args: ['x{{ shown }}'], bind: [{look: 1, pattern: '(x)', argument: '--', as: '{{ shown }}'}]}", "look 1 would depend on itself"},
		{"shown as an option", "timeout: 30s", "preview: {args: [[a], ['-{{ shown }}']], bind: [{look: 1, pattern: '(x)', argument: '--', as: '{{ shown }}'}]}", "would choose the option"},
		{"credential in no kind of file", "env: DEMO_TOKEN}", "env: DEMO_TOKEN, file: please}", "file must be true or false"},
		{"syscalls", "limits:", "syscalls: [bpf]\n      limits:", "syscalls must be empty"},
		{"contradiction", "sideEffectClass: readOnly", "sideEffectClass: destructive", "reversibility readOnly contradicts"},
		{"loader", "COLUMNS", "LD_PRELOAD", "LD_PRELOAD controls a loader"},
		{"loader in lower case", "COLUMNS", "ld_preload", "controls a loader"},
		{"git", "COLUMNS", "GIT_SSH_COMMAND", "only built-in packs may set it"},
		{"loader in the profile", "LANGUAGE", "BASH_ENV", "controls a loader"},
		{"loader as credential", "DEMO_TOKEN", "NODE_OPTIONS", "controls a loader"},
		{"the cage's own", "COLUMNS", "PATH", "PATH is set by the jail itself"},
		{"no env name", "COLUMNS", "1X", "env needs names like"},
		{"env twice", "LANGUAGE", "COLUMNS", "env sets COLUMNS twice"},
		{"env rendered", "COLUMNS: \"80\"", "COLUMNS: \"{{ input.width }}\"", "cannot render inputs into env"},
		{"env of lines", "COLUMNS: \"80\"", "COLUMNS: \"a\\nb\"", "contains a tab or a newline"},
		{"command with a slash", "command: ls", "command: ./ls", "command must be a program's name"},
		{"command with words", "command: ls", "command: ls -l", "command must be a program's name"},
		{"command uncleaned", "command: ls", "command: /bin/../bin/ls", "command must be a program's name"},
		{"relative ro", "[/usr/share/misc]", "[usr/share]", "ro must be absolute paths"},
		{"climbing ro", "[/usr/share/misc]", "[/usr/../etc]", "ro must be absolute paths"},
		{"root as ro", "[/usr/share/misc]", "[/]", "ro must be absolute paths"},
		{"tasks", "tasks: 4", "tasks: 0", "tasks must be an integer from 1"},
		{"memory", "memoryMiB: 64", "memoryMiB: 99999999999999999999", "memoryMiB must be"},
		{"timeout", "timeout: 30s", "timeout: 30", "timeout must be a string"},
		{"timeout in words", "timeout: 30s", "timeout: soon", "timeout must be a duration"},
		{"timeout below", "timeout: 30s", "timeout: -1s", "timeout must be a duration"},
		{"cwd of nothing", "cwdFromInput: dir", "cwdFromInput: dri", `cwdFromInput needs an input of type string, but "dri" is not; did you mean "dir"?`},
		{"cwd of a number", "cwdFromInput: dir", "cwdFromInput: width", "cwdFromInput needs an input of type string"},
		{"foreign id", "name: look", "name: git.status", "is not of pack demo"},
		{"name", "name: look", "name: Look", "name \"Look\" does not match"},
		{"two dots", "name: look", "name: demo.a.b", "does not match"},
		{"anchor", "risk: low", "risk: &a low", "anchors, aliases, tags"},
		{"alias", "risk: low", "risk: *a", "anchors, aliases, tags"},
		{"tag", "risk: low", "risk: !!str low", "anchors, aliases, tags"},
		{"merge", "risk: low", "<<: {risk: low}", "anchors, aliases, tags"},
		{"two documents", "name: demo", "---\nname: x\n---\nname: demo", "must have one YAML document"},
		{"control character", "looks", "lo\x07oks", "control character"},
		{"escaped control character", "description: looks", `description: "\x1b[2J"`, "control character"},
		{"bidi", "looks", "lo\u202eoks", "invisible character"},
		{"escaped bidi", "description: looks", `description: "\u202e"`, "invisible character"},
		{"zero width in a key", "risk:", "ri\u200bsk:", "invisible character"},
		{"not UTF-8", "looks", "lo\xffoks", "invalid UTF-8"},
		{"NUL", "looks", "lo\x00oks", "NUL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(sample, c.old, c.new, 1)
			if text == sample {
				t.Fatalf("%q is not in the sample", c.old)
			}
			wantErr(t, text, c.want)
		})
	}
}

func wantErr(t *testing.T, text, want string) {
	t.Helper()
	p, err := Parse("demo/pack.yaml", []byte(text))
	if err == nil {
		t.Fatalf("accepted: %+v", p.Capabilities[0].spec)
	}
	if bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "" {
		t.Errorf("kind %v, hint %q", bailey.KindOf(err), bailey.HintOf(err))
	}
	if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "demo/pack.yaml:") {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestParseReportsAllAtOnce(t *testing.T) {
	text := strings.NewReplacer("risk: low", "rsik: low", "timeout: 30s", "timeout: soon", "tasks: 4", "tasks: no").Replace(sample)
	_, err := Parse("x", []byte(text))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"x:6:5: ", "x:10:14: timeout", "tasks must be an integer", "a capability needs risk"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

// TestParseBounds checks that hostile bytes give an error soon and do not crash the process.
func TestParseBounds(t *testing.T) {
	ktest.Long(t)
	for name, text := range map[string]string{
		"empty":         "",
		"huge":          sample + strings.Repeat("#", maxFile),
		"brackets":      "name: " + strings.Repeat("[", maxFile/2),
		"braces":        "name: " + strings.Repeat("{a: ", maxFile/8),
		"dashes":        strings.Repeat("- ", maxFile/2),
		"question":      strings.Repeat("? ", maxFile/2),
		"stairs":        stairs(700),
		"list stairs":   strings.ReplaceAll(stairs(700), "a:", "-"),
		"bomb":          "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
		"scalar":        "hello",
		"list":          "- a\n",
		"unclosed":      "name: \"x",
		"tab":           "name:\n\t- x",
		"many faults":   strings.Repeat("x: 1\n", 1000),
		"long key":      strings.Repeat("k", maxFile-10) + ": 1",
		"no bodies":     "---\n---\n",
		"capabilities":  "name: a\nversion: \"1\"\ncapabilities: []\n",
		"cap is scalar": "name: a\nversion: \"1\"\ncapabilities: [x]\n",
	} {
		start := time.Now()
		_, err := Parse("x", []byte(text))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if len(err.Error()) > 8<<10 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
	for cut := range len(sample) {
		Parse("x", []byte(sample[:cut])) // must return
	}
}

func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func TestBuiltinPacksMayMore(t *testing.T) {
	text := strings.NewReplacer("name: look", "name: other.look", "COLUMNS", "GIT_PAGER", "exec: []", "exec: [/bin/sh]").Replace(sample)
	if _, err := Parse("x", []byte(text)); err == nil {
		t.Error("accepted from anybody")
	}
	c, err := LoadBuiltin(fstest.MapFS{"demo/pack.yaml": {Data: []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Lookup("other.look")
	if err != nil || !m.Builtin || m.Pack != "demo" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := Load(fstest.MapFS{"demo/pack.yaml": {Data: []byte(text)}}); err == nil {
		t.Error("Load takes what LoadBuiltin takes")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte(flow(twoSteps)))
	for _, name := range []string{"../packs/git/pack.yaml", "../packs/base/pack.yaml"} {
		if data, err := os.ReadFile(name); err == nil {
			f.Add(data)
		}
	}
	for _, p := range []string{`{args: [-l, "{{ input.dir }}"], covers: contents}`, `{command: cat, args: [[a], ["{{ input.all | flag: \"-a\" }}"]], env: {X: y}, timeout: 5s}`,
		`{args: [a], bind: [{look: 1, pattern: "x (y*)\\n", argument: "{{ input.dir }}", as: "z={{ shown }}"}]}`,
		`{args: [[a], ["{{ shown }}"]], bind: [{look: 1, pattern: "(y*)", argument: "{{ input.dir }}", as: "{{ shown }}"}]}`} {
		f.Add([]byte(strings.Replace(sample, "timeout: 30s", "preview: "+p, 1)))
	}
	f.Add([]byte(outbound(`["a.example:443", "*.b.example:1", "{{ input.url }}", "{{ input.host }}:22"]`, "{name: token, env: DEMO_TOKEN, inject: {to: [\"a.example:443\"], headers: [X], query: [y]}}")))
	for _, key := range []string{"stdin: text", "stdin: file", "output: {page: {limit: width, next: width}}", "isolation: microvm",
		"output_schema: {type: object, properties: {a: {enum: [1]}}, required: [a]}", "output_schema: {type: array, items: {type: string, format: host}}",
		"validators: [{type: RequiredPath, input: dir, path: .git}, {type: DenyArgs, args: [--force, -f]}, {type: RequiredInputKey, key: width}]"} {
		f.Add([]byte(strings.NewReplacer("timeout: 30s", key, "width: {", "stdin: {type: string}\n        width: {").Replace(sample)))
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("- - - {a: [}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("x", data)
		if err != nil {
			if bailey.KindOf(err) != bailey.Invalid || strings.ContainsAny(err.Error(), "\x00\x1b") {
				t.Errorf("%q", err)
			}
			return
		}
		for _, c := range p.Capabilities {
			runs := (c.Isolation == Jail || c.Isolation == MicroVM || c.Isolation == Open) && c.Command != "" || c.Isolation == Workflow && c.StepCount() > 0
			if c.ID == "" || len(c.Digest) != 64 || c.SideEffect == "" || !runs {
				t.Errorf("incomplete: %+v", c)
			}
			places, err := c.Egress(map[string]any{"url": "https://a.example/", "host": "::1"})
			for _, p := range places {
				if e, err := bailey.ParseEndpoint(p); err != nil || e.String() != p {
					t.Errorf("a place is %q: %v", p, err)
				}
			}
			for _, w := range c.Wants() {
				if w.Inject != nil && (w.File || len(w.Inject.To) == 0 || err == nil && !slices.Contains(places, w.Inject.To[0])) {
					t.Errorf("injected: %+v", w.Inject)
				}
			}
			for _, stdout := range []string{"", "{}", `{"a":1,"b":["x",null]}`, `["[REDACTED_X_1]"]`} {
				if c.output == nil {
					break
				}
				if raw, err := c.Structure([]byte(stdout)); (err == nil) != json.Valid(raw) || err != nil && bailey.KindOf(err) != bailey.ToolFailed {
					t.Errorf("%q is %q, %v", stdout, raw, err)
				}
			}
			c.Check(map[string]any{"stdin": "x\ny", "dir": "."}, true) // must return
			c.Narrow()
			if read := []bailey.Place{{Input: "stdin", Path: "/w/x"}}; len(c.mountedPlaces(read)) == 0 && (len(c.Job(nil, read).Places) > 0 || c.Job(nil, read).Dir != "") {
				t.Error("what is stdin is in the cage")
			}
			env := c.Job(nil, nil).Env
			looks, err := c.Preview(nil, nil, []bailey.Place{{Input: "dir", Path: "/w", Write: true}}, "")
			for _, j := range looks {
				if env = append(env, j.Env...); j.Timeout > maxLookTime || len(j.EnvNames)+len(j.FileNames) > 0 || j.Places[0].Write {
					t.Errorf("no mere look: %+v", j)
				}
			}
			if len(c.Previews()) != len(looks) && err == nil {
				t.Errorf("%d looks, %v", len(looks), err)
			}
			for _, said := range []string{"", "-x", "x y\n", strings.Repeat("y", 300)} {
				args, err := c.Bind(nil, nil, func(int) (string, bool) { return said, true })
				if plain, _ := c.Render(nil, nil); err == nil && len(args) != len(plain) {
					t.Errorf("%q in place of %q", args, plain)
				}
			}
			for _, kv := range env {
				name, _, _ := strings.Cut(kv, "=")
				if bailey.Loads(name) || !envName().MatchString(name) {
					t.Errorf("env %q", kv)
				}
			}
		}
	})
}
