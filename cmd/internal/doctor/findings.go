package doctor

// Findings are what was found with the worst level of it, as `--json` shows it.
type Findings struct {
	Worst    Level     `json:"worst"`
	Findings []Finding `json:"findings"`
}

// List is the list of checks, as `--json` shows it.
type List struct {
	Checks []Listed `json:"checks"`
}

// Listed is a check of the List.
type Listed struct {
	Check string `json:"check"`
	About string `json:"about"`
}

// FindingsOf has a list also where nothing was found.
func FindingsOf(found []Finding) Findings {
	return Findings{Worst(found), append([]Finding{}, found...)}
}

// ListOf lists checks.
func ListOf(checks []Check) List {
	list := make([]Listed, len(checks))
	for i, c := range checks {
		list[i] = Listed{c.Name, c.About}
	}
	return List{list}
}
