package onboard

import (
	"slices"
	"strings"
)

// readingVerbs lists the verbs that only read, as far as a name can tell.
var readingVerbs = []string{"cat", "describe", "diff", "get", "grep", "history", "info", "inspect", "list", "log",
	"logs", "ls", "ps",
	"search", "show", "stat", "stats", "status", "tree", "version", "view", "which", "whoami"}

// actingWords lists words in a summary or in an option that indicate more than reading.
var actingWords = []string{"add", "adds", "append", "apply", "attach", "change", "clear", "clone", "commit",
	"configure", "copy", "create", "creates",
	"delete", "deletes", "deploy", "destroy", "disable", "download", "downloads", "edit", "edits", "enable", "execute",
	"executed", "executes", "fetch",
	"fix", "import", "install", "installs", "kill", "launch", "merge", "modify", "move", "overwrite", "overwrites",
	"prune", "publish", "pull", "push", "remove",
	"removes", "rename", "replace", "replaces", "reset", "restart", "rewrite", "save", "saves", "send", "sends", "set",
	"sets", "start", "stop",
	"store", "submit", "uninstall", "unlink", "update", "updates", "upgrade", "upload", "write", "writes", "written"}

// changingWords lists those that indicate it in any position. The others may be nouns if they are not the first word.
var changingWords = []string{"delete", "deletes", "destroy", "execute", "executes", "install", "installs", "kill",
	"overwrite", "overwrites", "remove",
	"removes", "uninstall", "upload", "write", "writes"}

// executingVerbs lists the verbs of commands that run programs, or that keep a person at a prompt.
var executingVerbs = []string{"attach", "console", "debug", "edit", "eval", "exec", "repl", "run", "sh", "shell", "ssh"}

// hazard is an effect of an option that a person must decide about.
type hazard struct {
	why    string
	names  []string // words of its name; with = the whole name
	values []string // names of its value
	says   []string // words of its summary; only if it takes a value
}

var hazards = []hazard{
	{"runs programs", []string{"action", "browser", "cmd", "=code", "command", "editor", "eval", "exec", "execute", "ext", "classpath", "extcmd", "hook", "hooks", "=init",
		"interpreter", "load", "loader", "module", "pager", "plugin", "plugins", "=pre", "preload", "preprocessor",
		"prog", "program", "python", "=receive-pack", "require", "rsh", "=run", "script", "=sh", "shell", "textconv",
		"=tool", "=upload-pack"},
		[]string{"cmd", "command", "commands", "editor", "exec", "expr", "pager", "prog", "program", "script", "shell"},
		[]string{"browser", "editor", "eval", "evaluate", "execute", "executes", "executed", "pager", "program", "run",
			"script", "shell"}},
	{"writes", []string{"append", "=archive", "backup", "dest", "destination", "=dump", "export", "inplace", "logfile", "out", "outdir", "outfile", "output", "=record",
		"=report", "save", "tee", "to-file", "=trace", "write"},
		[]string{"dest", "destination", "out", "outdir", "outfile", "output"},
		[]string{"overwrite", "save", "saved", "store", "write", "writes", "written"}},
	{"changes where it connects",
		[]string{"addr", "address", "=api", "=cluster", "connect", "connection", "=context", "dns", "endpoint", "host",
			"hostname", "=index",
			"=interface", "mirror", "port", "proxy", "registry", "remote", "resolve", "server", "sock", "socket", "uri",
			"url"},
		[]string{"addr", "address", "host", "hostname", "proxy", "server", "socket", "uri", "url"},
		[]string{"proxy", "server", "url"}},
	{"holds settings", []string{"conf", "config", "configuration", "define", "env", "environment", "kubeconfig", "profile", "rcfile", "setting", "settings"},
		[]string{"assignment", "config", "key=value", "name=value", "var=value"}, []string{"config", "configuration"}},
	{"takes a secret", []string{"auth", "cert", "credential", "credentials", "identity", "key", "login", "passphrase", "password", "passwd", "secret", "token", "=user"},
		[]string{"credentials", "passphrase", "password", "secret", "token", "user:password"},
		[]string{"credentials", "password", "secret"}},
	{"loosens a check", []string{"force", "insecure", "privileged", "trust", "unsafe", "yes", "no-verify", "no-check", "skip-verify", "no-confirm", "noconfirm"}, nil, nil},
	{"waits for a person, or for ever", []string{"follow", "interactive", "prompt", "tty", "wait", "watch", "web"}, nil,
		nil},
}

// optionHazard returns why an option is left out, or "".
func optionHazard(o Option, looks bool) string {
	var names []string
	for _, n := range o.Names {
		n = strings.ToLower(strings.TrimLeft(n, "-"))
		names = append(append(names, "="+n, n),
			strings.FieldsFunc(n, func(c rune) bool { return c == '-' || c == '_' || c == '.' })...)
	}
	switch typ, _ := valueType(o.Value); {
	case o.Value != "" && typ != "string": // a number cannot name a program, a file or a host
		return map[bool]string{true: "changes where it connects"}[slices.Contains(names, "port")]
	case strings.EqualFold(o.longName(), "-o") && o.Value != "" || slices.Contains(names, "in-place"):
		return "writes"
	}
	said, value := wordsOf(o.Summary), strings.ToLower(o.Value)
	for _, h := range hazards {
		switch {
		case sharesWord(h.names, names) && !onlyForm(names):
			return h.why
		case value != "" && slices.ContainsFunc(h.values, func(v string) bool {
			return value == v || strings.HasSuffix(value, "-"+v) || strings.HasSuffix(value, "_"+v)
		}):
			return h.why
		case value != "" && len(o.Choices) == 0 && sharesWord(h.says, said):
			return h.why
		}
	}
	if looks && !strings.HasPrefix(o.longName(), "--no-") &&
		(sharesWord(actingWords, names) || o.Value == "" && sharesWord(actingWords, said)) {
		return "may do more than look"
	}
	return ""
}

// onlyForm reports names such as --output-format, which specify a form and not a destination.
func onlyForm(names []string) bool {
	return sharesWord(names, []string{"format", "style", "width", "encoding", "color", "level"})
}

func sharesWord(a, b []string) bool {
	return slices.ContainsFunc(a, func(w string) bool { return slices.Contains(b, w) })
}

// wordsOf returns the words of a text in lower case.
func wordsOf(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(c rune) bool { return (c < 'a' || c > 'z') && c != '-' })
}

// isReadOnlyCommand reports whether a command only reads: its last word is such a verb, or begins with list- or
// describe-, and its summaries do not contradict that. Names can be wrong, so a person must check.
func isReadOnlyCommand(tool string, t *Tree) bool {
	verb := tool
	if n := len(t.Words); n > 0 {
		verb = t.Words[n-1]
	}
	verb = strings.ToLower(verb)
	first, _, compound := strings.Cut(verb, "-")
	if !slices.Contains(readingVerbs, verb) && !(compound && (first == "list" || first == "describe")) {
		return false
	}
	for _, s := range []string{t.Summary, t.Help.Summary} {
		if words := wordsOf(s); sharesWord(changingWords, words) || len(words) > 0 &&
			slices.Contains(actingWords, words[0]) {
			return false
		}
	}
	return true
}

// isExecuted reports whether the tool would execute this operand.
func (o Operand) isExecuted() bool {
	return slices.Contains([]string{"arg", "args", "cmd", "code", "command", "commands", "exec", "program", "script",
		"shell"}, strings.ToLower(o.Name))
}

// valueType returns the type of a value, derived from its name in the help.
func valueType(value string) (typ, format string) {
	v := strings.ToLower(strings.Trim(value, "<>[]."))
	last := v[strings.LastIndexAny(v, "-_ ")+1:]
	has := func(words ...string) bool { return slices.Contains(words, v) || slices.Contains(words, last) }
	switch {
	case strings.ContainsAny(v, ":=,|"): // more than a path or a number
		return "string", ""
	case strings.HasPrefix(v, "integer"),
		has("int", "int32", "int64", "uint", "uint16", "uint32", "uint64", "n", "num", "count", "depth", "lines",
			"columns", "secs", "seconds", "jobs"):
		return "integer", ""
	case has("float", "float32", "float64", "number"):
		return "number", ""
	case has("file", "files", "filename", "filenames", "path", "paths", "dir", "directory", "directories", "folder",
		"infile", "src", "source") || strings.HasSuffix(v, "file"):
		return "string", "path"
	case has("url"):
		return "string", "url"
	}
	return "string", ""
}
