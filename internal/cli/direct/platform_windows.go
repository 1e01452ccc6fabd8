package direct

func checkWritable(dir string) error { return roomFor(dir) }
