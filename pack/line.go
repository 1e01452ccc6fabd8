package pack

import "slices"

// Meaning is a capability that does what a command line would, and the inputs with which it does.
type Meaning struct {
	*Capability
	Inputs []map[string]any // more than one where the line names several of what a call takes one of
}

// Meanings are all that a command line can mean, in the order of the list.
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

// maxNear bounds what Near names.
const maxNear = 5

// Near are the capabilities that come nearest to a command line which means none: those that share most of the words it begins
// with, its program at least.
func Near(list []*Capability, argv []string) (near []*Capability) {
	most := 1
	for _, m := range list {
		shared := 0
		for _, p := range m.patterns {
			n := 0
			for n < len(argv) && n < len(p.words) && (argv[n] == p.words[n] || n == 0 && sameProgram(argv[0], p.words[0])) {
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
