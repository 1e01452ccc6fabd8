package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"bailey/internal/shellparse"
	"bailey/pack"
	"bailey/packs"
)

func main() {
	var list []*pack.Capability
	all, err := pack.LoadBuiltin(packs.FS)
	if err != nil {
		panic(err)
	}
	list = all.All()
	type row struct {
		Tool, Line, Class string
		Weight            int
	}
	got, sum := map[string]int{}, map[string]int{}
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		var r row
		json.Unmarshal(s.Bytes(), &r)
		if r.Class == "interactive" {
			continue
		}
		sum[r.Tool] += r.Weight
		cs, err := shellparse.Parse(r.Line, "")
		ok := ""
		if err == nil && len(cs) == 1 && len(cs[0].Words) > 0 {
			for _, m := range pack.Meanings(list, cs[0].Words) {
				if os.Getenv("GOLD") != "" {
					b, _ := json.Marshal(m.Inputs[0])
					fmt.Printf("> %s %s\n", m.ID, b)
				}
				ok += " " + string(m.ID) + ":" + string(m.SideEffect)
			}
		}
		if ok != "" {
			got[r.Tool] += r.Weight
		}
		fmt.Printf("%s\t%s\t%s\t%d\t%s\n", r.Tool, r.Class, r.Line, r.Weight, ok)
	}
	for t := range sum {
		fmt.Fprintf(os.Stderr, "%s %d/%d\n", t, got[t], sum[t])
	}
}
