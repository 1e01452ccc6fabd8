package broker

import (
	"os"

	"bailey"
)

// errElsewhere is the error of every operation on this system, which has no broker.
var errElsewhere error = &bailey.Error{Kind: bailey.Unavailable,
	Message: "the broker does not run on Windows: it cannot identify the process at the other end of a socket", Hint: "run it on Linux or macOS"}

func readPrivate(string, int64) ([]byte, error) { return nil, errElsewhere }
func readTrusted(string, int64) ([]byte, error) { return nil, errElsewhere }
func lockDir(string) (*os.File, error)          { return nil, errElsewhere }
func openJournal(string) (*os.File, error)      { return nil, errElsewhere }
