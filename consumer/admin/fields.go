package admin

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firstseen/firstseen/dedup/httpjson"
)

// checkFields refuses of a body's fields, and of those of its objects, what huma takes and the document does not have:
// those that are known in another case only (unless it is told not to for the whole process), and null.
func checkFields(content []byte, s *huma.Schema, schemas huma.Registry, within string) *httpjson.Problem {
	var fields map[string]json.RawMessage
	if json.Unmarshal(content, &fields) != nil {
		return nil // huma says what it is instead
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch field := s.Properties[name]; {
		case field != nil && !field.Nullable && !slices.Contains(s.Required, name) && string(fields[name]) == "null":
			return httpjson.Wrong(httpjson.Brief(within+name), "is null; leave it out where there is none")
		case field != nil && field.Ref != "":
			if fault := checkFields(fields[name], schemas.SchemaFromRef(field.Ref), schemas, name+"."); fault != nil {
				return fault
			}
		case field == nil && within != "" && hasFolded(names, name):
			return noField(within + name)
		case field == nil && hasFolded(names, name):
			return unknown(httpjson.Brief(name), names)
		}
	}
	return nil
}

func hasFolded(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}
