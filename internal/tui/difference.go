package tui

// difference says in lines what changed from old to now: those that went with "- ", those that came with "+ ". What
// stayed is left out.
func difference(old, now []string) []string {
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	if len(old)*len(now) > mostCompared {
		return append(marked("- ", old), marked("+ ", now)...)
	}
	return align(old, now)
}

// mostCompared bounds the memory of a comparison: two texts that differ in thousands of lines are two texts.
const mostCompared = 1 << 20

func marked(mark string, lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, mark+l)
	}
	return out
}

// align finds the longest part that both have in common, in order.
func align(old, now []string) []string {
	// common[i][j] is how many lines old[i:] and now[j:] have in common, in order.
	common := make([][]int, len(old)+1)
	for i := range common {
		common[i] = make([]int, len(now)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); old[i] == now[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && old[i] == now[j]:
			i, j = i+1, j+1
		case j == len(now) || i < len(old) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+old[i])
			i++
		default:
			out = append(out, "+ "+now[j])
			j++
		}
	}
	return out
}
