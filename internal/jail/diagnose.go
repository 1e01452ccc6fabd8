package jail

// Layer is the result of Diagnose for one layer of a cage.
type Layer struct {
	Name string
	How  string // the test that was made, or the observation from inside
	Err  error  // nil: it holds. Otherwise the reason; its hint is the remedy
}
