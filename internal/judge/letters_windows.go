package judge

const letters = loose
