package jail

// Layer is what Diagnose learnt of one layer of a cage.
type Layer struct {
	Name string
	How  string // what was tried, or seen from inside
	Err  error  // nil: it holds. Otherwise why not; the cure is its hint
}
