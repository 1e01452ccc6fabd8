package gitsign

import (
	"strings"
	"testing"
)

const (
	tree   = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n"
	parent = "parent 1234567890123456789012345678901234567890\n"
	ada    = "Ada Lovelace <ada@example.org> 1700000000 +0100\n"
	plain  = tree + parent + "author " + ada + "committer " + ada + "\nmessage\n"
	tagged = "object 1234567890123456789012345678901234567890\ntype commit\ntag v1\ntagger " + ada + "\nmessage\n"
)

// TestObject checks which texts are read as one commit or tag.
func TestObject(t *testing.T) {
	merge := strings.Replace(plain, "\n\nmessage", "\nmergetag object 1234567890123456789012345678901234567890\n type commit\n tag v2\n tagger "+
		strings.TrimSuffix(ada, "\n")+"\n \n a message\n -----BEGIN SSH SIGNATURE-----\n x\n\nmessage", 1)
	for name, c := range map[string]struct{ text, fault string }{
		"commit":           {plain, ""},
		"root":             {strings.Replace(plain, parent, "", 1), ""},
		"merge":            {strings.Replace(plain, parent, parent+parent, 1), ""},
		"merge of a tag":   {merge, ""},
		"no message":       {strings.TrimSuffix(plain, "message\n"), ""},
		"encoding":         {strings.Replace(plain, "\n\n", "\nencoding UTF-8\n\n", 1), ""},
		"tag":              {tagged, ""},
		"sha256":           {strings.Replace(plain, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", strings.Repeat("ab", 32), 1), ""},
		"nothing":          {"", "no commit and no tag"},
		"other text":       {"hello\n\nworld\n", "no commit and no tag"},
		"no end":           {tree + "author " + ada + "committer " + ada, "no commit and no tag"},
		"an agent request": {"\x00\x00\x00\x01\x0b", "NUL"},
		"signed":           {strings.Replace(plain, "\n\n", "\ngpgsig -----BEGIN SSH SIGNATURE-----\n x\n\n", 1), "a signature already"},
		"signed otherwise": {strings.Replace(plain, "\n\n", "\ngpgsig-sha256 x\n\n", 1), "a signature already"},
		"signed tag":       {tagged + "-----BEGIN PGP SIGNATURE-----\nx\n", "a signature already"},
		"a header":         {strings.Replace(plain, "\n\n", "\nHG:extra x\n\n", 1), "not expected"},
		"two authors":      {strings.Replace(plain, "committer ", "author "+ada+"committer ", 1), "committer is missing"},
		"two committers":   {strings.Replace(plain, "\n\n", "\ncommitter "+ada+"\n", 1), "not expected"},
		"two tags":         {strings.Replace(tagged, "\ntagger", "\ntag v2\ntagger", 1), "tagger is missing"},
		"latin":            {strings.Replace(plain, "\n\n", "\nencoding latin1\n\n", 1), "UTF-8"},
		"no tree":          {strings.Replace(plain, "4b825", "HEAD5", 1), "tree"},
		"date":             {strings.Replace(plain, "1700000000", "017", 1), "author"},
		"zone":             {strings.Replace(plain, "+0100", "CET", 1), "author"},
		"folded":           {strings.Replace(plain, " <ada", "\n <ada", 1), "author"},
		"brackets":         {strings.Replace(plain, "<ada@example.org>", "<ada@example.org> <eve@x>", 1), "author"},
		"large":            {plain + strings.Repeat("x", MaxObject), "more than"},
	} {
		o, err := parseObject([]byte(c.text))
		switch {
		case (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault):
			t.Errorf("%s: %v, want %q", name, err, c.fault)
		case err == nil && (o.by.name != "Ada Lovelace" || o.by.email != "ada@example.org" || o.by.at.Unix() != 1700000000):
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// FuzzObject checks that a text which is read has the committer or tagger in exactly one header, as git reads it.
func FuzzObject(f *testing.F) {
	for _, s := range []string{plain, tagged, tree, "object x", strings.Replace(plain, "\n\n", "\nmergetag object x\n y\n\n", 1)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseObject(text)
		if err != nil {
			return
		}
		head, _, _ := strings.Cut(string(text), "\n\n")
		role := "committer "
		if o.kind == "tag" {
			role = "tagger "
		}
		if n := strings.Count("\n"+head, "\n"+role); n != 1 {
			t.Errorf("%q has %d lines %q", text, n, role)
		}
		if !strings.Contains(head, "\n"+role+o.by.name+" <"+o.by.email+"> ") || strings.Contains(head, "\ngpgsig") {
			t.Errorf("%q: %+v", text, o)
		}
	})
}
