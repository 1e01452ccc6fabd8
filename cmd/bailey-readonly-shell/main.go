// Command bailey-readonly-shell is the login shell of the account bailey-readonly on a source host: it runs one command
// that only reads, within limits that the kernel enforces. docs/hosts.md describes the setup.
package main

import "bailey/internal/readonlyshell"

func main() { readonlyshell.Main() }
