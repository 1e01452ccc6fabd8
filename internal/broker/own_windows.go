package broker

import (
	"os"

	"bailey"
)

// errElsewhere is the error of every operation on this system, which has no broker.
var errElsewhere error = &bailey.Error{Kind: bailey.Unavailable,
	Message: "there is no broker on Windows: nothing says whose a socket's far end is", Hint: "run it on Linux or macOS"}

func readPrivate(string, int64) ([]byte, error) { return nil, errElsewhere }
func readTrusted(string, int64) ([]byte, error) { return nil, errElsewhere }
func lockDir(string) (*os.File, error)          { return nil, errElsewhere }
func openJournal(string) (*os.File, error)      { return nil, errElsewhere }
