//go:build linux && (amd64 || arm64)

package inside

// Walks tells whether this architecture has the assembly that a warm helper needs.
const Walks = true

// cloneAndWalk clones a child that walks the table, and returns its pid or a negative errno. All arguments must lie in an
// arena, and every signal must be blocked.
//
//go:noescape
func cloneAndWalk(args *cloneArgs, size uintptr, table *syscallRow, p *childProgress) int
