package identity

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
)

// FindNamed gives the identity of a message that does not come from a partition, and whose sender names it by a key
// beside it: an HTTP request's Idempotency-Key, say. It is the identity that [Rule.Find] gives the same message in
// Kafka, so what comes both ways is one message. For that the key is put into the message where the rule looks for a
// text outside of the payload: into its first header source, if that header is not there, or else, with the source
// key, in the place of a key that is null. A payload is never changed: where the rule looks there only, the sender has
// to write the key there himself.
//
// Without a key it is what the rule finds; where it finds nothing, a new version-7 UUID, put into the message as a key
// is. An ID from a position counts as nothing.
//
// An error is the sender's to mend, and shows nothing of the message: the key stands for no ID, the message has another
// one by the rule, or the rule has no place where the key could be.
func (r *Rule) FindNamed(m *Record, key string) (Found, error) {
	by := &Rule{sources: slices.DeleteFunc(slices.Clone(r.sources), func(s Source) bool { return s.kind == fromPosition }),
		noIDs: r.noIDs, sought: r.sought}
	if key == "" {
		return by.findOrMake(m)
	}
	ids, err := ParseIDs(key)
	if err != nil || r.noIDs.has([]byte(key)) {
		return Found{}, errors.New("the key stands for no ID: choose another one")
	}
	by.put(m, key)
	switch found := by.Find(m, uuid.Nil); {
	case found.Reason == "" && slices.Contains(ids, found.ID):
		return found, nil
	case found.Reason == "":
		return Found{}, fmt.Errorf("the message itself has another ID than its key: %s", r.sought)
	case !found.Reason.final() && r.ByPosition():
		id := textID([]byte(key), "")
		return Found{ID: id.id, RawID: id.raw}, nil
	default:
		return Found{}, fmt.Errorf("the key is not where the topic's IDs are: %s", found.Sought)
	}
}

// findOrMake finds the ID of a message without a key.
func (r *Rule) findOrMake(m *Record) (Found, error) {
	found := r.Find(m, uuid.Nil)
	switch {
	case found.Reason == "":
		return found, nil
	case found.Reason.final():
		return Found{}, fmt.Errorf("the message's ID can't be used: %s", found.Sought)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Found{}, fmt.Errorf("make an ID: %w", err)
	}
	r.put(m, id.String())
	return Found{ID: id}, nil
}

// put writes a key where Find will look for it.
func (r *Rule) put(m *Record, key string) {
	for i := range r.sources {
		if s := &r.sources[i]; s.kind == fromHeader {
			if text, reason := r.noIDs.header(m.Headers, s.header); len(text) == 0 && reason == "" {
				m.Headers = append(slices.Clip(m.Headers), Header{Key: s.header, Value: []byte(key)})
			}
			return
		}
	}
	takesKey := slices.ContainsFunc(r.sources, func(s Source) bool { return s.kind == fromKey })
	if takesKey && m.Key == nil {
		m.Key = []byte(key)
	}
}
