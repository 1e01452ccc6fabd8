//go:build !darwin && !windows

package judge

const letters = exact
