package pack

import (
	"slices"
	"strings"
	"testing"

	"bailey"
)

func validated(list string) string {
	return strings.NewReplacer("timeout: 30s", "validators: "+list, "width: {", "opts: {type: object}\n        width: {").Replace(sample)
}

func TestRequiredInputKey(t *testing.T) {
	m := mustParse(t, validated("[{type: RequiredInputKey, key: width}, {type: RequiredInputKey, input: opts, key: mode}]")).Capabilities[0]
	for _, c := range []struct {
		in   map[string]any
		want string
	}{
		{map[string]any{"dir": ".", "width": "3", "opts": `{"mode":1}`}, ""},
		{map[string]any{"dir": ".", "opts": `{"mode":1}`}, "input /width is missing, and a validator requires it"},
		{map[string]any{"dir": ".", "width": "3"}, "input /opts/mode is missing"},
		{map[string]any{"dir": ".", "width": "3", "opts": `{"mod":1}`}, "input /opts/mode is missing"},
		{map[string]any{"dir": ".", "width": "3", "opts": `{"mode":null}`}, "input /opts/mode is missing"},
	} {
		_, err := m.Check(c.in, true)
		if c.want == "" && err != nil || c.want != "" && (bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "") {
			t.Errorf("%v: %v, want %q", c.in, err, c.want)
		}
	}
}

// TestDenyArgs checks that an argument that a program could read as a denied one is refused, whatever its source.
func TestDenyArgs(t *testing.T) {
	for _, c := range []struct {
		no       string
		yes, not []string
	}{
		{"--force", []string{"--force", "--force=yes", "--force=", "--for", "--f", "-force", "--fo=1", "-forc", "-fo=x"}, []string{"--forced", "force", "--no-force", "-f", "--", "-", "", "--x", "---force", "x--force"}},
		{"-f", []string{"-f", "-fd", "-df", "-f=x", "-ofile", "--f", "--f=1"}, []string{"--force", "f", "-d", "--", "-"}},
		{"-force", []string{"-force", "--force", "-force=true", "--for", "-forc"}, []string{"-f", "-rf", "force"}},
		{"delete", []string{"delete"}, []string{"--delete", "del", "delete2", "delete="}},
	} {
		for _, arg := range c.yes {
			if !mayMeanArg(arg, c.no) {
				t.Errorf("%q passes where %s is denied", arg, c.no)
			}
		}
		for _, arg := range c.not {
			if mayMeanArg(arg, c.no) {
				t.Errorf("%q is refused where %s is denied", arg, c.no)
			}
		}
	}
	m := mustParse(t, strings.Replace(validated("[{type: DenyArgs, args: [--all, -R]}]"), `"{{ input.dir }}"]`, `"{{ input.dir }}", "{{ input.opts2 }}"]`, 1)+"        opts2: {type: array, items: {type: string}}\n").Capabilities[0]
	for _, c := range []struct {
		in   map[string]any
		want string
	}{
		{map[string]any{"dir": "."}, ""},
		{map[string]any{"dir": ".", "all": true}, `the argument "--all" may mean --all, which demo.look never passes`},
		{map[string]any{"dir": ".", "opts2": []any{"x", "-lR"}}, `"-lR" may mean -R`},
	} {
		_, err := m.Render(c.in, map[string]string{"dir": "/w"})
		if c.want == "" && err != nil || c.want != "" && (bailey.KindOf(err) != bailey.Denied || !strings.Contains(err.Error(), c.want) || bailey.HintOf(err) == "") {
			t.Errorf("%v: %v", c.in, err)
		}
	}
}

// TestDenyArgsOfWhatWasShown checks that a value from a preview that replaces an argument is checked too.
func TestDenyArgsOfWhatWasShown(t *testing.T) {
	m := mustParse(t, strings.Replace(validated("[{type: DenyArgs, args: [evil]}]"), "risk: low",
		`risk: low
    preview: {args: [a], bind: [{look: 1, pattern: '(\w+)', argument: "{{ input.dir }}", as: "{{ shown }}"}]}`, 1)).Capabilities[0]
	in, paths := map[string]any{"dir": "."}, map[string]string{"dir": "/w"}
	if _, err := m.Bind(in, paths, func(int) (string, bool) { return "good", true }); err != nil {
		t.Error(err)
	}
	if _, err := m.Bind(in, paths, func(int) (string, bool) { return "evil", true }); bailey.KindOf(err) != bailey.Denied {
		t.Error(err)
	}
}

func TestRequires(t *testing.T) {
	m := mustParse(t, validated("[{type: RequiredPath, path: .git}, {type: RequiredPath, input: dir}, {type: RequiredPath, input: dir, path: a/b}]")).Capabilities[0]
	if got := m.Requires(); !slices.Equal(got, []Required{{"dir", ".git"}, {"dir", ""}, {"dir", "a/b"}}) {
		t.Errorf("%+v", got)
	}
	for r, want := range map[Required]string{{"dir", ".git"}: "input /dir does not contain .git, and demo.look requires it", {"dir", ""}: "input /dir is missing", {"", "x"}: "the working directory does not contain x"} {
		if err := m.Missing(r); bailey.KindOf(err) != bailey.Invalid || !strings.Contains(err.Error(), want) || bailey.HintOf(err) == "" {
			t.Errorf("%v", err)
		}
	}
}

func TestValidatorsRefuse(t *testing.T) {
	for list, want := range map[string]string{
		"{type: RequiredPath}": "validators must be a list",
		"[x]":                  "a validator must be a mapping",
		"[{input: dir}]":       "a validator needs type",
		"[{type: Required}]":   "type must be one of DenyArgs, RequiredInputKey, RequiredPath",
		"[{type: RequiredPath, input: dir, args: [x]}]":                "RequiredPath has no key args",
		"[{type: RequiredPath, input: dir, shell: x}]":                 `a validator has no key "shell"`,
		"[{type: RequiredPath, input: width}]":                         `RequiredPath needs a path input, but "width" is not`,
		"[{type: RequiredPath, input: dri, path: x}]":                  `did you mean "dir"?`,
		"[{type: RequiredPath, input: dir, path: /etc}]":               "RequiredPath needs a relative path",
		"[{type: RequiredPath, input: dir, path: ../x}]":               "RequiredPath needs a relative path",
		"[{type: RequiredPath, input: dir, path: a/./b}]":              "RequiredPath needs a relative path",
		"[{type: RequiredPath, input: dir, path: .}]":                  "RequiredPath needs a relative path",
		"[{type: DenyArgs}]":                                           "DenyArgs needs args",
		"[{type: DenyArgs, args: []}]":                                 "DenyArgs needs at least one",
		"[{type: DenyArgs, args: [--]}]":                               "DenyArgs needs words",
		"[{type: DenyArgs, args: [--x=y]}]":                            "DenyArgs needs words",
		"[{type: DenyArgs, args: [-x], input: dir}]":                   "DenyArgs has no key input",
		"[{type: RequiredInputKey}]":                                   "RequiredInputKey needs key",
		"[{type: RequiredInputKey, key: widht}]":                       `"widht" is not an input; did you mean "width"?`,
		"[{type: RequiredInputKey, input: width, key: x}]":             "needs an input that is an object",
		"[{type: RequiredInputKey, input: opts, key: \"\"}]":           "can have no key",
		"[" + strings.Repeat("{type: DenyArgs, args: [x]},", 17) + "]": "at most 16 validators, not 17",
	} {
		t.Run(list[:min(len(list), 50)], func(t *testing.T) { wantErr(t, validated(list), want) })
	}
	wantErr(t, strings.NewReplacer("      cwdFromInput: dir\n", "      cwd: none\n").Replace(validated("[{type: RequiredPath, path: x}]")), "the tool runs in no directory of its caller")
}
