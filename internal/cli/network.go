package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"bailey"
	"bailey/internal/settings"
	"bailey/internal/terminal"
)

// networkChange describes a change of the places that cages can reach, for the difference that init shows. It marks
// each place whose access becomes wider.
func networkChange(old, now settings.Network) string {
	words := terminal.Diff(networkLines(old), networkLines(now))
	for _, r := range now.Endpoints {
		was := old.With(bailey.Endpoint{Host: r.Host, Port: r.Port})
		if r.Private && !was.Private {
			words += fmt.Sprintf("  ! %s may have an address inside your network from now on\n", r)
		}
		if r.Plain && !was.Plain {
			words += fmt.Sprintf("  ! what is said to %s need not be encrypted, and nobody looks at it\n", r)
		}
	}
	return words
}

func networkLines(n settings.Network) string {
	var list []string
	if n.Upstream != "" {
		line := "network by the proxy " + n.Upstream
		if n.ByName {
			line += ", which resolves names: what address they have is not checked here"
		}
		list = append(list, line)
	}
	for _, r := range n.Endpoints {
		line := "network endpoint " + r.Words()
		if len(r.For) > 0 {
			line += ", for " + strings.Join(r.For, " ")
		}
		list = append(list, line)
	}
	for _, socket := range slices.Sorted(maps.Keys(n.Sockets)) {
		list = append(list, "network socket of "+socket+" "+n.Sockets[socket])
	}
	return strings.Join(list, "\n")
}
