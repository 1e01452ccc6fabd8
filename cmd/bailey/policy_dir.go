package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"bailey"
	"bailey/internal/policy"
)

// What a policy directory may hold.
const (
	maxPolicyFiles = 1000
	maxPolicyBytes = 64 << 20
)

// readPolicyDir reads the rules of a policy directory, sorted by name. A file that would silently not count is an
// error: rules.ceddar forbids nothing.
func readPolicyDir(dir string) ([]policy.Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("policy directory %s cannot be opened", dir), Hint: "name a directory that holds *.cedar files", Err: err}
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s is no policy directory", dir), Hint: "name a directory that holds *.cedar files", Err: err}
	}
	var sources []policy.Source
	rest := int64(maxPolicyBytes)
	for _, e := range entries {
		rules, err := counts(dir, e)
		if err != nil {
			return nil, err
		}
		if !rules {
			continue
		}
		if len(sources) == maxPolicyFiles {
			return nil, policyDirError("policy directory %s holds more than %d files of rules", dir, maxPolicyFiles)
		}
		text, err := readRules(root, e.Name(), rest)
		if err != nil {
			return nil, err
		}
		if rest -= int64(len(text)); rest < 0 {
			return nil, policyDirError("policy directory %s holds more than %d MiB of rules", dir, maxPolicyBytes>>20)
		}
		sources = append(sources, policy.Source{Name: e.Name(), Text: text})
	}
	if len(sources) == 0 {
		return nil, &bailey.Error{Kind: bailey.NotFound, Message: fmt.Sprintf("policy directory %s holds no *.cedar file", dir), Hint: "rules stand in files named *.cedar, directly in it"}
	}
	return sources, nil
}

func policyDirError(format string, args ...any) error {
	return &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf(format, args...), Hint: "join files, or take out what no rule needs"}
}

// counts tells whether an entry holds rules, and refuses one that nobody knows how to read.
func counts(dir string, e fs.DirEntry) (rules bool, err error) {
	name := e.Name()
	known := strings.HasSuffix(name, ".cedar") || strings.HasSuffix(name, ".test.yaml") || name == "budgets.yaml"
	switch {
	case strings.HasPrefix(name, "."), strings.HasPrefix(name, "README"), strings.HasSuffix(name, ".md"):
		return false, nil
	case !known:
		return false, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s is no file of a policy", shown(filepath.Join(dir, name))),
			Hint: "a policy directory holds *.cedar, *.test.yaml and budgets.yaml; README and *.md are left alone"}
	case !e.Type().IsRegular():
		return false, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s is no regular file", shown(filepath.Join(dir, name))), Hint: "put the file itself there: links and pipes are not followed"}
	}
	return strings.HasSuffix(name, ".cedar"), nil
}

// readRules reads a regular file, at most a byte more than most.
func readRules(root *os.Root, name string, most int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|noWait|noFollow, 0)
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%s cannot be read", shown(name)), Err: err}
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, &bailey.Error{Kind: bailey.Invalid, Message: fmt.Sprintf("%s is no regular file", shown(name)), Hint: "put the file itself there", Err: err}
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, &bailey.Error{Kind: bailey.Unavailable, Message: fmt.Sprintf("%s cannot be read", shown(name)), Err: err}
	}
	return text, nil
}
