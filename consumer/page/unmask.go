package page

import (
	"net/http"
	"strings"

	apiview "github.com/firstseen/firstseen/consumer/view"
)

// unmaskForm asks for a message to be shown with what is hidden of it.
type unmaskForm struct{ Form, Of, Handler, Tenant, ID string }

// unmaskedPage shows a message and its copies with all that they have.
type unmaskedPage struct {
	ID, Why string
	Parts   []unmaskedPart
}

type unmaskedPart struct {
	Title   string
	Error   *string
	Content *contentShown
}

// unmask shows what is hidden, to who may change something and says why: the API keeps that before it answers.
func (v *visit) unmask() error {
	form := v.r.PostForm
	body := map[string]string{"id": form.Get("id"), "handler": form.Get("handler"), "tenant": form.Get("tenant"),
		"why": strings.TrimSpace(form.Get("why"))}
	if body["why"] == "" {
		return problem(http.StatusBadRequest, "say why: it is kept in the audit")
	}
	var found apiview.Unmasked
	if err := v.change(http.MethodPost, ofPath(ofOutbox(form.Get("of")), "/unmask"), nil, body, &found); err != nil {
		return err
	}
	p := unmaskedPage{ID: body["id"], Why: body["why"]}
	for i := range found.Messages {
		m := &found.Messages[i]
		p.Parts = append(p.Parts, unmaskedPart{titleOf(m), m.Error, contentOf(m.Content, "")})
	}
	for i := range found.Conflicts {
		c := &found.Conflicts[i]
		p.Parts = append(p.Parts, unmaskedPart{Title: "Copy at " + placeOf(c.Topic, c.Partition, c.Offset),
			Content: contentOf(c.Content, "")})
	}
	return v.show(&view{"Shown", "unmasked", false, func(*visit) (any, error) { return p, nil }})
}

// titleOf says whose a message is, and where it came from or is to be sent.
func titleOf(m *apiview.Message) string {
	switch {
	case ofInbox(m.Inbox) == "":
		return "Handler " + m.Handler + ", at " + placeOf(m.Topic, m.Partition, m.Offset)
	case m.Handler == "":
		return "To be sent, topic " + m.Topic
	default:
		return "Destination " + m.Handler + ", topic " + m.Topic
	}
}
