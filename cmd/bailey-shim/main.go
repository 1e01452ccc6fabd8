// Command bailey-shim is what a shim starts: a tool's own name as a call through the gate. It links little, since it starts at each call.
package main

import "bailey/internal/shim"

func main() { shim.Main() }
