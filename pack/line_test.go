package pack_test

import (
	"slices"
	"strings"
	"testing"

	"bailey"
	"bailey/pack"
	"bailey/packs"
)

func builtin(t testing.TB) []*pack.Capability {
	catalog, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(catalog.All(), func(m *pack.Capability) bool { return m.Isolation == pack.Agent })
}

// TestMeanings checks that a command line maps to one capability or to none, and that similar capabilities are listed
// in the order of their similarity.
func TestMeanings(t *testing.T) {
	list := builtin(t)
	for _, c := range []struct{ line, means, near string }{
		{"git status", "git.status", "git.status"},
		{"git log -5", "git.log", "git.log"},
		{"/usr/bin/git status", "git.status", "git.status"},
		{"./git status", "", ""},
		{"git rebase -i", "", "git.rebase"},
		{"git commit --amend", "git.commit-amend", "git.commit"}, // its input is invalid: git opens an editor,
		{"git log --output=x", "", "git.log"},
		{"git -c a=b status", "", "git.add"},
		{"git status --", "git.status", "git.status"},
		{"git reflog show main", "git.reflog", "git.reflog"},
		{"git merge -s evil main", "", "git.merge"}, // git would run git-merge-evil
		{"git format-patch -o /tmp HEAD", "", "git.format-patch"},
		{"no-such x", "", ""},
		{"aws ec2 describe-vpcs --filters a b --query x", "aws.read", "aws.read"},
		{"aws --no-such-option x ec2 describe-vpcs", "", "aws.read"}, // it may have a value
		{"aws ec2 describe-vpcs -- x", "", "aws.read"},
		{"aws ec2 no-such", "", "aws.read"},                                // several refuse it
		{"docker run --rm alpine ls -l --all", "docker.run", "docker.run"}, // no word after the image is an option
		{"docker run alpine --privileged", "docker.run", "docker.run"},
		{"docker run -- alpine -- ls", "docker.run", "docker.run"},
		{"docker run --privileged alpine", "docker.run-host", "docker.run"},   // the table of run has no such option,
		{"docker run --network=host alpine", "docker.run-host", "docker.run"}, // or the schema of its items excludes it
		{"docker run --network=app alpine", "docker.run", "docker.run"},
		{"docker run -it alpine", "", "docker.run"},
	} {
		argv := strings.Fields(c.line)
		var ids, near []string
		for _, m := range pack.Meanings(list, argv) {
			ids = append(ids, string(m.ID))
		}
		for _, m := range pack.Near(list, argv) {
			near = append(near, string(m.ID))
		}
		if got := strings.Join(ids, " "); got != c.means {
			t.Errorf("%s means %q, want %q", c.line, got, c.means)
		}
		if c.near == "" && len(near) > 0 || c.near != "" && !slices.Contains(near, c.near) || len(near) > 5 {
			t.Errorf("%s is near %v, want %q", c.line, near, c.near)
		}
	}
	if pack.Meanings(list, nil) != nil || pack.Near(list, nil) != nil {
		t.Error("no words mean something")
	}
}

// FuzzMeanings checks that no command line breaks the matcher, and that an unknown option is not ignored.
func FuzzMeanings(f *testing.F) {
	list := builtin(f)
	for _, line := range []string{"git\x00status", "git\x00log\x00-5", "git\x00commit\x00-m\x00a\nb\x00--\x00-x", "git\x00add\x00--\x00-u", "docker\x00run\x00-it", "git\x00log\x00-", "\x00", "git\x00log\x00--format=",
		"aws\x00ec2\x00describe-vpcs\x00--no-such-option\x00x", "gcloud\x00--no-such-option\x00projects\x00list", "az\x00vm\x00list\x00-d\x00--\x00x"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		argv := strings.Split(line, "\x00")
		for _, m := range pack.Meanings(list, argv) {
			if len(m.Inputs) == 0 || len(m.Inputs) > 16 {
				t.Fatalf("%q: %d inputs of %s", argv, len(m.Inputs), m.ID)
			}
			for _, word := range argv[1:] { // an undeclared option must not be ignored
				if word == "--no-such-option" && !slices.Contains(argv[:slices.Index(argv, word)], "--") && !taken(m.Inputs, word) {
					t.Fatalf("%q was passed over by %s", argv, m.ID)
				}
			}
		}
		if near := pack.Near(list, argv); len(near) > 5 {
			t.Fatalf("%d are near", len(near))
		}
	})
}

func taken(inputs []map[string]any, word string) bool {
	for _, in := range inputs {
		for _, v := range in {
			list, _ := v.([]any)
			if v == word || slices.Contains(list, any(word)) {
				return true
			}
		}
	}
	return false
}

// TestProjectInput checks which input names the directory of the project, and that a schema without it requires the rest.
func TestProjectInput(t *testing.T) {
	t.Parallel()
	catalog, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[bailey.CapabilityID]struct{ input, required string }{
		"git.status": {"repo", ""}, "git.push": {"repo", `"required":["to","ref"]`}, "go.test": {"dir", ""},
		"git.clone": {"into", `"required":["url"]`}, "docker.build": {"dir", `"required":["context"]`},
		"file.read": {"", ""}, "system.date": {"", ""},
	} {
		m, err := catalog.Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		schema := string(m.InputSchemaWithout(want.input))
		if m.ProjectInput() != want.input || want.input != "" && strings.Contains(schema, `"required":["`+want.input) ||
			!strings.Contains(schema, want.required) {
			t.Errorf("%s: %q, %s", id, m.ProjectInput(), schema)
		}
	}
}
