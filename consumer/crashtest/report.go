package crashtest

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// mostShown is the number of rows of one run that the text shows.
const mostShown = 10

// line is a run in one line.
func (r *RunResult) line() string {
	text := r.Name
	switch n := len(r.Faults); {
	case n > 1 && r.Faults[0].What == r.Name:
		text += fmt.Sprintf(", %d times", n)
	case n > 0 && r.Faults[0].What != r.Name:
		text += ", " + counted(n, "fault")
	}
	verdict := "same"
	switch {
	case r.Undone != "":
		verdict = "NOT DONE"
	case r.differs():
		verdict = "DIFFERS in " + counted(len(r.Differences), "row")
	}
	return fmt.Sprintf("%s: %s (%.1f s)", text, verdict, r.Seconds)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Text is the result for a person; repeat says how a run is repeated.
func (r *Result) Text(repeat func(seed uint64, run int) string) string {
	var b strings.Builder
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	r.writeSuggestions(&b)
	runs := append([]RunResult{r.Again}, r.Runs...)
	for i := range runs {
		if runs[i].differs() {
			runs[i].write(&b)
			fmt.Fprintf(&b, "  repeat it: %s\n", repeat(r.Seed, max(1, runs[i].Number)))
		}
	}
	b.WriteString(r.verdict())
	return b.String()
}

func (r *Result) writeSuggestions(b *strings.Builder) {
	if len(r.Suggestions) == 0 {
		return
	}
	b.WriteString("Without any fault these columns differ between two runs, for no message determines them:\n")
	for _, s := range r.Suggestions {
		if s.Fills != "" {
			fmt.Fprintf(b, "  --exclude %s   filled in by Postgres, from %s\n", s.Column, s.Fills)
		} else {
			fmt.Fprintf(b, "  --exclude %s   filled in by the handler: should it be so?\n", s.Column)
		}
	}
}

func (r *RunResult) write(b *strings.Builder) {
	if r.Number == 0 {
		fmt.Fprintf(b, "%s\n", r.line())
	} else {
		fmt.Fprintf(b, "run %d, %s\n", r.Number, r.line())
	}
	if r.Undone != "" {
		fmt.Fprintf(b, "  %s\n", r.Undone)
	}
	for i := range r.Differences {
		if i == mostShown {
			fmt.Fprintf(b, "  and %s more\n", counted(len(r.Differences)-i, "row"))
			break
		}
		r.Differences[i].write(b, r)
	}
}

func (d *Difference) write(b *strings.Builder, r *RunResult) {
	fmt.Fprintf(b, "  %s: %s row", d.Table, d.Kind)
	for _, c := range d.Row {
		fmt.Fprintf(b, " %s=%s", c.Column, quoted(c.Value))
	}
	for _, c := range d.Changed {
		fmt.Fprintf(b, "; %s is %s and should be %s", c.Column, quoted(c.Has), quoted(c.Right))
	}
	b.WriteString("\n")
	if c := d.Cause; c != nil {
		fmt.Fprintf(b, "    of line %d of the sample%s, sent to %s%s\n", c.Line, prefixed(", ID ", c.ID),
			strings.Join(c.Sent, " and "), r.met(c.Faults))
	}
}

// quoted is a value in one word, with nothing that steers a terminal.
func quoted(text string) string {
	q := fmt.Sprintf("%q", text)
	if strings.ContainsAny(text, " ,;=") || text == "" || q != `"`+text+`"` {
		return q
	}
	return text
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + quoted(text)
}

// met names the faults that came while a message was being worked on.
func (r *RunResult) met(faults []int) string {
	if len(faults) == 0 {
		return ""
	}
	var texts []string
	for _, n := range faults {
		texts = append(texts, fmt.Sprintf("fault %d (%s)", n, r.Faults[n-1].What))
	}
	return "; it was not done yet at " + strings.Join(texts, ", ")
}

func (r *Result) verdict() string {
	rows := 0
	for _, t := range r.Tables {
		rows += t.Rows
	}
	what := fmt.Sprintf("%s, %s with %s, in %.0f s (seed %d)", counted(r.Messages, "message"),
		counted(len(r.Runs)+2, "run"), counted(r.Faults, "fault"), r.Seconds, r.Seed)
	if r.Repeated > 0 {
		what += fmt.Sprintf("; webhooks came again %s", counted(r.Repeated, "time"))
	}
	if r.Same {
		return fmt.Sprintf("SAME: each run has left the same %s in %s. %s\n", counted(rows, "row"),
			counted(len(r.Tables), "table"), what)
	}
	return fmt.Sprintf("DIFFERS: %s\n", what)
}

// JSON is the result as one document.
func (r *Result) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "  ")
	return append(text, '\n'), err
}

type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Time     string     `xml:"time,attr"`
	Cases    []testcase `xml:"testcase"`
	Out      string     `xml:"system-out,omitempty"`
}

type testcase struct {
	Class   string  `xml:"classname,attr"`
	Name    string  `xml:"name,attr"`
	Time    string  `xml:"time,attr"`
	Failure *failed `xml:"failure"`
}

type failed struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the result as a test suite, a case for each run.
func (r *Result) WriteJUnit(out io.Writer) error {
	s := suite{Name: "firstseen crashtest", Time: seconds(r.Seconds), Out: strings.Join(r.Warnings, "\n")}
	s.add(r.asCase("columns that no message determines", 0, r.suggested()))
	runs := append([]RunResult{r.Again}, r.Runs...)
	for i := range runs {
		var b strings.Builder
		if runs[i].differs() {
			runs[i].write(&b)
			fmt.Fprintf(&b, "seed %d, run %d\n", r.Seed, runs[i].Number)
		}
		s.add(r.asCase(fmt.Sprintf("run %d: %s", runs[i].Number, runs[i].Name), runs[i].Seconds, b.String()))
	}
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	return encoder.Encode(s)
}

func (r *Result) suggested() string {
	var b strings.Builder
	r.writeSuggestions(&b)
	return b.String()
}

func (r *Result) asCase(name string, took float64, fault string) testcase {
	c := testcase{Class: "crashtest", Name: name, Time: seconds(took)}
	if first, _, _ := strings.Cut(fault, "\n"); fault != "" {
		c.Failure = &failed{first, fault}
	}
	return c
}

func (s *suite) add(c testcase) {
	s.Tests++
	if c.Failure != nil {
		s.Failures++
	}
	s.Cases = append(s.Cases, c)
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }
