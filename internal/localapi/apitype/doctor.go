package apitype

// Finding is the result of one test of the doctor.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Tried string `json:"tried"`          // the test and its result
	Cure  string `json:"cure,omitempty"` // empty only if the state is ok or info
}

// State is the severity of a finding. Only missing sets the exit code to 1, because calls fail without it.
type State string

const (
	Good    State = "ok"
	Info    State = "info" // a matter of choice, for example a missing tool
	Warning State = "warning"
	Missing State = "missing"
)
