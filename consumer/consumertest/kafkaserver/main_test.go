package kafkaserver

import (
	"fmt"
	"os"
	"testing"
)

// TestMain leaves all tests of this package out where Kafka cannot start and is not required.
func TestMain(m *testing.M) {
	missing := MissingProgram()
	switch {
	case missing == "":
		os.Exit(m.Run())
	case os.Getenv("FIRSTSEEN_REQUIRE_KAFKA") != "":
		fmt.Printf("FIRSTSEEN_REQUIRE_KAFKA is set and %s is not installed\n", missing)
		os.Exit(1)
	}
	fmt.Printf("real Kafka needs %s, which is not installed\n", missing)
}
