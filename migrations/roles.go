package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"

	"github.com/firstseen/firstseen/dedup/failure"
)

//go:embed roles.sql
var rolesSQL string

// roleNames are the roles that roles.sql makes.
var roleNames = []string{"firstseen_owner", "firstseen_consumer", "firstseen_operator", "firstseen_retention",
	"firstseen_sender"}

// Roles gives the SQL that makes the five roles of firstseen and grants their rights: an owner, which migrates; a
// consumer, which can neither change the schema nor forget a message ID; an operator, which reads, and changes what
// the operator's functions do; one for retention, which alone forgets; and a sender, which adds to the outbox. It may
// be run again after every migration; [ApplyRoles] does.
func Roles(cfg Config) (string, error) {
	schema, err := cfg.schema()
	if err != nil {
		return "", err
	}
	return rename(rolesSQL, schema), nil
}

// ApplyRoles makes the roles that are missing, grants the rights of all of them, and returns those that it made. It
// needs the schema at version [Latest]. It is one transaction, may be repeated at any time, also beside consumers that
// run, and waits while another process migrates.
//
// The login is a superuser, owns the schema, or is a member of firstseen_owner, and may create roles where some are
// missing. Where it may not, the error says what it lacks.
func ApplyRoles(ctx context.Context, dsn string, cfg Config) (made []string, err error) {
	_, err = run(dsn, cfg, func(db *sql.DB, schema string) (_ []Step, err error) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return nil, err
		}
		defer func() { _ = tx.Rollback() }()
		if err := lockOut(ctx, tx, lock.DefaultLockID, cfg.lockTimeout()); err != nil {
			return nil, err
		}
		if made, err = applyRoles(ctx, tx, schema); err != nil {
			return nil, fmt.Errorf("roles: %w", err)
		}
		return nil, tx.Commit()
	})
	if err != nil {
		made = nil
	}
	return made, err
}

func applyRoles(ctx context.Context, tx *sql.Tx, schema string) (made []string, err error) {
	version, _, err := versionIn(ctx, tx, schema)
	if err == nil && version != Latest() {
		err = fmt.Errorf("the schema is at version %d, and this build grants rights in version %d: "+
			"run `firstseen migrate up` of this build first", version, Latest())
	}
	if err != nil {
		return nil, err
	}
	missing, err := missingRoles(ctx, tx)
	if err != nil {
		return nil, err
	}
	var login string
	var creates bool
	if err := tx.QueryRowContext(ctx, `select rolname, rolsuper or rolcreaterole from pg_roles where rolname = current_user`).
		Scan(&login, &creates); err != nil {
		return nil, err
	}
	name := pgx.Identifier{login}.Sanitize()
	if len(missing) > 0 && !creates {
		return nil, fmt.Errorf("%s not there, and %s may not create roles: have a superuser run this once, or "+
			"`alter role %s createrole`", list(missing), name, name)
	}
	if _, err := tx.ExecContext(ctx, rename(rolesSQL, schema)); err != nil {
		return nil, deniedAdvice(err, schema, name)
	}
	return missing, nil
}

func missingRoles(ctx context.Context, tx *sql.Tx) (missing []string, err error) {
	rows, err := tx.QueryContext(ctx, `
		select w.name from unnest($1::text[]) with ordinality w (name, place)
		where not exists (select from pg_roles where rolname = w.name) order by w.place`, roleNames)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		missing = append(missing, name)
	}
	return missing, rows.Err()
}

func list(names []string) string {
	if len(names) == 1 {
		return names[0] + " is"
	}
	return strings.Join(names, ", ") + " are"
}

// deniedAdvice adds to an error what to do, where Postgres said that a right is missing.
func deniedAdvice(err error, schema, login string) error {
	if failure.Denied(err) {
		return fmt.Errorf("%w: %s has to own the schema %s, or to be a member of firstseen_owner: have a superuser "+
			"`grant firstseen_owner to %s`", err, login, schema, login)
	}
	return err
}
