package tui

// diffLines returns the changes from old to now: removed lines with "- ", added lines with "+ ". Unchanged lines are
// omitted.
func diffLines(old, now []string) []string {
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	if len(old)*len(now) > mostCompared {
		return append(prefixLines("- ", old), prefixLines("+ ", now)...)
	}
	return diffByLCS(old, now)
}

// mostCompared limits the memory of a comparison. If two texts differ in thousands of lines, they are treated as
// unrelated.
const mostCompared = 1 << 20

func prefixLines(mark string, lines []string) (out []string) {
	for _, l := range lines {
		out = append(out, mark+l)
	}
	return out
}

// diffByLCS finds the longest common subsequence.
func diffByLCS(old, now []string) []string {
	// common[i][j] is the length of the longest common subsequence of old[i:] and now[j:].
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
