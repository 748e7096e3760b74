package toolmap

// Claim returns the map m for a server that only claims it, by its own name or its tools. Base is the map
// of the server without the claim. The returned map names recipients and forbids calls like m, and permits
// no call that base refuses.
func (m *Map) Claim(base *Map) *Map {
	claimed := *m
	claimed.base, claimed.Unmapped = base, base.Unmapped
	return &claimed
}

// Claimed reports whether nobody but the server says that the map is its own.
func (m *Map) Claimed() bool { return m.base != nil }

// claimedTool returns the tool of a call by a map that the server claims: the tool of the map if it sends a
// message, and otherwise the tool of the base.
func (m *Map) claimedTool(tool string, arguments []Member) (*Tool, error) {
	said := *m
	said.base = nil
	t, err := said.ToolOf(tool, arguments)
	if err != nil {
		return nil, err
	}
	if t != nil && !t.Guessed {
		if m.Unmapped == UnmappedRefuse {
			return nil, Unclear("the tool %s sends messages, and only the server itself says by which map", tool)
		}
		claimed := *t
		claimed.Claimed, claimed.Ask = true, m.Unmapped == UnmappedAsk
		return &claimed, nil
	}
	if t, err = m.base.ToolOf(tool, arguments); t != nil {
		t.by = m.base
	}
	return t, err
}

// of is the map by which the recipients of a tool are made.
func (m *Map) of(t *Tool) *Map {
	if t.by != nil {
		return t.by
	}
	return m
}
