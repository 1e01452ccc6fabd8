package pack

import "slices"

// Meaning is a capability that is equivalent to a command line, with the inputs of the equivalent calls.
type Meaning struct {
	*Capability
	Inputs []map[string]any // several if the line names several values for an input that takes one
}

// Meanings returns all meanings of a command line, in the order of the list.
func Meanings(list []*Capability, argv []string) (found []Meaning) {
	if len(argv) == 0 {
		return nil
	}
	for _, m := range list {
		if inputs, ok := m.Match(argv); ok {
			found = append(found, Meaning{m, inputs})
		}
	}
	return found
}

// maxNear limits the result of Near.
const maxNear = 5

// Near returns the capabilities that are closest to a command line without a meaning: those that share the most leading
// words, but at least the program.
func Near(list []*Capability, argv []string) (near []*Capability) {
	most := 1
	for _, m := range list {
		shared := 0
		for _, p := range m.patterns {
			n := 0
			for n < len(argv) && n < len(p.words) &&
				(argv[n] == p.words[n] || n == 0 && sameProgram(argv[0], p.words[0])) {
				n++
			}
			shared = max(shared, n)
		}
		if shared > most {
			most, near = shared, nil
		}
		if shared == most {
			near = append(near, m)
		}
	}
	return slices.Clip(near[:min(len(near), maxNear)])
}
