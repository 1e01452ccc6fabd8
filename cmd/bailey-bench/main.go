// Command bailey-bench measures the gate on this machine. `bailey bench` starts it.
package main

import "bailey/internal/bench"

func main() { bench.Main() }
