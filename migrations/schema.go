package migrations

import (
	"strings"

	"github.com/jackc/pgx/v5"
)

// Schema is the name of a schema that the migrations have made.
type Schema string

// SQL spells a statement, which is written for the schema firstseen, for this one.
func (s Schema) SQL(statement string) string {
	return strings.ReplaceAll(statement, DefaultSchema+".", pgx.Identifier{string(s)}.Sanitize()+".")
}
