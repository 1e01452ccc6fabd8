package pack

import (
	"slices"
	"strings"
	"testing"
)

// TestOptionTable checks which words are options of a table, and the items that they become.
func TestOptionTable(t *testing.T) {
	table, wrong := parseOptionTable("--all -q -v -n# -# -o= --out=json|yaml|path=* --color[=] -M[=] -run= --depth=# -j[#] --jobs[#] -w|--work= --force --in=./|- -O=./ --arg:: --raw::./ --indent:# --data: -f=./ --file=./ --net=~[a-z]+[0-9]? -e=~[^=].*")
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
		{"-j 4 x", "-j4", "x"},
		{"-j4", "-j4", ""},
		{"-j x", "-j", "x"},
		{"-j", "-j", ""},
		{"-jx", "", ""},
		{"--jobs 4", "--jobs=4", ""},
		{"--jobs=x", "", ""},
		{"-w a b", "--work=a", "b"},
		{"--work=a", "--work=a", ""},
		{"-w=a", "", ""}, // tools differ in what they make of it
		{"-wx y", "--work=x", "y"},
		{"-qwx", "-q --work=x", ""},
		{"--in a/b", "--in=a/b", ""},
		{"--in -", "--in=-", ""},
		{"--in /a", "", "/a"},
		{"--in=../a", "", ""},
		{"--in=a/../../b", "", ""},
		{"-Oa/b", "-Oa/b", ""},
		{"-O /a", "", "/a"},
		{"-O -", "", "-"},
		{"--arg a b c", "--arg=a=b", "c"},
		{"--arg a -b", "--arg=a=-b", ""},
		{"--arg a", "", "a"},
		{"--arg=a=b", "", ""}, // the tool would not understand it
		{"--raw a b.json", "--raw=a=b.json", ""},
		{"--raw a /b.json", "", "a /b.json"},
		{"--indent 2 x", "--indent=2", "x"},
		{"--indent=2", "", ""},
		{"--data @x", "--data=@x", ""},
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
	for _, item := range []string{"", "-", "--", "x", "-qv", "--out", "--out=xml", "-n", "-nx", "--all=1", "-o", "--none", "00", "5", "--arg", "--arg=a", "--arg==b", "--indent", "--indent=x", "--in=/a", "-w", "-wx", "-f"} {
		if table.faultOf(item) == "" {
			t.Errorf("the item %q is taken", item)
		}
	}
	for item, want := range map[string]string{"--arg=a=b=c": "--arg|a|b=c", "--indent=2": "--indent|2", "--work=a": "--work=a", "--all": "--all", "--data=a=b": "--data|a=b"} {
		if got := strings.Join(table.splitItem(item), "|"); got != want {
			t.Errorf("%s: words %s, want %s", item, got, want)
		}
	}
	for item, want := range map[string]string{"--in=a/b": "a/b", "--in=-": "", "--raw=a=b=c": "b=c", "-Oa=b": "a=b", "-Oa": "a", "--work=a": "", "--all": ""} {
		if got := table.pathOf(item); got != want {
			t.Errorf("%s: path %q, want %q", item, got, want)
		}
	}
	for _, text := range []string{"", "x", "--", "--a --a", "--a[", "--a[=", "-#x", "-a:", "-a|", "-a|x", "-a|-a", "-a -b|-a", "|-a", "--a|-#", "--a=~(", "--a=~a --a="} {
		if _, wrong := parseOptionTable(text); wrong == "" {
			t.Errorf("the table %q is taken", text)
		}
	}
}

// TestOptionTableOfGo checks how words become items if the tool reads options as package flag of Go does.
func TestOptionTableOfGo(t *testing.T) {
	table, wrong := parseOptionTable("-= -v -o= -p=# -run= -json[=] -mod=mod|vendor -trace=./|/dev/null")
	if wrong != "" {
		t.Fatal(wrong)
	}
	for _, c := range []struct{ line, items, left string }{
		{"-v x", "-v", "x"},
		{"--v", "-v", ""},
		{"-o bin/x y", "-o=bin/x", "y"},
		{"-o=bin/x", "-o=bin/x", ""},
		{"--run=A", "-run=A", ""},
		{"-run A", "-run=A", ""},
		{"-p 4", "-p=4", ""},
		{"-json x", "-json", "x"},
		{"-json=Dir", "-json=Dir", ""},
		{"-mod vendor", "-mod=vendor", ""},
		{"-trace a/b", "-trace=a/b", ""},
		{"-trace /dev/null", "-trace=/dev/null", ""},
		{"-trace=/etc/x", "", ""},
		{"-trace a/../../x", "", "a/../../x"},
		{"-obin/x", "", ""},
		{"-vv", "", ""},
		{"-v=true", "", ""},
		{"-p x", "", "x"},
		{"-mod=x", "", ""},
		{"-o", "", ""},
		{"--", "", ""},
		{"---v", "", ""},
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
}

// FuzzOptionTable checks that each item of a word is an option of the table by itself, and that no word yields an item
// whose name the table does not contain.
func FuzzOptionTable(f *testing.F) {
	f.Add("-#", "00", "")
	f.Add("-= -o= -v", "--o", "5")
	f.Add("-j[#]", "-j", "x")
	f.Add("--all -n# -o= --out=a|b* --color[=]", "-on", "5")
	f.Add("-w|--work=./ --arg:: --in:", "-w", "a")
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

// TestOpenTable checks which words an open table has as items.
func TestOpenTable(t *testing.T) {
	table, wrong := parseOptionTable("--* -* !--endpoint-url !-h --query= -o=a|b --quiet")
	if wrong != "" {
		t.Fatal(wrong)
	}
	for _, item := range []string{"--any", "--any-1=x y", "--any=", "-n", "-A", "word", "a=-b", "--query=-x", "-oa", "--quiet", "--endpoint-url-2"} {
		if fault := table.faultOf(item); fault != "" {
			t.Errorf("the item %q %s", item, fault)
		}
	}
	for _, item := range []string{"-", "--", "---x", "-h", "--endpoint-url", "--endpoint-url=x", "--endpoint", "--end=x", "--e", "--query", "--quer=x", "--qu",
		"-oc", "-o", "-nx", "-1", "-n=x", "--Any", "--a.b", "--any\n"} {
		if table.faultOf(item) == "" {
			t.Errorf("the item %q is taken", item)
		}
	}
	for _, text := range []string{"-*", "--all !--none", "--* !none", "--* !--", "--* !-xy", "--* --a --a"} {
		if _, wrong := parseOptionTable(text); wrong == "" {
			t.Errorf("the table %q is taken", text)
		}
	}
}
