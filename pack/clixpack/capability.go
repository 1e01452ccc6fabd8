package clixpack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// capability is one file in capabilities.
type capability struct {
	source
	id, name                        string // in the layout, and ours without the pack
	description                     ast.Node
	risk, class, back, isolation    string
	kind, command, builtin, cwd     string // of the backend
	backend, schema                 ast.Node
	args, validators, credentials   []ast.Node
	approval                        string
	ro, egress                      []ast.Node
	memory, tasks                   ast.Node
	riskAt, classAt, backAt, cageAt ast.Node
}

func (t *translator) readCapability(file *strictyaml.File, body ast.Node) {
	c := &capability{source: source{file, strictyaml.FirstKey(body)}, backend: body}
	var version string
	text := func(key string, into *string, at *ast.Node) func(ast.Node) {
		return func(n ast.Node) { *at = n; strictyaml.TextField(file, key, into)(n) }
	}
	var unused ast.Node
	seen := file.Fields(body, "a capability", strictyaml.Fields{
		"name": nameField(file, &c.id), "version": versionField(file, &version),
		"description": func(n ast.Node) { c.description = n },
		"risk":        text("risk", &c.risk, &c.riskAt), "sideEffectClass": text("sideEffectClass", &c.class, &c.classAt),
		"reversibility":  text("reversibility", &c.back, &c.backAt),
		"isolation":      text("isolation", &c.isolation, &c.cageAt),
		"approvalPolicy": choiceField(file, "approvalPolicy", &c.approval, "require", "none"),
		"backend":        c.readBackend, "sandboxProfile": c.readSandbox,
		"inputSchema": func(n ast.Node) { c.schema = n },
		"validators":  func(n ast.Node) { c.validators = file.Items(n, "validators") },
		"credentials": func(n ast.Node) { c.credentials = file.Items(n, "credentials") },
		"argvPattern": text("argvPattern", new(string), &unused),
	})
	requireKeys(file, body, "a capability", seen, "name", "backend")
	if other := t.names[c.id]; other != nil && c.id != "" {
		file.AddFault(c.node, "capability %s is in %s too; remove one", c.id, other.file.Name)
		return
	}
	t.names[c.id], t.capabilities = c, append(t.capabilities, c)
}

func nameField(file *strictyaml.File, into *string) func(ast.Node) {
	return func(n ast.Node) {
		v, ok := file.ReadText(n, "name")
		if ok && !nameForm().MatchString(v) {
			file.AddFault(n, "%q is not a name: use words of lower case letters, digits, - and _, with dots between them",
				strictyaml.Clip(v))
			return
		}
		*into = v
	}
}

func choiceField(file *strictyaml.File, key string, into *string, words ...string) func(ast.Node) {
	return func(n ast.Node) {
		v, ok := file.ReadText(n, key)
		if ok && !slices.Contains(words, v) {
			file.AddFault(n, "%s must be one of %s, not %q%s", key, strings.Join(words, ", "), strictyaml.Clip(v),
				strictyaml.DidYouMean(v, words))
		}
		*into = v
	}
}

// builtins are the backends that clix has in its own program, and the command lines that answer them here.
var builtins = map[string][]string{
	"date": {"date", "--utc", "+%Y-%m-%dT%H:%M:%SZ"}, "system.date": {"date", "--utc", "+%Y-%m-%dT%H:%M:%SZ"},
	"echo": {"printf", "--", `%s\n`, "{{ input.message }}"}, "system.echo": {"printf", "--", `%s\n`, "{{ input.message }}"},
}

func (c *capability) readBackend(n ast.Node) {
	file := c.file
	c.backend = n
	var nameAt ast.Node
	seen := file.Fields(n, "backend", strictyaml.Fields{
		"type":         strictyaml.TextField(file, "type", &c.kind),
		"command":      strictyaml.TextField(file, "command", &c.command),
		"args":         func(n ast.Node) { c.args = file.Items(n, "args") },
		"cwdFromInput": strictyaml.TextField(file, "cwdFromInput", &c.cwd),
		"name":         func(n ast.Node) { nameAt = n; strictyaml.TextField(file, "name", &c.builtin)(n) },
		"url":          func(ast.Node) {},
	})
	wanted, foreign := "command", []string{"name", "url"}
	switch c.kind {
	case "subprocess":
	case "builtin":
		wanted, foreign = "name", []string{"command", "args", "cwdFromInput", "url"}
		if seen["name"] && builtins[c.builtin] == nil {
			file.AddFault(nameAt, "the builtin %q is not known; use date or echo, or a program with backend subprocess",
				strictyaml.Clip(c.builtin))
		}
	default:
		file.AddFault(n, "this version cannot run backend %q; use subprocess, or builtin date or echo",
			strictyaml.Clip(c.kind))
		return
	}
	requireKeys(file, n, "backend "+c.kind, seen, wanted)
	for _, key := range foreign {
		if seen[key] {
			file.AddFault(n, "backend %s has no key %q; remove it", c.kind, key)
		}
	}
}

func (c *capability) readSandbox(n ast.Node) {
	file := c.file
	if _, text := strictyaml.TextOf(n); text {
		file.AddFault(n, "sandboxProfile is a name, which has no meaning; remove it: the jail gives nothing beyond its inputs")
		return
	}
	none := func(text string) func(ast.Node) { return refuseValue(file, text) }
	var share bool
	file.Fields(n, "sandboxProfile", strictyaml.Fields{
		"extraSyscalls": none("extraSyscalls must be empty: each system call that a jail denies is a way out of it"),
		"fs": func(n ast.Node) {
			file.Fields(n, "fs", strictyaml.Fields{
				"extraRoBind": func(n ast.Node) { c.ro = file.Items(n, "extraRoBind") },
				"extraRwBind": none("extraRwBind is not supported; add an input of format path in a manifest of Bailey"),
				"shareHostTmp": func(n ast.Node) {
					if file.BoolField("shareHostTmp", &share)(n); share {
						file.AddFault(n, "shareHostTmp must be false: a jail has its own /tmp")
					}
				},
			})
		},
		"network": func(n ast.Node) {
			file.Fields(n, "network", strictyaml.Fields{
				"egressAllowlist": func(n ast.Node) { c.egress = file.Items(n, "egressAllowlist") }})
		},
		"limits": func(n ast.Node) {
			file.Fields(n, "limits", strictyaml.Fields{
				"memoryMib": func(n ast.Node) { c.memory = n }, "maxPids": func(n ast.Node) { c.tasks = n },
				"cpuWeight": func(n ast.Node) {
					if i, ok := n.(*ast.IntegerNode); !ok || i.Token.Value != "100" {
						file.AddFault(n, "cpuWeight must be 100, the default: the jail does not weigh processors")
					}
				},
			})
		},
	})
}

// setClasses fills in what a capability does not say, with the most careful value.
func (c *capability) setClasses(t *translator) {
	missing := func(what string, v *string, value string) {
		if *v == "" {
			*v = value
			t.notes = append(t.notes, fmt.Sprintf("%s names no %s, so it is %s", c.name, what, value))
		}
	}
	if c.class == "writeRemote" {
		c.class = "mutating"
	}
	missing("risk", &c.risk, "high")
	missing("sideEffectClass", &c.class, "destructive")
	looks := slices.Contains([]string{"none", "readOnly", "read_only", "readonly"}, c.class)
	switch {
	case c.approval == "require":
		c.back = "irreversible"
		t.notes = append(t.notes, c.name+" requires an approval, so it is irreversible: a rule must name it, and should ask")
	case looks && c.back == "":
		c.back = "readOnly"
	}
	missing("reversibility", &c.back, "irreversible")
}

// ownName returns the name of a capability inside the pack.
func (t *translator) ownName(id string) string {
	words := append(strings.Split(t.own, "-"), t.own)
	parts := strings.Split(id, ".")
	for len(parts) > 1 && slices.Contains(words, parts[0]) {
		parts = parts[1:]
	}
	return strings.Join(parts, "-")
}

// writeManifest writes the whole manifest.
func (t *translator) writeManifest() {
	if t.packFile.file == nil {
		return
	}
	names := map[string]source{}
	take := func(at source, id string) string {
		name := t.ownName(id)
		if other, ok := names[name]; ok && id != "" {
			at.file.AddFault(at.node, "%s and a name in %s are both %s.%s here; rename one", id, other.file.Name, t.name, name)
		}
		names[name] = at
		return name
	}
	for _, c := range t.capabilities {
		c.name = take(c.source, c.id)
		c.setClasses(t)
	}
	for _, w := range t.workflows {
		w.name = take(w.source, w.id)
	}
	t.writeLine(source{}, "%s", heading)
	for _, note := range t.notes {
		t.writeLine(source{}, "# %s.", note)
	}
	t.writeLine(t.packFile, "name: %s", jsonText(t.name))
	t.writeLine(t.packFile, "version: %s", jsonText(t.version))
	for _, f := range t.about {
		t.copyNode(f.source, 0, f.key+":")
	}
	t.writeLine(t.packFile, "capabilities:")
	for _, c := range t.capabilities {
		t.writeCapability(c)
	}
	for _, w := range t.workflows {
		t.writeWorkflow(w)
	}
}

// sourceOf returns the source of a node of the capability's file, or the capability if there is none.
func (c *capability) sourceOf(n ast.Node) source {
	if n == nil {
		return c.source
	}
	return source{c.file, n}
}

func (t *translator) writeCapability(c *capability) {
	t.writeLine(c.source, "  - name: %s", jsonText(c.name))
	if c.description != nil {
		t.copyNode(c.sourceOf(c.description), 4, "    description:")
	}
	t.writeLine(c.sourceOf(c.riskAt), "    risk: %s", jsonText(c.risk))
	t.writeLine(c.sourceOf(c.classAt), "    sideEffectClass: %s", jsonText(c.class))
	t.writeLine(c.sourceOf(c.backAt), "    reversibility: %s", jsonText(c.back))
	if c.isolation != "" && c.kind != "builtin" {
		t.writeLine(c.sourceOf(c.cageAt), "    isolation: %s", jsonText(c.isolation))
	}
	t.writeBackend(c)
	t.writeSandbox(c)
	t.writeLists(c)
	if c.schema != nil {
		t.copyNode(c.sourceOf(c.schema), 4, "    inputSchema:")
		return
	}
	t.writeLine(c.source, "    inputSchema: {type: object, properties: {}}")
}

func (t *translator) writeBackend(c *capability) {
	at := c.sourceOf(c.backend)
	t.writeLine(at, "    backend:")
	t.writeLine(at, "      type: subprocess")
	if line := builtins[c.builtin]; c.kind == "builtin" && line != nil {
		t.writeLine(at, "      command: %s", line[0])
		t.writeLine(at, "      cwd: none")
		t.writeLine(at, "      args:")
		for _, word := range line[1:] {
			t.writeLine(at, "        - %s", jsonText(word))
		}
		return
	}
	t.writeLine(at, "      command: %s", jsonText(c.command))
	if c.cwd != "" {
		t.writeLine(at, "      cwdFromInput: %s", jsonText(c.cwd))
	}
	if len(c.args) == 0 {
		return
	}
	t.writeLine(at, "      args:")
	for _, n := range c.args {
		text, _ := c.file.ReadText(n, "args")
		t.writeLine(c.sourceOf(n), "        - %s", jsonText(c.renderTemplate(n, text)))
	}
}

func (t *translator) writeSandbox(c *capability) {
	if c.memory == nil && c.tasks == nil && len(c.ro) == 0 && len(c.egress) == 0 {
		return
	}
	t.writeLine(c.source, "    sandboxProfile:")
	list := func(part, key string, items []ast.Node) {
		for i, n := range items {
			if i == 0 {
				t.writeLine(c.source, "      %s:", part)
				t.writeLine(c.source, "        %s:", key)
			}
			t.copyNode(c.sourceOf(n), 10, "          -")
		}
	}
	list("fs", "ro", c.ro)
	list("network", "egress", c.egress)
	if c.memory == nil && c.tasks == nil {
		return
	}
	t.writeLine(c.source, "      limits:")
	if c.memory != nil {
		t.copyNode(c.sourceOf(c.memory), 8, "        memoryMiB:")
	}
	if c.tasks != nil {
		t.copyNode(c.sourceOf(c.tasks), 8, "        tasks:")
	}
}

// writeLists writes the validators and the credentials.
func (t *translator) writeLists(c *capability) {
	for i, n := range c.validators {
		if i == 0 {
			t.writeLine(c.sourceOf(n), "    validators:")
		}
		c.writeValidator(t, n)
	}
	for i, n := range c.credentials {
		if i == 0 {
			t.writeLine(c.sourceOf(n), "    credentials:")
		}
		c.writeCredential(t, n)
	}
}

func (c *capability) writeValidator(t *translator, n ast.Node) {
	var kind, path, key string
	var values []ast.Node
	seen := c.file.Fields(n, "a validator", strictyaml.Fields{
		"type": choiceField(c.file, "type", &kind, "requiredPath", "denyArgs", "requiredInputKey", "RequiredPath", "DenyArgs",
			"RequiredInputKey"),
		"path": strictyaml.TextField(c.file, "path", &path), "key": strictyaml.TextField(c.file, "key", &key),
		"values": func(n ast.Node) { values = c.file.Items(n, "values") },
	})
	at := c.sourceOf(n)
	kind = strings.ToUpper(kind[:min(1, len(kind))]) + kind[min(1, len(kind)):]
	wanted := map[string]string{"RequiredPath": "path", "DenyArgs": "values", "RequiredInputKey": "key"}[kind]
	requireKeys(c.file, n, "a validator", seen, "type")
	for _, k := range []string{"path", "key", "values"} {
		if seen[k] != (k == wanted) {
			c.file.AddFault(n, "a validator %s needs %s and no other key", kind, wanted)
			return
		}
	}
	t.writeLine(at, "      - type: %s", jsonText(kind))
	switch kind {
	case "RequiredPath":
		t.writeLine(at, "        path: %s", jsonText(path))
	case "RequiredInputKey":
		t.writeLine(at, "        key: %s", jsonText(key))
	case "DenyArgs":
		t.writeLine(at, "        args:")
		for _, v := range values {
			word, ok := c.file.ReadText(v, "values")
			if ok && (!strings.HasPrefix(word, "-") || strings.ContainsAny(word, " \t")) {
				c.file.AddFault(v, "denyArgs can only refuse options, not the text %q; use a pattern in inputSchema",
					strictyaml.Clip(word))
			}
			t.writeLine(c.sourceOf(v), "          - %s", jsonText(word))
		}
	}
}

func (c *capability) writeCredential(t *translator, n ast.Node) {
	var kind, from, as string
	other := func(ast.Node) {}
	seen := c.file.Fields(n, "a credential", strictyaml.Fields{
		"type":   strictyaml.TextField(c.file, "type", &kind),
		"envVar": strictyaml.TextField(c.file, "envVar", &from), "injectAs": strictyaml.TextField(c.file, "injectAs", &as),
		"value": other, "secretName": other, "secret_name": other, "projectId": other, "project_id": other,
		"environment": other, "secretPath": other, "secret_path": other, "infisicalProfile": other,
		"infisical_profile": other,
	})
	if kind != "env" {
		c.file.AddFault(n, "a credential of type %q is not supported; use type env and configure that name at the broker",
			strictyaml.Clip(kind))
		return
	}
	requireKeys(c.file, n, "a credential", seen, "envVar", "injectAs")
	t.writeLine(c.sourceOf(n), "      - name: %s", jsonText(from))
	t.writeLine(c.sourceOf(n), "        env: %s", jsonText(as))
}
