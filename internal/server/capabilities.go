package server

import (
	"bailey/internal/localapi/apitype"
	"bailey/pack"
)

func newCapability(m *pack.Capability, whole bool) apitype.Capability {
	c := apitype.Capability{
		ID: m.ID, Description: m.Description, Pack: m.Pack, Version: m.Version, Risk: string(m.Risk),
		SideEffect: string(m.SideEffect), Reversibility: string(m.Reversibility), Isolation: string(m.Isolation), Digest: m.Digest,
	}
	if whole {
		c.Command, c.InputSchema, c.Preview, c.Covers = m.Command, m.InputSchema(), m.Previews(), m.Covers()
		c.Egress, c.OutputSchema = m.Reaches(), m.OutputSchema()
	}
	return c
}
