package pack

import (
	"net/url"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"bailey/internal/strictyaml"
)

// narrowKinds are the limits that a call can put on a credential, each with the reader of its value. A reader gets the
// texts of the inputs and returns "" if they do not say exactly what the call uses; then the credential is not limited in
// this respect.
func narrowKinds() map[string]func(words []string) string {
	return map[string]func([]string) string{
		"access":     plainLimit,
		"bucket":     bucketLimit,
		"namespace":  plainLimit,
		"region":     plainLimit,
		"repository": repositoryLimit,
		"service":    plainLimit,
	}
}

// maxLimit is the length of a limit in bytes.
const maxLimit = 256

// limit is one limit of a credential: the values of inputs, or a text of the manifest.
type limit struct {
	Inputs []string `json:"inputs,omitempty"`
	Text   string   `json:"text,omitempty"`
}

// readNarrow reads the key narrow. It runs after the schema, because limits name inputs.
func (r *reader) readNarrow(n ast.Node, m *manifest, s *schema) {
	if n == nil {
		return
	}
	m.Narrow = map[string]map[string]limit{}
	fields := strictyaml.Fields{}
	for _, c := range m.Credentials {
		m.Narrow[c.Name] = map[string]limit{}
		fields[c.Name] = func(n ast.Node) {
			kinds := strictyaml.Fields{}
			for kind := range narrowKinds() {
				kinds[kind] = func(n ast.Node) { r.readLimit(n, kind, m.Narrow[c.Name], s) }
			}
			r.Fields(n, "narrow", kinds)
		}
	}
	r.Fields(n, "narrow", fields)
}

// readLimit reads {{ input.x }} or a plain word.
func (r *reader) readLimit(n ast.Node, kind string, into map[string]limit, s *schema) {
	text, ok := r.ReadText(n, kind)
	if !ok {
		return
	}
	before := len(r.Faults)
	parts := r.readTemplate(n, text).parts
	if len(r.Faults) > before {
		return
	}
	if isLimit(text) {
		into[kind] = limit{Text: text}
		return
	}
	var l limit
	for _, p := range parts {
		switch {
		case p.input == "" && p.text == " ":
		case p.input == "" || p.def != nil || p.flag != "":
			r.AddFault(n, "%s must be one word, \"{{ input.x }}\", or several of these with spaces, not %q", kind,
				strictyaml.Clip(text))
			return
		case s.props[p.input] == nil:
			r.AddFault(n, "input.%s is not in the inputSchema%s", strictyaml.Clip(p.input),
				strictyaml.DidYouMean(p.input, s.names))
			return
		default:
			l.Inputs = append(l.Inputs, p.input)
		}
	}
	into[kind] = l
}

// limitsFor returns the limits of a credential for a call, as KIND=VALUE in sorted order, with a space between them. A
// call that only reads says so.
func (m *Capability) limitsFor(credential string, input map[string]any) string {
	var list []string
	if m.SideEffect == ReadOnly {
		list = append(list, "access=read")
	}
	for kind, l := range m.spec.Narrow[credential] {
		value := l.Text
		if len(l.Inputs) > 0 {
			var words []string
			for _, name := range l.Inputs {
				words = append(words, textsOf(input[name])...)
			}
			value = narrowKinds()[kind](words)
		}
		if isLimit(value) && !slices.ContainsFunc(list, func(had string) bool { return strings.HasPrefix(had, kind+"=") }) {
			list = append(list, kind+"="+value)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// isLimit reports whether text can be a limit: names and slashes, with commas between several.
func isLimit(text string) bool {
	return text != "" && len(text) <= maxLimit && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/,", r)
	})
}

func plainLimit(words []string) string {
	if len(words) != 1 || strings.ContainsAny(words[0], "/,") {
		return ""
	}
	return words[0]
}

// textsOf returns the strings of a value that is a string or a list of strings.
func textsOf(value any) (list []string) {
	items, many := value.([]any)
	if !many {
		items = []any{value}
	}
	for _, item := range items {
		if text, ok := item.(string); ok {
			list = append(list, text)
		}
	}
	return list
}

// repositoryLimit returns OWNER/NAME of repositories at github.com, which the words name so, by their https addresses, or by
// a path of the API below repos/.
func repositoryLimit(words []string) string {
	var found []string
	for _, text := range words {
		if u, err := url.Parse(text); err == nil && u.Scheme != "" {
			if u.Host != "github.com" {
				continue // the credential does not go there
			}
			text = strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
		}
		if path, ok := strings.CutPrefix(strings.TrimPrefix(text, "/"), "repos/"); ok && strings.Count(path, "/") > 0 {
			parts := strings.SplitN(path, "/", 3)
			text = parts[0] + "/" + parts[1]
		}
		if owner, name, ok := strings.Cut(text, "/"); !ok || owner == "" || name == "" || strings.ContainsAny(name, "/,") {
			return ""
		}
		found = append(found, text)
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), ",")
}

// bucketLimit returns the buckets of S3 that the words of a command line name, as s3://NAME or after --bucket.
// It returns "" if a word names one in a way that has another name in a policy: an access point or a directory bucket.
func bucketLimit(words []string) string {
	var found []string
	for i, word := range words {
		name, ok := strings.CutPrefix(word, "s3://")
		if !ok {
			option, after, joined := strings.Cut(word, "=")
			if option != "--bucket" && option != "--copy-source" {
				continue
			}
			if name = after; !joined && i+1 < len(words) {
				name = words[i+1]
			}
			name = strings.TrimPrefix(name, "/")
		}
		if name, _, _ = strings.Cut(name, "/"); !isBucket(name) {
			return ""
		}
		found = append(found, name)
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), ",")
}

// isBucket reports whether name is that of a general purpose bucket
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html).
func isBucket(name string) bool {
	for _, other := range []string{"-s3alias", "--ol-s3", "--x-s3", ".mrap", "--table-s3"} {
		if strings.HasSuffix(name, other) {
			return false
		}
	}
	return len(name) >= 3 && len(name) <= 63 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}
