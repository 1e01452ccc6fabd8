package apitype

const AgentRotateCommand, AgentsQuery, TokensQuery = "agent.rotate", "agents", "tokens"

// IssuedToken is a token with its bearer string, which is shown only once.
type IssuedToken struct {
	OK bool `json:"ok"`
	Token
	Bearer string `json:"bearer"` // a secret: it authenticates the agent
}

type TokenList struct {
	Tokens []Token `json:"tokens"`
}

type AgentList struct {
	Agents []Agent `json:"agents"`
}
