package process

// hardenProcess does nothing, because no broker runs on Windows.
func hardenProcess() (lacks []string, err error) { return nil, nil }

func notifyReady() {}
