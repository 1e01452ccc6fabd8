package approvaltext

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"bailey"
)

// Brief is a question arranged for a person who decides: the message, the files, the destination and the difference, without
// digests. It adds nothing to the question and covers only a part of it, so a front end must also offer the rest. Its texts are
// not escaped.
type Brief struct {
	Messages []Item     // inputs that are texts for people, such as a commit message
	Files    []string   // files that the preview names in its statistics
	Places   []string   // where the call reaches or changes something
	Sections []Section  // outputs of the preview that a person reads
	Rest     [][]string // its other outputs, line by line: they are for programs
}

// Item is a named text of one or several lines.
type Item struct{ Name, Text string }

// Section is one output of the preview.
type Section struct {
	Title string
	Lines []string
}

// NewBrief arranges a question.
func NewBrief(q bailey.Question) (b Brief) {
	for _, in := range q.Inputs {
		switch text := readableValue(in.Text); {
		case text == "":
		case slices.Contains(messageInputs(), in.Name):
			b.Messages = append(b.Messages, Item{in.Name, text})
		case slices.Contains(placeInputs(), in.Name):
			b.Places = append(b.Places, in.Name+" "+text)
		}
	}
	if q.Resource.Kind != "" && q.Resource.Kind != "local" {
		b.Places = append(b.Places, strings.TrimSpace(q.Resource.Kind+" "+q.Resource.Name))
	}
	b.Places = append(b.Places, q.Egress...)
	b.addLasting(q)
	b.addOutputs(q)
	slices.Sort(b.Files)
	b.Files = slices.Compact(b.Files)
	return b
}

// addLasting says if an answer is for more than this call.
func (b *Brief) addLasting(q bailey.Question) {
	if q.Session == "" || len(q.Rules) == 0 || slices.ContainsFunc(q.Rules, func(r bailey.Rule) bool { return !r.Session }) {
		return
	}
	names := make([]string, len(q.Rules))
	for i, r := range q.Rules {
		names[i] = string(r.ID)
	}
	b.Messages = append(b.Messages, Item{"holds",
		"until the session ends: for every call about which only " + strings.Join(names, ", ") + " asks"})
}

// addOutputs adds the outputs of the preview. An output without a name is shown if a line of it is not one for programs: then
// the lengths are wrong, for example because an output was redacted, and text of another one is in it.
func (b *Brief) addOutputs(q bailey.Question) {
	outputs, titles := splitOutput(q.Preview.Output.Text), sectionTitles()[q.Call]
	for i, text := range outputs {
		title := fmt.Sprintf("part %d of %d", i+1, len(outputs))
		switch {
		case len(titles) == len(outputs):
			title = titles[i]
		case len(outputs) == 1:
			title = "shows"
		}
		b.Files = append(b.Files, namedFiles(text)...)
		if m := currentBranch().FindStringSubmatch(text); title == "" && m != nil {
			b.Places = append(b.Places, "branch "+m[1])
		}
		text = strings.TrimRight(text, "\n")
		lines := strings.Split(text, "\n")
		if title == "" && slices.ContainsFunc(lines, func(l string) bool { return !programLine().MatchString(l) }) {
			title = "shows"
		}
		switch {
		case text == "":
		case title == "":
			b.Rest = append(b.Rest, lines)
		default:
			b.Sections = append(b.Sections, Section{title, lines})
		}
	}
}

// messageInputs are the names of inputs whose values people read elsewhere.
func messageInputs() []string {
	return []string{"message", "messages", "title", "subject", "body", "comment", "notes", "description", "reason", "text"}
}

// placeInputs are the names of inputs that say where a call has its effect.
func placeInputs() []string {
	return []string{"remote", "url", "to", "branch", "refs", "ref", "base", "head", "repository", "host", "registry", "image",
		"namespace", "context", "release", "cluster", "bucket", "region", "project"}
}

// sectionTitles names the outputs of the previews of built-in capabilities that have several. An output without a name is
// machine-readable: it is only among the details.
func sectionTitles() map[bailey.CapabilityID][]string {
	pushed := []string{"", "commits that the remote does not have", ""}
	return map[bailey.CapabilityID][]string{
		"git.commit":       {"", "in the index", "in the files, but not in the index", "a merge or pick under way", ""},
		"git.push":         {"", "", "commits added", "commits lost", "added", "lost"},
		"git.push-remote":  pushed,
		"git.push-into":    pushed,
		"git.push-replace": pushed,
		"gh.push":          {"", "commits"},
		"source.run":       {"commands"},
	}
}

// readableValue returns the text of a value in JSON: a string as it is, a list of strings with blanks between them.
func readableValue(value string) string {
	var text string
	var list []string
	switch {
	case json.Unmarshal([]byte(value), &text) == nil:
		return text
	case json.Unmarshal([]byte(value), &list) == nil:
		return strings.Join(list, " ")
	}
	return value
}

// splitOutput returns the outputs of the command lines of a preview. Each has its length in front of it. If a length does not
// fit because the text was cut there, the rest belongs to that output. If it does not fit because the text was redacted, the
// whole text is one output: a line within it must not begin another.
func splitOutput(text string) (outputs []string) {
	rest, total := text, 0
	for n := 1; rest != ""; n++ {
		m := outputHead().FindStringSubmatch(rest)
		if m == nil || m[1] != strconv.Itoa(n) || n > 1 && m[2] != strconv.Itoa(total) {
			return []string{text}
		}
		total, _ = strconv.Atoi(m[2])
		size, _ := strconv.Atoi(m[3])
		rest = rest[len(m[0]):]
		size = min(size, len(rest))
		outputs, rest = append(outputs, rest[:size]), rest[size:]
	}
	if len(outputs) > total {
		return []string{text}
	}
	for len(outputs) < total {
		outputs = append(outputs, "")
	}
	return outputs
}

// namedFiles returns the files of the statistics of a difference (git diff --stat). They are before the difference itself, and
// lines of files have a sign in front of them there.
func namedFiles(text string) (files []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "diff ") {
			break
		}
		if m := statLine().FindStringSubmatch(line); m != nil {
			files = append(files, m[1])
		}
	}
	return files
}

var (
	outputHead = lazyRegexp(`^\[([1-9]\d{0,2})/([1-9]\d{0,2}): (\d{1,9}) bytes\]\n`)
	// git status --porcelain=v2, git ls-files -v, git for-each-ref, git rev-parse
	programLine   = lazyRegexp(`^(?:# branch\.\S+ .*|[12u] [.A-Z]{2} .*|[?!A-Za-z] \S.*|(?:(?:pushes|replaces) )?[0-9a-f]{40,64}(?: refs/\S+)?)$`)
	statLine      = lazyRegexp(`^ (\S(?:.*\S)?) +\| +(?:\d+(?: [+-]*)?|Bin .*)\n?$`)
	currentBranch = lazyRegexp(`(?m)^# branch\.head (\S+)$`)
)

// lazyRegexp compiles a pattern on first use; otherwise every start of the program would pay for it.
func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
