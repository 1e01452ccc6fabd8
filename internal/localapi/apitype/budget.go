package apitype

// Spendings is the usage of all budgets.
type Spendings struct {
	Budgets []Spending `json:"budgets"`
}
