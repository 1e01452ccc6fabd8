package clixpack

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/internal/strictyaml"
	"bailey/pack"
)

// look is a pack with all that the layout has.
var look = map[string]string{
	"pack.yaml": `name: tide-look
version: 1
description: looking at tides
author: harbour
license: MIT
homepage: https://tides.example
profiles: [tide-look]
capabilities: [tide.level, tide.gauge.history.list]
workflows: [tide.survey]
`,
	"capabilities/level.yaml": `name: tide.level
version: 1
description: Show the level.
backend:
  type: subprocess
  command: tide
  args: ["level", "--last", "-{{ input.count }}", "{{inputs.port}}"]
risk: low
sideEffectClass: readOnly
argv_pattern: "tide level *"
inputSchema:
  type: object
  required: [port]
  properties:
    port: {type: string}
    count: {type: integer, default: 20}
`,
	"capabilities/history.yaml": `name: tide.gauge.history.list
version: 3
backend:
  type: subprocess
  command: tide
  cwd_from_input: dir
  args:
    - "--as={{ input.as | default('json') }}"
    - "--gap={{ input.gap | default: \"5\" }}"
risk: low
sideEffectClass: read_only
isolation: warm_worker
sandboxProfile:
  fs: {extraRoBind: [/usr/share/zoneinfo], shareHostTmp: false}
  network: {egressAllowlist: ["tides.example:443"]}
  limits: {memoryMib: 128, maxPids: 8, cpuWeight: 100}
  extraSyscalls: []
validators:
  - {type: requiredPath, path: .gauges}
  - {type: denyArgs, values: [--write]}
  - {type: requiredInputKey, key: as}
credentials:
  - {type: env, env_var: TIDE_KEY, inject_as: TIDE_API_KEY}
inputSchema:
  type: object
  properties:
    dir: {type: string}
    as: {type: string, enum: [json, table]}
    gap: {type: integer}
`,
	"capabilities/reset.json": `{"name": "reset", "version": 1, "approvalPolicy": "require", "risk": "medium", "sideEffectClass": "write_remote",
 "reversibility": "reversible", "backend": {"type": "subprocess", "command": "tide", "args": ["reset"]}}`,
	"capabilities/now.yml":    "name: tide.now\nversion: 1\nrisk: low\nsideEffectClass: none\nbackend: {type: builtin, name: date}\n",
	"profiles/tide-look.yaml": "name: tide-look\nversion: 1\ncapabilities: [tide.level]\nworkflows: [tide.survey]\nsettings: {}\n",
	"workflows/survey.yaml": `name: tide.survey
version: 1
description: Look at all.
steps:
  - capability: tide.level
    input: {count: 3}
  - capability: tide.gauge.history.list
    onFailure: continue
  - capability: reset
    input: {}
`,
	"README.md": "# Tides\n",
}

func filesOf(texts map[string]string) (files []pack.File) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		files = append(files, pack.NewFile(name, []byte(texts[name])))
	}
	return files
}

func taken(name string) bool { return name == "base" }

// translated returns the pack of a translation and its files.
func translated(t *testing.T, texts map[string]string) (*pack.Pack, []pack.File) {
	t.Helper()
	if !Is(filesOf(texts)) {
		t.Fatal("the layout is not recognised")
	}
	files, err := Translate(filesOf(texts), taken)
	if err != nil {
		t.Fatal(err)
	}
	data, err := pack.BundleFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	b, err := pack.ReadBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Dev().Pack(pack.ManifestName)
	if err != nil {
		t.Fatal(err)
	}
	return p, files
}

// changed returns look with other files. An empty text removes a file.
func changed(texts map[string]string) map[string]string {
	all := maps.Clone(look)
	maps.Copy(all, texts)
	maps.DeleteFunc(all, func(_, text string) bool { return text == "" })
	return all
}

// TestTranslate checks that a pack of the layout becomes a bundle with the same capabilities, and that its own files stay
// in it.
func TestTranslate(t *testing.T) {
	p, files := translated(t, look)
	if p.Name != "tide-look" || p.Version != "1.0.0" || p.Author != "harbour" || p.License != "MIT" || p.Homepage != "https://tides.example" {
		t.Errorf("%+v", p)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Path)
	}
	if got := strings.Join(names, " "); got != "README.md clix/capabilities/history.yaml clix/capabilities/level.yaml clix/capabilities/now.yml clix/capabilities/reset.json clix/pack.yaml clix/profiles/tide-look.yaml clix/workflows/survey.yaml pack.yaml" {
		t.Errorf("files %s", got)
	}
	known := map[bailey.CapabilityID]*pack.Capability{}
	var all []string
	for _, c := range p.Capabilities {
		known[c.ID] = c
		all = append(all, string(c.ID)+" "+string(c.SideEffect)+" "+string(c.Reversibility)+" "+string(c.Risk)+" "+string(c.Isolation))
	}
	want := `tide-look.gauge-history-list readOnly readOnly low jail
tide-look.level readOnly readOnly low jail
tide-look.now none readOnly low jail
tide-look.reset mutating irreversible medium jail
tide-look.survey mutating irreversible medium workflow`
	if got := strings.Join(all, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for id, c := range map[bailey.CapabilityID]struct {
		input map[string]any
		want  string
	}{
		"tide-look.level":              {map[string]any{"port": "kiel"}, "level --last -20 kiel"},
		"tide-look.gauge-history-list": {map[string]any{"dir": "."}, "--as=json --gap=5"},
		"tide-look.now":                {nil, "--utc +%Y-%m-%dT%H:%M:%SZ"},
	} {
		args, err := known[id].Render(c.input, nil)
		if got := strings.Join(args, " "); err != nil || got != c.want {
			t.Errorf("%s: %s, %v", id, got, err)
		}
	}
	history := known["tide-look.gauge-history-list"]
	if w := history.Wants(); len(w) != 1 || w[0].Name != "TIDE_KEY" || w[0].Env != "TIDE_API_KEY" || !slices.Equal(history.Reaches(), []string{"tides.example:443"}) {
		t.Errorf("%+v, %q", w, history.Reaches())
	}
	if _, err := known["tide-look.level"].Check(map[string]any{}, false); err == nil {
		t.Error("a required input is optional")
	}
	if len(known["tide-look.level"].ArgvPattern()) != 0 {
		t.Error("a line with words that nothing describes stands for a call")
	}
}

// TestWorkflow checks that a workflow has the inputs that its steps do not set, and passes them on.
func TestWorkflow(t *testing.T) {
	p, _ := translated(t, look)
	w := p.Capabilities[4]
	if got := strings.Join(w.InputNames(), " "); got != "as dir gap port" {
		t.Errorf("inputs %s", got)
	}
	if _, err := w.Check(map[string]any{"as": "json"}, false); err == nil || !strings.Contains(err.Error(), "/port is missing") {
		t.Errorf("%v", err)
	}
	first, err := w.Step(0, map[string]any{"port": "kiel"}, nil, nil)
	if err != nil || first.Call != "tide-look.level" || first.Continue || first.Input["port"] != "kiel" || first.Input["count"] == nil {
		t.Errorf("%+v, %v", first, err)
	}
	if second, err := w.Step(1, map[string]any{"port": "kiel"}, nil, nil); err != nil || !second.Continue || len(second.Input) != 0 {
		t.Errorf("%+v, %v", second, err)
	}
}

// TestCareful checks that a class that a file does not name is the most careful one, and that the notes say so.
func TestCareful(t *testing.T) {
	for text, want := range map[string]string{
		"sideEffectClass: none":        "none readOnly high",
		"sideEffectClass: readonly":    "readOnly readOnly high",
		"sideEffectClass: additive":    "additive irreversible high",
		"sideEffectClass: mutating":    "mutating irreversible high",
		"sideEffectClass: writeRemote": "mutating irreversible high",
		"sideEffectClass: destructive": "destructive irreversible high",
		"risk: low":                    "destructive irreversible low",
		"sideEffectClass: mutating\nreversibility: reversible\nrisk: critical": "mutating reversible critical",
		"sideEffectClass: readOnly\nisolation: none":                           "readOnly readOnly high",
	} {
		p, files := translated(t, map[string]string{"pack.yaml": "name: base\nversion: 1.10\n",
			"capabilities/x.yaml": "name: some.x\nversion: 1\nbackend: {type: subprocess, command: x}\n" + text + "\n"})
		c := p.Capabilities[0]
		if got := string(c.SideEffect) + " " + string(c.Reversibility) + " " + string(c.Risk); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
		if p.Name != "clix-base" || p.Version != "1.10.0" || c.ID != "clix-base.some-x" || c.Uncaged() != strings.Contains(text, "isolation") {
			t.Errorf("%s: %s %s %s", text, p.Name, p.Version, c.ID)
		}
		notes := strings.Join(Notes(files), "\n")
		if !strings.Contains(notes, "Bailey has a pack base, so this one is clix-base") || strings.Contains(notes, "names no risk") == strings.Contains(text, "risk") {
			t.Errorf("%s: notes %s", text, notes)
		}
	}
}

// TestRefused checks that each fault of the layout is reported with its file, its place and the cure.
func TestRefused(t *testing.T) {
	file := func(text string) map[string]string {
		return map[string]string{"capabilities/level.yaml": text, "workflows/survey.yaml": "name: tide.survey\nsteps: [{capability: reset}]\n"}
	}
	capability := func(text string) map[string]string {
		return file("name: tide.level\nversion: 1\nrisk: low\nsideEffectClass: readOnly\n" + text + "\n")
	}
	runs := "backend: {type: subprocess, command: tide}\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"unknown key of the pack":       {map[string]string{"pack.yaml": look["pack.yaml"] + "licence: MIT\n"}, `pack.yaml:10:1: pack.yaml has no key "licence"; did you mean "license"?; remove it, or use one of author,`},
		"unknown key of a capability":   {capability(runs + "timeuot: 5"), `capabilities/level.yaml:6:1: a capability has no key "timeuot"`},
		"unknown key of a profile":      {map[string]string{"profiles/a.yaml": "name: a\nrules: []\n"}, `profiles/a.yaml:2:1: a profile has no key "rules"`},
		"unknown key of a workflow":     {map[string]string{"workflows/survey.yaml": look["workflows/survey.yaml"] + "retry: 2\n"}, `workflows/survey.yaml:11:1: a workflow has no key "retry"`},
		"unknown key of a step":         {map[string]string{"workflows/survey.yaml": "name: tide.survey\nsteps: [{capability: reset, when: x}]\n"}, `workflows/survey.yaml:2:29: a step has no key "when"`},
		"unknown builtin":               {capability("backend: {type: builtin, name: fetch}"), `capabilities/level.yaml:5:32: the builtin "fetch" is not known; use date or echo`},
		"backend remote":                {capability("backend: {type: remote, url: x}"), `this version cannot run backend "remote"`},
		"builtin with a command":        {capability("backend: {type: builtin, name: date, command: x}"), `backend builtin has no key "command"`},
		"no backend":                    {capability(""), "a capability needs backend"},
		"no command":                    {capability("backend: {type: subprocess}"), "backend subprocess needs command"},
		"firecracker":                   {capability(runs + "isolation: firecracker"), "capabilities/level.yaml:6:12: isolation firecracker is not known; use microvm"},
		"system calls":                  {capability(runs + "sandboxProfile: {extraSyscalls: [bpf]}"), "capabilities/level.yaml:6:33: extraSyscalls must be empty"},
		"writable path":                 {capability(runs + "sandboxProfile: {fs: {extraRwBind: [/srv]}}"), "extraRwBind is not supported; add an input of format path"},
		"shared /tmp":                   {capability(runs + "sandboxProfile: {fs: {shareHostTmp: true}}"), "shareHostTmp must be false"},
		"weight":                        {capability(runs + "sandboxProfile: {limits: {cpuWeight: 5}}"), "cpuWeight must be 100"},
		"named profile":                 {capability(runs + "sandboxProfile: strict"), "sandboxProfile is a name, which has no meaning; remove it"},
		"literal credential":            {capability(runs + "credentials: [{type: literal, value: x, inject_as: Y}]"), `a credential of type "literal" is not supported; use type env`},
		"text in denyArgs":              {capability(runs + "validators: [{type: denyArgs, values: [delete]}]"), `denyArgs can only refuse options, not the text "delete"; use a pattern`},
		"validator with two keys":       {capability(runs + "validators: [{type: requiredPath, path: x, key: y}]"), "a validator RequiredPath needs path and no other key"},
		"approval":                      {capability(runs + "approvalPolicy: requires"), `approvalPolicy must be one of require, none, not "requires"; did you mean "require"?`},
		"foreign placeholder":           {capability("backend: {type: subprocess, command: tide, args: ['{{ context.env }}']}"), `"{{ context.env }}" is not supported; use {{ input.x }}`},
		"filter":                        {capability("backend: {type: subprocess, command: tide, args: ['{{ input.x | upper }}']}"), "is not supported"},
		"statement":                     {capability("backend: {type: subprocess, command: tide, args: ['{% if x %}']}"), "contains a statement"},
		"input without schema":          {capability("backend: {type: subprocess, command: tide, args: ['{{ input.x }}']}"), "capabilities/level.yaml:5:51: input.x is not in the inputSchema"},
		"keyword that is not checked":   {capability(runs + "inputSchema:\n  type: object\n  properties:\n    port:\n      type: string\n      contentEncoding: base64"), `capabilities/level.yaml:11:`},
		"hidden character":              {capability(runs + "description: \"a\\u202eb\""), "capabilities/level.yaml:6:14: "},
		"class":                         {file("name: tide.level\nrisk: low\nsideEffectClass: mild\n" + runs), "capabilities/level.yaml:3:18: sideEffectClass must be one of"},
		"readOnly for a change":         {file("name: tide.level\nrisk: low\nsideEffectClass: mutating\nreversibility: readOnly\n" + runs), "capabilities/level.yaml:1:1: tide-look.level: reversibility readOnly contradicts"},
		"name":                          {map[string]string{"capabilities/level.yaml": "name: Tide Level\nrisk: low\n" + runs}, `capabilities/level.yaml:1:7: "Tide Level" is not a name`},
		"name of the pack":              {map[string]string{"pack.yaml": "name: Tide\nversion: 1\n"}, `pack.yaml:1:1: name "Tide" does not match`},
		"no version":                    {map[string]string{"pack.yaml": "name: tide\n"}, "pack.yaml:1:5: pack.yaml needs version"},
		"the same name twice":           {map[string]string{"capabilities/m.yaml": "name: reset\n" + runs}, "capabilities/reset.json:1:2: capability reset is in capabilities/m.yaml too"},
		"the same name here":            {map[string]string{"capabilities/m.yaml": "name: tide.reset\n" + runs}, "capabilities/reset.json:1:2: reset and a name in capabilities/m.yaml are both tide-look.reset here; rename one"},
		"listed, not there":             {map[string]string{"pack.yaml": "name: tide\nversion: 1\ncapabilities: [tide.flood]\n"}, `pack.yaml:3:16: no file in capabilities has the name "tide.flood"`},
		"listed workflow, not there":    {map[string]string{"pack.yaml": "name: tide\nversion: 1\nworkflows: [tide.flood]\n"}, `no file in workflows has the name "tide.flood"`},
		"inline capabilities":           {map[string]string{"pack.yaml": "name: tide\nversion: 1\ncapabilities: [{name: x}]\n"}, "pack.yaml:3:16: capabilities must be a string"},
		"other file":                    {map[string]string{"capabilities/run.sh": "rm\n"}, "capabilities/run.sh: only the files *.yaml, *.yml and *.json of capabilities are read"},
		"directory":                     {map[string]string{"capabilities/more/x.yaml": "name: x\n"}, "capabilities/more/x.yaml: only the files"},
		"empty file":                    {map[string]string{"capabilities/level.yaml": "# nothing\n"}, "capabilities/level.yaml: must have one YAML document, not 0"},
		"two documents":                 {map[string]string{"capabilities/level.yaml": "name: x\n---\nname: y\n"}, "must have one YAML document, not 2"},
		"list":                          {map[string]string{"workflows/survey.yaml": "[x]\n"}, "workflows/survey.yaml:1:1: a workflow must be a mapping"},
		"anchor":                        {capability("backend: &x {type: subprocess}"), "capabilities/level.yaml:5:10: anchors, aliases"},
		"nesting":                       {capability("inputSchema: " + strings.Repeat("[", 99)), "capabilities/level.yaml:5:46: files of this kind are nested too deeply"},
		"settings in a profile":         {map[string]string{"profiles/a.yaml": "name: a\nisolationDefaults: {egressAllowlist: [\"x.example:443\"]}\n"}, "isolationDefaults has no effect in a pack; an operator writes it into a profile"},
		"step outside the pack":         {map[string]string{"workflows/survey.yaml": "name: tide.survey\nsteps: [{capability: git.status}]\n"}, `workflows/survey.yaml:2:9: step 1 calls "git.status", which is not in capabilities`},
		"input that the step lacks":     {map[string]string{"workflows/survey.yaml": "name: tide.survey\nsteps: [{capability: reset, input: {hard: true}}]\n"}, `reset has no input "hard"`},
		"template in a step":            {map[string]string{"workflows/survey.yaml": "name: tide.survey\nsteps: [{capability: tide.level, input: {port: '{{ x }}'}}]\n"}, "the input of a step cannot contain {{"},
		"inputs that differ":            {map[string]string{"capabilities/m.yaml": "name: tide.m\nrisk: low\nsideEffectClass: readOnly\ninputSchema: {type: object, properties: {port: {type: integer}}}\n" + runs, "workflows/survey.yaml": "name: tide.survey\nsteps: [{capability: tide.level}, {capability: tide.m}]\n"}, `the steps declare input "port" differently`},
		"no steps":                      {map[string]string{"workflows/survey.yaml": "name: tide.survey\nsteps: []\n"}, "workflows/survey.yaml:1:1: a workflow must have 1 to 16 steps"},
		"key of the workflow's failure": {map[string]string{"workflows/survey.yaml": "name: tide.survey\nsteps: [{capability: reset, onFailure: retry}]\n"}, "onFailure must be one of abort, continue"},
	} {
		_, err := Translate(filesOf(changed(c.files)), taken)
		if !errors.Is(err, bailey.Invalid) || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "" {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
	}
}

// TestIs checks that a pack in our own layout is not translated.
func TestIs(t *testing.T) {
	for names, want := range map[string]bool{"pack.yaml": false, "pack.yaml README.md docs/capabilities.yaml": false,
		"pack.yaml capabilities/x.yaml": true, "pack.yaml workflows/x.json": true, "pack.yaml profiles/x.yaml": false,
		"pack.yaml capabilities/x/y.yaml": false, "pack.yaml capabilities/x.txt": false} {
		texts := map[string]string{}
		for _, name := range strings.Fields(names) {
			texts[name] = "name: x\n"
		}
		if Is(filesOf(texts)) != want {
			t.Errorf("%s: %v", names, !want)
		}
	}
	if n := Notes(filesOf(map[string]string{"pack.yaml": "# a comment\nname: x\n"})); n != nil {
		t.Errorf("%q", n)
	}
}

// FuzzTranslate checks that no file causes a panic, that each fault is one visible line with a file that exists, and that
// no capability of a translation is milder than its file.
func FuzzTranslate(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(look)) {
		f.Add(look["pack.yaml"], look[name], look["workflows/survey.yaml"])
	}
	f.Add("name: x\nversion: 1e3\n", "name: x\nbackend: {type: builtin, name: echo}\ninputSchema: {properties: {message: {default: \"{{\"}}}", "name: y\nsteps: [{capability: x, input: {message: [null]}}]")
	f.Fuzz(func(t *testing.T, manifest, capability, workflow string) {
		texts := map[string]string{"pack.yaml": manifest, "capabilities/x.yaml": capability, "workflows/y.yaml": workflow}
		files, err := Translate(filesOf(texts), taken)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				name, _, _ := strings.Cut(line, ":")
				if _, ok := texts[name]; !ok || strings.ContainsAny(strings.TrimSuffix(line, "\n"), "\n\r\u202e\x1b") {
					t.Fatalf("%q", line)
				}
			}
			return
		}
		p, err := pack.Parse(pack.ManifestName, files[len(files)-1].Bytes())
		if err != nil || len(p.Capabilities) != 2 {
			t.Fatal(err)
		}
		said, _ := (&strictyaml.File{Format: &format, Name: "x"}).Body([]byte(capability)), error(nil)
		class, _ := strictyaml.TextOf(lookUp(said, "sideEffectClass"))
		if c := p.Capabilities[0]; class == "" && lookUp(said, "side_effect_class") == nil && c.SideEffect != pack.Destructive || p.Capabilities[1].Milder(c) != "" {
			t.Fatalf("%s %s %s", c.SideEffect, c.Reversibility, p.Capabilities[1].Milder(c))
		}
	})
}
