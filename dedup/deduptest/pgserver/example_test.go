package pgserver_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/firstseen/firstseen/dedup/deduptest/pgserver"
)

func Example() {
	ctx := context.Background()
	server, err := pgserver.Start(ctx, pgserver.Config{Version: "18"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()

	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close(ctx)
	var encoding string
	err = conn.QueryRow(ctx, "show server_encoding").Scan(&encoding)
	fmt.Println(encoding, err)
	// Output: UTF8 <nil>
}
