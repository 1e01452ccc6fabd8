// Command bailey-shim is the program behind a shim: it turns a command with a tool's own name into a call through the
// gate. It must link few packages, because it starts for each call.
package main

import "bailey/internal/shim"

func main() { shim.Main() }
