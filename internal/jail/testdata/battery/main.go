// Command battery is the attacker that the tests of package jail run inside a cage: see package battery.
package main

import (
	"os"

	"bailey/internal/jail/battery"
)

func main() { os.Exit(battery.Main(os.Args[1:])) }
