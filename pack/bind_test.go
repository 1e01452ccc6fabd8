package pack

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"bailey"
)

const binding = "{args: [[a], [b]], bind: [{look: 2, pattern: 'is (\\S*)\\n', argument: '{{ input.dir }}', as: 'dir={{ shown }}/{{ input.width }}'}]}"

func showing(outputs ...string) func(int) (string, bool) {
	return func(look int) (string, bool) { return outputs[look], true }
}

// TestBind checks that exactly one argument is replaced by the value from the preview, and that nothing is replaced if
// the argument is not passed.
func TestBind(t *testing.T) {
	m := previewing(t, binding)
	input, paths := map[string]any{"dir": "x", "width": json.Number("9")}, map[string]string{"dir": "/w/x"}
	plain, err := m.Render(input, paths)
	if err != nil || plain[len(plain)-1] != "/w/x" || !m.Binds() {
		t.Fatal(plain, err)
	}
	got, err := m.Bind(input, paths, showing("is evil\n", "is it\n"))
	if want := append(slices.Clone(plain[:len(plain)-1]), "dir=it/9"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := m.Bind(map[string]any{"dir": "x"}, paths, showing("", "is it\n")); err == nil {
		t.Error("an input that the argument wants has no value, and it is passed")
	}
	force := previewing(t, `{args: [a], bind: [{look: 1, pattern: '(?:is (\w+))?', argument: '{{ input.all | flag: "--all" }}', as: '--all={{ shown }}'}]}`)
	for all, want := range map[bool]string{true: "-l --all=it -- /w/x", false: "-l -- /w/x"} {
		got, err := force.Bind(map[string]any{"dir": "x", "all": all}, paths, showing("is it"))
		if got = slices.DeleteFunc(got, func(s string) bool { return s == "--width=80" }); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%v: %q, %v", all, got, err)
		}
	}
	if got, err := force.Bind(map[string]any{"dir": "x", "all": true}, paths, showing("")); err != nil || !slices.Contains(got, "--all=") {
		t.Errorf("nothing is what it may show: %q, %v", got, err)
	}
	if got, err := mustParse(t, sample).Capabilities[0].Bind(input, paths, nil); err != nil || !slices.Equal(got, plain) {
		t.Errorf("nothing is bound: %q, %v", got, err)
	}
}

// TestFollows checks that a command of a preview can use a value that an earlier one printed.
func TestFollows(t *testing.T) {
	m := previewing(t, `{args: [[a], [of, "x={{ shown }}", "{{ input.width }}"]], bind: [{look: 1, pattern: 'is (\w*)', argument: "{{ input.dir }}", as: "{{ shown }}"}]}`)
	jobs, err := m.Preview(map[string]any{"dir": "x", "width": json.Number("9")}, map[string]string{"dir": "/w/x"}, nil, "it")
	if err != nil || len(jobs) != 2 || m.Follows(0) || !m.Follows(1) || !slices.Equal(jobs[1].Args, []string{"of", "x=it", "9"}) {
		t.Fatalf("%+v, %v", jobs, err)
	}
	if word, err := m.Shown(showing("is it", "")); err != nil || word != "it" {
		t.Error(word, err)
	}
	for _, output := range []string{"", "is ", "is -it", "is it\n"} {
		if word, err := m.Shown(showing(output, "")); bailey.KindOf(err) != bailey.Invalid || word != "" {
			t.Errorf("%q: %q, %v", output, word, err)
		}
	}
	if word, err := previewing(t, "{args: [a]}").Shown(nil); err != nil || word != "" {
		t.Error(word, err)
	}
}

// TestBindRefuses checks that no argument is taken from output that differs from the form in the manifest, and that the
// error does not repeat the output.
func TestBindRefuses(t *testing.T) {
	for name, preview := range map[string]string{
		"behind words": binding, "at the beginning": strings.ReplaceAll(binding, "dir={{ shown }}", "{{ shown }}"),
		"whatever the pattern lets through": strings.ReplaceAll(binding, `(\S*)`, `((?s:.*))`),
	} {
		m := previewing(t, preview)
		input, paths := map[string]any{"dir": "x", "width": json.Number("9")}, map[string]string{"dir": "/w/x"}
		if _, err := m.Bind(input, paths, showing("", "is it\n")); err != nil {
			t.Fatal(name, err)
		}
		for _, output := range []string{"", "it", "is it", "is it\nis it\n", "is it\nis evil\n", "evil\nis it\n", "\nis it\n", "is it\n\n", "is -it\n", "is --all\n",
			"is i\x00t\n", "is i\x1bt\n", "is \u202e\n", "is \xff\n", "is i t\n", "is " + strings.Repeat("x", maxTaken+1) + "\n", strings.Repeat("is it\n", 1<<16)} {
			args, err := m.Bind(input, paths, showing("is it\n", output))
			if bailey.KindOf(err) != bailey.Invalid || bailey.HintOf(err) == "" || args != nil || strings.Contains(err.Error(), "it\n") || strings.Contains(err.Error(), "evil") {
				t.Errorf("%s: %.40q: %q, %v", name, output, args, err)
			}
		}
		if _, err := m.Bind(input, paths, func(int) (string, bool) { return "is it\n", false }); bailey.KindOf(err) != bailey.Invalid {
			t.Errorf("%s: an output that is cut: %v", name, err)
		}
	}
	m := previewing(t, strings.ReplaceAll(binding, "dir={{ shown }}", "{{ shown }}"))
	if args, err := m.Bind(map[string]any{"dir": "x", "width": json.Number("9")}, map[string]string{"dir": "/w/x"}, showing("", "is \n")); err == nil {
		t.Errorf("nothing begins an argument: %q", args)
	}
}
