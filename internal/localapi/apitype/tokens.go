package apitype

import (
	"bailey/internal/gateway"
)

const AgentRotateCommand, AgentsQuery, TokensQuery = "agent.rotate", "agents", "tokens"

// IssuedToken is a token with its bearer string, which is shown only once.
type IssuedToken struct {
	OK bool `json:"ok"`
	gateway.Token
	Bearer string `json:"bearer"` // a secret: it authenticates the agent
}

type TokenList struct {
	Tokens []gateway.Token `json:"tokens"`
}

type AgentList struct {
	Agents []gateway.Agent `json:"agents"`
}
