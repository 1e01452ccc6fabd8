package apitype

// JudgeQuery is the query of an agent's hook.
const JudgeQuery = "judge"
