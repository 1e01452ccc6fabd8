// Command battery is the attacker that the jail's tests run inside a cage: see package battery.
package main

import (
	"os"

	"bailey/internal/jail/battery"
)

func main() { os.Exit(battery.Main(os.Args[1:])) }
