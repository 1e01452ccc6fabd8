package apitype

import (
	"bailey/internal/gateway"
)

// Spendings is the usage of all budgets.
type Spendings struct {
	Budgets []gateway.Spending `json:"budgets"`
}
