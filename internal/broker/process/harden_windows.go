package process

// harden does nothing, because no broker runs on Windows.
func harden() (lacks []string, err error) { return nil, nil }

func ready() {}
