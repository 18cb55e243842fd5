package deduptest_test

import (
	"context"
	"fmt"

	"github.com/firstseen/firstseen/dedup/deduptest"
)

func Example() {
	t := new(deduptest.Example) // a *testing.T in a test
	defer t.End()

	db := deduptest.New(t)
	var scopes int
	err := db.Pool.QueryRow(context.Background(), "select count(*) from firstseen.scopes").Scan(&scopes)
	fmt.Println(scopes, err)
	// Output: 0 <nil>
}
