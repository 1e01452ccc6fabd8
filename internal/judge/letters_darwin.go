package judge

const letters = folded
