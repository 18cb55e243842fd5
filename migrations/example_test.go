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
	for _, s := range steps {
		fmt.Println(s.Version, s.Name)
	}
	// Output:
	// 1 00001_inbox
	// 2 00002_functions
	// 3 00003_lanes
	// 4 00004_pauses
	// 5 00005_upkeep
	// 6 00006_offsets
}
