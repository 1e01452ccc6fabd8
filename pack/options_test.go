package pack

import (
	"slices"
	"strings"
	"testing"
)

// TestOptionTable checks which words are options of a table, and the items that they become.
func TestOptionTable(t *testing.T) {
	table, wrong := parseOptionTable("--all -q -v -n# -# -o= --out=json|yaml|path=* --color[=] -M[=] -run= --depth=# -f=<subpath> --file=<subpath> --net=~[a-z]+[0-9]? -e=~[^=].*")
	if wrong != "" {
		t.Fatal(wrong)
	}
	for _, c := range []struct{ line, items, left string }{
		{"--all x", "--all", "x"},
		{"-qv", "-q -v", ""},
		{"-qo file x", "-q -ofile", "x"},
		{"-ofile", "-ofile", ""},
		{"-o", "", ""},
		{"-o=x", "-o=x", ""}, // getopt(3): the value is "=x"
		{"-n 5", "-n5", ""},
		{"-n five", "", "five"},
		{"-12", "-12", ""},
		{"--out json", "--out=json", ""},
		{"--out=path=a", "--out=path=a", ""},
		{"--out xml", "", "xml"},
		{"--out", "", ""},
		{"--color x", "--color", "x"},
		{"--color=x", "--color=x", ""},
		{"-M90 x", "-M90", "x"},
		{"-run Test", "-run=Test", ""},
		{"-run=Test", "-run=Test", ""},
		{"--all=1", "", ""},
		{"--al", "", ""},
		{"-qx", "", ""},
		{"--depth -1", "", "-1"},
		{"-f a/b.yml x", "-fa/b.yml", "x"},
		{"--file ./a", "--file=./a", ""},
		{"--file /a", "", "/a"},
		{"--file=../a", "", ""},
		{"-f a/../../b", "", "a/../../b"},
		{"-f=/a", "", ""},
		{"-f=a", "", ""},
		{"-f -", "", "-"},
		{"-f https://x/a", "", "https://x/a"},
		{"-f git@x:a", "", "git@x:a"},
		{"--net app1", "--net=app1", ""},
		{"--net=app12", "", ""},
		{"--net=container:a", "", ""},
		{"--net=xapp1x,", "", ""},
		{"-e A=b", "-eA=b", ""},
		{"-e=A", "", ""},
		{"-", "", ""},
	} {
		words := strings.Fields(c.line)
		items, used := table.readWord(words[0], words[1:])
		if got := strings.Join(items, " "); got != c.items || strings.Join(words[1+used:], " ") != c.left {
			t.Errorf("%s: %q, %d words used; want %q and %q left", c.line, got, used, c.items, c.left)
		}
		for _, item := range items {
			if fault := table.faultOf(item); fault != "" {
				t.Errorf("%s: item %q %s", c.line, item, fault)
			}
		}
	}
	for _, item := range []string{"", "-", "--", "x", "-qv", "--out", "--out=xml", "-n", "-nx", "--all=1", "-o", "--none", "00", "5"} {
		if table.faultOf(item) == "" {
			t.Errorf("the item %q is taken", item)
		}
	}
	for _, text := range []string{"", "x", "--", "--a --a", "--a[", "--a[=", "-#x", "--a=~(", "--a=~a --a="} {
		if _, wrong := parseOptionTable(text); wrong == "" {
			t.Errorf("the table %q is taken", text)
		}
	}
}

// FuzzOptionTable checks that each item of a word is an option of the table by itself, and that no word yields an item
// whose name the table does not contain.
func FuzzOptionTable(f *testing.F) {
	f.Add("-#", "00", "")
	f.Add("--all -n# -o= --out=a|b* --color[=]", "-on", "5")
	f.Fuzz(func(t *testing.T, text, word, next string) {
		table, wrong := parseOptionTable(text)
		if wrong != "" {
			return
		}
		items, used := table.readWord(word, []string{next})
		if used < 0 || used > 1 || len(items) == 0 && used > 0 {
			t.Fatalf("%q: %d words used for %q", word, used, items)
		}
		for _, item := range items {
			if fault := table.faultOf(item); fault != "" {
				t.Errorf("%q of %q: item %q %s", word, text, item, fault)
			}
			if !slices.ContainsFunc(table.list, func(o toolOption) bool { return strings.HasPrefix(item, o.name) }) {
				t.Errorf("%q of %q: item %q", word, text, item)
			}
		}
	})
}
