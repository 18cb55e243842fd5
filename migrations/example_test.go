package migrations_test

import (
	"context"
	"fmt"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
	"github.com/firstseen/firstseen/migrations"
)

// A deployment brings the schema up before the first consumer starts. All replicas may do so at once.
func ExampleUp() {
	ctx := context.Background()
	server, err := pgserver.Start(ctx, pgserver.Config{}) // your Postgres
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	steps, err := migrations.Up(ctx, server.DSN("postgres"), migrations.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(steps[0].Version, steps[0].Name, steps[len(steps)-1].Version == migrations.Latest())
	// Output: 1 00001_inbox true
}
