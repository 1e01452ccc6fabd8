// Command thief is what a hostile repository would run if it could: one static program, which needs no
// shell, no argument, no loader and no library. It says that it ran and shows the file that "loot" names.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	fmt.Println("the thief ran")
	if name, err := os.ReadFile("loot"); err == nil {
		if b, err := os.ReadFile(strings.TrimSpace(string(name))); err == nil {
			os.Stdout.Write(b)
		}
	}
}
