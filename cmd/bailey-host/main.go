// Command bailey-host owns the machines of sandboxes. The gateway starts it on demand; docs/operations.md describes how it
// runs for several users.
package main

import "bailey/internal/vmhost/process"

func main() { process.Main() }
