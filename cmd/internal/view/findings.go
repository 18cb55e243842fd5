package view

import "github.com/firstseen/firstseen/cmd/internal/doctor"

// Findings are what doctor has found.
type Findings struct {
	Worst    doctor.Level     `json:"worst"`
	Findings []doctor.Finding `json:"findings"`
}

// Checks are those that doctor has.
type Checks struct {
	Checks []Check `json:"checks"`
}

// Check is one of doctor's.
type Check struct {
	Check string `json:"check"`
	About string `json:"about"`
}

// FindingsOf is what doctor has found, and the worst of it.
func FindingsOf(found []doctor.Finding) Findings {
	return Findings{doctor.Worst(found), append([]doctor.Finding{}, found...)}
}

// ChecksOf lists checks.
func ChecksOf(list []doctor.Check) Checks {
	return Checks{List(list, func(c *doctor.Check) Check { return Check{c.Name, c.About} })}
}
