package ktest

import (
	"fmt"
	"net/url"
	"sync"
	"testing"
)

// postgres is the server of this test process.
var postgres struct {
	mu    sync.Mutex
	tried bool
	err   error
	dir   string // its data and its socket
	made  int    // databases
	stop  func()
}

// PostgresDatabase returns the URL of a new, empty database. The first call starts a PostgreSQL server that listens
// only
// on a Unix socket in a temporary directory; the package's TestMain must use [WithPostgres]. It skips the test if no
// server is installed.
func PostgresDatabase(t testing.TB) string {
	t.Helper()
	postgres.mu.Lock()
	defer postgres.mu.Unlock()
	if !postgres.tried {
		postgres.tried = true
		postgres.dir, postgres.stop, postgres.err = startPostgres()
	}
	if postgres.err != nil {
		Missing(t, "postgres", postgres.err)
	}
	postgres.made++
	name := fmt.Sprintf("test%d", postgres.made)
	if err := makeDatabase(postgres.dir, name); err != nil {
		t.Fatal(err)
	}
	return "postgres:///?" + url.Values{"host": {postgres.dir}, "user": {"bailey"}, "dbname": {name}}.Encode()
}

// WithPostgres runs the tests of a package, and ends the server that they started. It returns the exit code.
func WithPostgres(m *testing.M) int {
	defer func() {
		if postgres.stop != nil {
			postgres.stop()
		}
	}()
	return m.Run()
}
