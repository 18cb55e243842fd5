package page

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	apiview "github.com/firstseen/firstseen/consumer/view"
)

// doctorPage is what the doctor has found, the worst first.
type doctorPage struct {
	None      string // why there is no doctor
	Found     apiview.Findings
	Wrong     []apiview.Finding
	Unchecked []unchecked
	Fine      []apiview.Finding
}

// unchecked are checks that could not be made, for one reason.
type unchecked struct {
	Checks   []string
	Seen, Do string
}

// lookAgain is the time in seconds after which a page is asked for again while the doctor looks.
const lookAgain = 3

func (p doctorPage) refreshAfter() int {
	if p.Found.LookingSince != nil {
		return lookAgain
	}
	return 0
}

func (v *visit) doctor() (any, error) {
	var p doctorPage
	err := v.get("/doctor", url.Values{"wait": {"false"}}, &p.Found)
	if statusOf(err) == http.StatusNotImplemented && err != nil {
		return doctorPage{None: err.Error()}, nil
	}
	for _, f := range p.Found.Findings {
		switch {
		case !f.Checked:
			p.addUnchecked(f)
		case f.Level == "ok":
			p.Fine = append(p.Fine, f)
		default:
			p.Wrong = append(p.Wrong, f)
		}
	}
	slices.SortStableFunc(p.Wrong, func(a, b apiview.Finding) int {
		return cmp.Compare(slices.Index(apiview.Levels, b.Level), slices.Index(apiview.Levels, a.Level))
	})
	return p, err
}

// addUnchecked puts checks with the same reason together.
func (p *doctorPage) addUnchecked(f apiview.Finding) {
	i := slices.IndexFunc(p.Unchecked, func(u unchecked) bool { return u.Seen == f.Seen && u.Do == f.Do })
	if i < 0 {
		i = len(p.Unchecked)
		p.Unchecked = append(p.Unchecked, unchecked{Seen: f.Seen, Do: f.Do})
	}
	p.Unchecked[i].Checks = append(p.Unchecked[i].Checks, f.Check)
}

// verdict is the worst level in words, and as of health.
type verdict struct{ Text, Status string }

// Verdict is that of all findings.
func (p doctorPage) Verdict() verdict {
	switch {
	case p.Found.Worst == nil:
		return verdict{"Nothing is known yet", ""}
	case *p.Found.Worst == "fault":
		return verdict{"There are faults", "unhealthy"}
	case *p.Found.Worst == "warning":
		return verdict{"There are warnings", "degraded"}
	}
	return verdict{"Nothing is wrong", "ok"}
}
