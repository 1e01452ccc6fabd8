package direct

func writable(dir string) error { return roomFor(dir) }
