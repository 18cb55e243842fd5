package deduptest

import (
	"context"

	"github.com/firstseen/firstseen/migrations"
)

// migrate brings an empty database to the newest schema.
var migrate = func(ctx context.Context, dsn string) error {
	_, err := migrations.Up(ctx, dsn, migrations.Config{})
	return err
}
