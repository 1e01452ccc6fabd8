package packs_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
)

var update = flag.Bool("update", false, "write golden files anew")

// lookers are the packs that query other systems.
var lookers = []string{"gh", "aws", "az", "gcloud", "gcloud-aiplatform"}

// doers returns the capabilities of these packs that do more than query.
func doers(t *testing.T) (ids []string) {
	for _, m := range catalog(t).All() {
		if slices.Contains(lookers, m.Pack) && m.SideEffect.Rank() > pack.ReadOnly.Rank() {
			ids = append(ids, string(m.ID))
		}
	}
	return ids
}

// general are the packs of which a command line means a capability of general form: their other capabilities, with inputs of
// their own, stand for no line.
var general = []string{"aws", "az", "gcloud", "gcloud-aiplatform"}

func lookersOf(t *testing.T) []*pack.Capability { return of(t, lookers) }

// of lists the capabilities of the given packs, and those that are named themselves.
func of(t *testing.T, packs []string) (all []*pack.Capability) {
	t.Helper()
	doers := doers(t)
	for _, m := range catalog(t).All() {
		if id := string(m.ID); slices.Contains(packs, id) || slices.Contains(packs, m.Pack) && !slices.Contains(doers, id) {
			all = append(all, m)
		}
	}
	return all
}

// TestLooking checks the command line of every capability that queries another system, with the required inputs and
// with all inputs.
func TestLooking(t *testing.T) { calls(t, "testdata/looking.txt", lookers) }

// TestBuilding checks the command lines of the capabilities that work on a project.
func TestBuilding(t *testing.T) {
	calls(t, "testdata/building.txt", append([]string{"git", "go", "npm", "pnpm", "yarn", "pip", "cargo", "make", "python", "uv", "terraform", "curl", "jq"}, doers(t)...))
}

// calls compares a file of calls with the command lines that the packs produce. The file must contain each capability
// of the packs.
func calls(t *testing.T, file string, packs []string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	tried := map[bailey.CapabilityID]bool{}
	for line := range strings.Lines(string(data)) {
		what, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch what {
		case "#":
			got.WriteString(line)
		case ">":
			id, input, _ := strings.Cut(text, " ")
			tried[bailey.CapabilityID(id)] = true
			fmt.Fprintf(&got, "%s%s", line, golden(t, bailey.CapabilityID(id), input))
		case "$":
			fmt.Fprintf(&got, "%s%s", line, meant(t, packs, text))
		}
	}
	for _, m := range of(t, packs) {
		if !tried[m.ID] {
			t.Errorf("%s is not in %s", m.ID, file)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got.String() != string(data) {
		t.Errorf("%s is not what the packs make of it; -update writes it anew:\n%s", file, got.String())
	}
}

// golden returns the result of a call: its command line, its paths and its endpoints.
func golden(t *testing.T, id bailey.CapabilityID, text string) string {
	t.Helper()
	var input map[string]any
	if err := json.Unmarshal([]byte(text), &input); err != nil {
		t.Fatal(id, err)
	}
	m, err := catalog(t).Lookup(id)
	if err != nil {
		t.Fatal(err)
	}
	paths, writes := map[string]string{}, ""
	for _, in := range m.PathInputs() {
		if p, ok := input[in.Name].(string); ok {
			paths[in.Name] = p
			if in.Write {
				writes += "  writes " + p + "\n"
			}
		}
	}
	j := job(t, id, input, paths)
	reaches, err := m.Egress(input)
	if err != nil {
		t.Fatal(id, err)
	}
	out := "  " + quoted(append([]string{m.Command}, j.Args...)) + "\n"
	if len(reaches) > 0 {
		out += "  reaches " + strings.Join(reaches, " ") + "\n"
	}
	if j.Dir != "" {
		out += "  in " + j.Dir + "\n"
	}
	return out + writes
}

func quoted(words []string) string {
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \"'$&;|<>()[]{}*?\\!") {
			words[i] = fmt.Sprintf("%q", w)
		}
	}
	return strings.Join(words, " ")
}

// meant lists the calls to which a command line maps.
func meant(t *testing.T, packs []string, line string) (out string) {
	t.Helper()
	for _, m := range of(t, packs) {
		inputs, ok := m.Match(strings.Fields(line))
		if !ok {
			continue
		}
		for _, in := range inputs {
			text, err := json.Marshal(in)
			if err != nil {
				t.Fatal(err)
			}
			out += fmt.Sprintf("  %s %s\n", m.ID, text)
			if _, err := m.Check(in, true); err != nil {
				out += "  refused: " + err.Error() + "\n"
			}
		}
	}
	if out == "" {
		return "  nothing\n"
	}
	return out
}

// TestLookersOnlyLook checks that no such pack declares more than queries, writes, or executes more than its tool. All
// capabilities of one pack must have the same environment.
func TestLookersOnlyLook(t *testing.T) {
	env := map[string][]string{}
	for _, m := range lookersOf(t) {
		j := m.Job(nil, nil)
		writes := slices.ContainsFunc(m.PathInputs(), func(in pack.PathInput) bool { return in.Write })
		if writes || m.SideEffect != pack.ReadOnly || m.Reversibility != pack.NothingDone || len(j.Exec) > 0 ||
			!slices.Contains(general, m.Pack) && (len(m.ArgvPattern()) == 0) != (len(m.PathInputs()) > 0) {
			t.Errorf("%s: %s, %s, executes %q, stands for %q", m.ID, m.SideEffect, m.Reversibility, j.Exec, m.ArgvPattern())
		}
		if first, ok := env[m.Pack]; ok && !slices.Equal(first, j.Env) {
			t.Errorf("%s has another environment than others of its pack: %q, %q", m.ID, j.Env, first)
		}
		env[m.Pack] = j.Env
		for _, to := range m.Reaches() {
			if !slices.Contains([]string{"api.github.com:443", "*.githubusercontent.com:443", "*.amazonaws.com:443", "management.azure.com:443",
				"graph.microsoft.com:443", "login.microsoftonline.com:443", "*.vault.azure.net:443", "*.blob.core.windows.net:443",
				"*.queue.core.windows.net:443", "*.table.core.windows.net:443", "*.file.core.windows.net:443", "*.azurecr.io:443",
				"*.scm.azurewebsites.net:443", "api.loganalytics.io:443"}, to) && !strings.HasSuffix(to, ".googleapis.com:443") {
				t.Errorf("%s reaches %s", m.ID, to)
			}
		}
		for _, w := range m.Wants() {
			if w.Inject == nil && !w.File {
				t.Errorf("%s has %s in its environment", m.ID, w.Name)
			}
		}
	}
	if len(env) != len(lookers) {
		t.Errorf("%d packs of %d", len(env), len(lookers))
	}
}

// hostileWords must never be more than a plain value.
var hostileWords = []string{"-x", "--output=/tmp/x", "--kubeconfig=/tmp/x", "@/etc/passwd", "file:///etc/passwd", "fileb:///etc/passwd", "x=@/etc/passwd", "http://169.254.169.254/",
	"https://evil.example.com/", "a\x00b", "a\nb", "a\x1b[2J", "", "\u202ea"}

// TestLookersRefuse checks that every text input refuses hostile values, such as an option or the name of a file to
// read.
func TestLookersRefuse(t *testing.T) {
	for _, m := range lookersOf(t) {
		var schema struct {
			Properties map[string]struct{ Type, Format string }
		}
		if err := json.Unmarshal(m.InputSchema(), &schema); err != nil {
			t.Fatal(err)
		}
		for name, p := range schema.Properties {
			if p.Type != "string" || p.Format == "path" || p.Format == "url" {
				continue
			}
			for _, word := range hostileWords {
				clean, err := m.Check(map[string]any{name: word}, false)
				if err == nil {
					t.Errorf("%s takes %q as %v", m.ID, word, clean)
				} else if !strings.Contains(err.Error(), "/"+name+": ") && word != "" && name != "search" {
					t.Errorf("%s does not refuse %s %q: %v", m.ID, name, word, err)
				}
			}
		}
	}
}

func TestLookersRefuseMore(t *testing.T) {
	for _, x := range []struct {
		id    bailey.CapabilityID
		name  string
		value any
	}{
		{"gh.api", "endpoint", "graphql"},
		{"gh.api", "endpoint", "/graphql"},
		{"gh.api", "endpoint", "https://evil.example.com/x"},
		{"gh.api", "endpoint", "repos/o/r;x"},
		{"gh.api-query", "endpoint", "repos/o/r"},
		{"gh.api", "method", "POST"},
		{"gh.pr-list", "repo", "evil.example.com/o/r"},
		{"gh.pr-view", "number", "https://evil.example.com/o/r/pull/1"},
		{"gh.repo-view", "repo", "o/r --web"},
		{"aws.ec2-instances", "region", "eu-west-1.evil.example.com/"},
		{"aws.ec2-instances", "region", "@evil"},
		{"aws.s3-list", "address", "/etc/passwd"},
		{"aws.eks-cluster", "output", "yaml-stream"},
		{"aws.read", "service", "s3cmd"},
		{"aws.read", "operation", "delete-object"},
		{"aws.read", "profile", "--debug"},
		{"aws.s3-cat", "from", "http://b/k"},
		{"gcloud.read", "group", "docker"},
		{"gcloud.read", "verb", "list/../delete"},
		{"az.read", "kind", "delete"},
		{"az.rest-get", "url", "https://management.azure.com@evil.example.com/"},
		{"az.vm-list", "subscription", "../x"},
		{"az.resource-show", "id", "/subscriptions/11111111-2222-3333-4444-555555555555/../../x"},
		{"az.resource-show", "id", "@evil.example.com/subscriptions/x"},
		{"az.resource-show", "id", "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/g?x=y"},
		{"az.activity-log", "since", "2026-11-20' or '1' eq '1"},
		{"gcloud.compute-instances", "project", "x --account=y"},
		{"gcloud.run-services", "region", "evil.example.com/"},
		{"gcloud-aiplatform.models-list", "region", "../x"},
		{"gcloud-aiplatform.model-describe", "model", "projects/other/x"},
		{"terraform.output", "name", "-json"},
	} {
		m, err := catalog(t).Lookup(x.id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Check(map[string]any{x.name: x.value}, false); err == nil || !strings.Contains(err.Error(), "/"+x.name+": ") && x.value != "" {
			t.Errorf("%s %s %v: %v", x.id, x.name, x.value, err)
		}
	}
}
