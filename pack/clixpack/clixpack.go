// Package clixpack translates packs in the layout of clix into a manifest of package pack. It does no I/O.
//
//	pack.yaml               name, version, description, author, license, homepage; the names of the rest
//	capabilities/NAME.yaml  one capability
//	workflows/NAME.yaml     one workflow
//	profiles/NAME.yaml      one profile: checked, but not in effect, because only operators choose profiles
//
// The result is a bundle with a pack.yaml of ours, which is shown, signed and loaded like any other. The files of the
// layout are in it below clix/.
//
//   - The version 1 is 1.0.0. Versions of capabilities and workflows are ignored.
//   - A pack whose name is taken by a built-in pack gets the prefix clix-.
//   - A capability is named PACK.NAME, so that it can never stand for a capability of another pack. Leading words of
//     its name that the name of the pack contains are dropped, and the other dots become dashes: in pack cloud-ai,
//     cloud.ai.models.list is cloud-ai.models-list.
//   - A missing reversibility is readOnly for the classes none and readOnly, and irreversible for all others. A missing
//     class is destructive, and a missing risk is high. With approvalPolicy: require the reversibility is irreversible,
//     so that a call needs a rule that names it.
//   - {{ inputs.x }} is {{ input.x }}, and {{ input.x | default("y") }} is {{ input.x | default: "y" }}. If the schema
//     has a default for an input, its placeholders have it too.
//   - Of backend: builtin, date and echo are answered, by the programs date and printf. Other names are refused.
//   - argvPattern is ignored: it does not describe all words of a line, so a typed line would lose some of them.
//   - A workflow has the inputs of its steps that the steps do not set, and the strictest class of its steps.
//
// A key or value without an equivalent is refused, with file, line, column and the cure.
package clixpack

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml/ast"

	"bailey"
	"bailey/internal/strictyaml"
	"bailey/pack"
)

// Dir is the directory of a bundle in which the files of the layout are kept.
const Dir = "clix"

// heading is the first line of a translated manifest.
const heading = "# Translated from the layout of clix. The original files are below " + Dir + "/."

const maxFile = 1 << 20 // bytes

var format = strictyaml.Format{
	Limits:  strictyaml.Limits{Bytes: maxFile, Flow: 32, Column: 128},
	Unknown: "%[1]s has no key %[2]q%[4]s; remove it, or use one of %[3]s", Twice: "%[1]s has the key %[2]q twice",
	NotMapping: "%[1]s must be a mapping, not %[2]s", Documents: "must have one YAML document, not %d",
	Aliases: map[string]string{
		"argv_pattern": "argvPattern", "approval_policy": "approvalPolicy", "cwd_from_input": "cwdFromInput",
		"input_schema": "inputSchema", "sandbox_profile": "sandboxProfile", "side_effect_class": "sideEffectClass",
		"env_var": "envVar", "inject_as": "injectAs", "extra_syscalls": "extraSyscalls", "extra_ro_bind": "extraRoBind",
		"extra_rw_bind": "extraRwBind", "share_host_tmp": "shareHostTmp", "egress_allowlist": "egressAllowlist",
		"memory_mib": "memoryMib", "max_pids": "maxPids", "cpu_weight": "cpuWeight", "on_failure": "onFailure",
	},
}

// Is reports whether the files of a directory have the layout of clix.
func Is(files []pack.File) bool {
	return slices.ContainsFunc(files, func(f pack.File) bool {
		part, _, _ := strings.Cut(f.Path, "/")
		return (part == "capabilities" || part == "workflows") && isManifest(f.Path)
	})
}

func isManifest(name string) bool {
	return strings.Count(name, "/") == 1 && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name))
}

// Notes returns the remarks about the translation of a bundle, or nil if the bundle was not translated.
func Notes(files []pack.File) (notes []string) {
	for _, f := range files {
		text, ok := strings.CutPrefix(string(f.Bytes()), heading+"\n")
		for line := range strings.Lines(text) {
			note, more := strings.CutPrefix(line, "# ")
			if !ok || f.Path != pack.ManifestName || !more {
				break
			}
			notes = append(notes, strings.TrimSuffix(note, "\n"))
		}
	}
	return notes
}

// Translate returns the files of a bundle from the files of a directory. The manifest of the result is valid. The
// function taken reports whether a built-in pack has that name.
func Translate(files []pack.File, taken func(name string) bool) ([]pack.File, error) {
	t := &translator{names: map[string]*capability{}}
	var out []pack.File
	for _, f := range files {
		if part, _, below := strings.Cut(f.Path, "/"); f.Path == pack.ManifestName || below && t.readPart(part, f) {
			out = append(out, pack.NewFile(Dir+"/"+f.Path, f.Bytes()))
		} else {
			out = append(out, f)
		}
	}
	i := slices.IndexFunc(files, func(f pack.File) bool { return f.Path == pack.ManifestName })
	if i < 0 {
		return nil, bailey.Invalid.New("the directory has no "+pack.ManifestName, "name the directory of pack.yaml")
	}
	t.readPack(files[i], taken)
	t.writeManifest()
	if err := t.toError(); err != nil {
		return nil, err
	}
	manifest := t.joinLines()
	if _, err := pack.Parse(pack.ManifestName, manifest); err != nil {
		return nil, t.locateFaults(err)
	}
	out = append(out, pack.NewFile(pack.ManifestName, manifest))
	slices.SortFunc(out, func(a, b pack.File) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// translator collects the parts of a pack and its faults.
type translator struct {
	emitter
	name, own    string // the name of the pack, and the one that it had
	version      string
	about        []field // of pack.yaml: description, author and so on
	packFile     source
	capabilities []*capability
	workflows    []*workflow
	names        map[string]*capability // by the name in the layout
	notes        []string
	files        []*strictyaml.File
}

// source is a node of a file.
type source struct {
	file *strictyaml.File
	node ast.Node
}

// field is a key of the manifest with its value.
type field struct {
	key string
	source
}

// readPart reads a file in one of the directories of the layout, and reports whether it is in one.
func (t *translator) readPart(part string, f pack.File) bool {
	read := map[string]func(*strictyaml.File, ast.Node){
		"capabilities": t.readCapability, "workflows": t.readWorkflow, "profiles": t.readProfile}[part]
	if read == nil {
		return false
	}
	file := t.openFile(f)
	if !isManifest(f.Path) {
		file.AddFault(nil, "only the files *.yaml, *.yml and *.json of %s are read; move it beside pack.yaml", part)
	} else if body := t.bodyOf(file, f); body != nil {
		read(file, body)
	}
	return true
}

func (t *translator) openFile(f pack.File) *strictyaml.File {
	file := &strictyaml.File{Format: &format, Name: f.Path}
	t.files = append(t.files, file)
	return file
}

// bodyOf returns the document of a file, or nil and a fault.
func (t *translator) bodyOf(file *strictyaml.File, f pack.File) ast.Node {
	body := file.Body(f.Bytes())
	if body == nil && len(file.Faults) == 0 {
		file.AddFault(nil, format.Documents, 0)
	}
	return body
}

var (
	nameForm   = lazyRegexp(`^[a-z][a-z0-9_-]{0,63}(\.[a-z0-9][a-z0-9_-]{0,63}){0,7}$`)
	numberForm = lazyRegexp(`^[0-9]+(\.[0-9]+){0,2}$`)
)

// readPack reads pack.yaml, after the other files.
func (t *translator) readPack(f pack.File, taken func(string) bool) {
	file := t.openFile(f)
	body := t.bodyOf(file, f)
	if body == nil {
		return
	}
	about := func(key string) func(ast.Node) {
		return func(n ast.Node) { t.about = append(t.about, field{key, source{file, n}}) }
	}
	listed := map[string]ast.Node{}
	seen := file.Fields(body, "pack.yaml", strictyaml.Fields{
		"name":         strictyaml.TextField(file, "name", &t.own),
		"version":      versionField(file, &t.version),
		"description":  about("description"),
		"author":       about("author"),
		"license":      about("license"),
		"homepage":     about("homepage"),
		"profiles":     func(n ast.Node) { readNames(file, "profiles", n) },
		"capabilities": func(n ast.Node) { listed["capabilities"] = n },
		"workflows":    func(n ast.Node) { listed["workflows"] = n },
	})
	requireKeys(file, body, "pack.yaml", seen, "name", "version")
	t.packFile = source{file, strictyaml.FirstKey(body)}
	if t.name = t.own; t.own != "" && taken(t.own) {
		t.name = "clix-" + t.own
		t.notes = append(t.notes, fmt.Sprintf("Bailey has a pack %s, so this one is %s", t.own, t.name))
	}
	slices.SortFunc(t.about, func(a, b field) int { return strings.Compare(a.key, b.key) })
	t.checkListed(file, listed)
}

// checkListed refuses a name in pack.yaml that no file has.
func (t *translator) checkListed(file *strictyaml.File, listed map[string]ast.Node) {
	for _, item := range readNames(file, "capabilities", listed["capabilities"]) {
		if name, _ := strictyaml.TextOf(item); t.names[name] == nil {
			file.AddFault(item, "no file in capabilities has the name %q; add it, or remove the line", strictyaml.Clip(name))
		}
	}
	for _, item := range readNames(file, "workflows", listed["workflows"]) {
		name, _ := strictyaml.TextOf(item)
		if !slices.ContainsFunc(t.workflows, func(w *workflow) bool { return w.id == name }) {
			file.AddFault(item, "no file in workflows has the name %q; add it, or remove the line", strictyaml.Clip(name))
		}
	}
}

// readProfile checks a profile. It has no effect.
func (t *translator) readProfile(file *strictyaml.File, body ast.Node) {
	var text string
	names := func(key string) func(ast.Node) { return func(n ast.Node) { readNames(file, key, n) } }
	cure := "%s has no effect in a pack; an operator writes it into a profile of the home (docs/profiles.md)"
	nothing := func(key string) func(ast.Node) { return refuseValue(file, fmt.Sprintf(cure, key)) }
	seen := file.Fields(body, "a profile", strictyaml.Fields{
		"name": strictyaml.TextField(file, "name", &text), "version": versionField(file, &text),
		"description":  strictyaml.TextField(file, "description", &text),
		"capabilities": names("capabilities"), "workflows": names("workflows"), "settings": nothing("settings"),
		"isolationDefaults": nothing("isolationDefaults"), "secretBindings": nothing("secretBindings"),
		"folderBindings": nothing("folderBindings"),
	})
	requireKeys(file, body, "a profile", seen, "name")
}

// readNames returns the items of a list of names.
func readNames(file *strictyaml.File, what string, n ast.Node) (items []ast.Node) {
	if n == nil {
		return nil
	}
	for _, item := range file.Items(n, what) {
		if name, ok := file.ReadText(item, what); ok && !nameForm().MatchString(name) {
			file.AddFault(item, "%s: %q is not a name", what, strictyaml.Clip(name))
		} else if ok {
			items = append(items, item)
		}
	}
	return items
}

// versionField reads a number or a string. A number gets the parts that it lacks.
func versionField(file *strictyaml.File, into *string) func(ast.Node) {
	return func(n ast.Node) {
		switch n := n.(type) {
		case *ast.IntegerNode, *ast.FloatNode:
			*into = n.GetToken().Value
		default:
			*into, _ = file.ReadText(n, "version")
		}
		if numberForm().MatchString(*into) {
			*into += strings.Repeat(".0", 2-strings.Count(*into, "."))
		}
	}
}

// refuseValue refuses any value except an empty one.
func refuseValue(file *strictyaml.File, text string) func(ast.Node) {
	return func(n ast.Node) {
		switch n := n.(type) {
		case *ast.NullNode:
			return
		case *ast.SequenceNode:
			if len(n.Values) == 0 {
				return
			}
		case *ast.MappingNode:
			if len(n.Values) == 0 {
				return
			}
		}
		file.AddFault(n, "%s", text)
	}
}

func requireKeys(file *strictyaml.File, n ast.Node, what string, seen map[string]bool, wanted ...string) {
	for _, key := range wanted {
		if !seen[key] {
			file.AddFault(n, "%s needs %s", what, key)
		}
	}
}

const cure = "correct the files; a pack with a fault is not loaded"

// toError returns the faults of all files, in the order of files and lines, or nil.
func (t *translator) toError() error {
	var lines []string
	slices.SortStableFunc(t.files, func(a, b *strictyaml.File) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range t.files {
		slices.SortStableFunc(f.Faults, func(a, b strictyaml.Fault) int {
			return cmp.Or(a.Line-b.Line, a.Column-b.Column)
		})
		for _, fault := range f.Faults {
			lines = append(lines, f.Name+fault.String())
		}
	}
	if len(lines) == 0 {
		return nil
	}
	lines = slices.Compact(lines)
	if n := len(lines) - maxFaults; n > 0 {
		lines = append(lines[:maxFaults], fmt.Sprintf("%s: and %d more", pack.ManifestName, n))
	}
	return bailey.Invalid.New(strings.Join(lines, "\n"), cure)
}

const maxFaults = 20

// lazyRegexp compiles a pattern at its first use, because few starts of the program need it.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
