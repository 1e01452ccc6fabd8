package onboard

import "strings"

// detectStyle determines the style by phrases that only one library writes.
func detectStyle(r *reader) Style {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(r.all, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("show this message and exit"):
		return Click
	case has("show this help message and exit", "positional arguments:", "optional arguments:"):
		return Argparse
	case has("available commands:", "[flags]", "--help\" for more information about a command",
		"command --help' for more information"):
		return Cobra
	case has("[possible values:", "print help information", "prints help information", "print help (see",
		"-h, --help     print help", "\nusage:\n    ") && has("[options]"):
		if isDocopt(r) {
			return Docopt
		}
		return Clap
	case isDocopt(r):
		return Docopt
	}
	return Plain
}

// isDocopt reports a help text for docopt, which parses the text itself: it has several patterns under one heading, and
// defaults in docopt's form.
func isDocopt(r *reader) bool {
	joined := 0
	for _, o := range r.help.Options {
		if o.Joined && o.Values == 1 {
			joined++
		}
	}
	return len(r.patterns) > 1 && strings.Contains(r.all, "[default: ") && joined > 0 &&
		!strings.Contains(r.all, "possible values")
}
